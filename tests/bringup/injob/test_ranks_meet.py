"""Ranks as processes of their own, with libraries mapped, meeting in a folder and at an address."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from bringup.injob import meeting, rendezvous, reports
from bringup.injob.reports import Report
from lockstep.base import errors

from .test_what_a_rank_has_mapped import library

SCRIPT = """
import json, mmap, os
file = open(os.environ["LIBRARY"], "rb")
held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
from lockstep import preflight
preflight.check(timeout=float(os.environ["SECONDS"]), **json.loads(os.environ["PLACE"]))
print("the first collective")
"""


COMMAND = """
import mmap, os, sys
file = open(os.environ["LIBRARY"], "rb")
held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
from lockstep.cli import main
sys.exit(main.run(["preflight", *sys.argv[1:]]))
"""


def start(rank: int, world: int, place: Mapping[str, str], path: Path, seconds: float = 30) -> subprocess.Popen[str]:
    """One rank of a job, as a launcher starts it."""
    environment = {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LIBRARY": str(path),
        "PLACE": json.dumps(dict(place)),
        "SECONDS": str(seconds),
        "TORCHELASTIC_RUN_ID": "job-7",
    }
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(ranks: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each."""
    found = []
    for rank in ranks:
        out, err = rank.communicate(timeout=120)
        found.append((rank.returncode, out, err))
    return found


@pytest.fixture
def usual(tmp_path: Path) -> Path:
    return library(tmp_path / "usual" / "libnccl.so.2", "NCCL version 2.27.5+cuda12.9")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return library(tmp_path / "old" / "libnccl.so.2", "NCCL version 2.23.4+cuda12.6")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_ranks_in_step_go_on(tmp_path: Path, usual: Path) -> None:
    place = {"folder": str(tmp_path / "meet")}
    assert ended([start(rank, 3, place, usual) for rank in range(3)]) == [(0, "the first collective\n", "")] * 3


@pytest.mark.parametrize("where", ["folder", "rendezvous"])
def test_the_odd_rank_stops_every_rank_before_the_collective(
    tmp_path: Path, usual: Path, old: Path, where: str
) -> None:
    place = {"folder": str(tmp_path / "meet")} if where == "folder" else {"rendezvous": f"127.0.0.1:{free_port()}"}
    found = ended([start(rank, 6, place, old if rank == 4 else usual) for rank in range(6)])
    for code, out, err in found:
        assert (code, out) == (1, "")
        assert f"rank 4 ({socket.gethostname()}): nccl@library 2.23.4+cuda12.6, from {old}" in err
        assert "5 of 6 have 2.27.5+cuda12.9" in err


@pytest.mark.parametrize("where", ["folder", "rendezvous"])
def test_a_rank_that_never_comes_is_named_by_number(tmp_path: Path, usual: Path, where: str) -> None:
    place = {"folder": str(tmp_path / "meet")} if where == "folder" else {"rendezvous": f"127.0.0.1:{free_port()}"}
    for code, out, err in ended([start(rank, 3, place, usual, seconds=4) for rank in (0, 2)]):
        assert (code, out) == (3, "")
        assert "1 of 3 ranks did not report: 1" in err


def test_without_rank_0_the_others_say_so(tmp_path: Path) -> None:
    own = Report(1, 2, "h", "s", "n")
    with pytest.raises(errors.NotMeasuredError, match="no verdict of rank 0"):
        meeting.meet(own, tmp_path, seconds=0.1)
    with pytest.raises(errors.NotMeasuredError, match="no verdict of rank 0"):
        rendezvous.meet(own, ("127.0.0.1", free_port()), seconds=0.3)


def test_a_name_that_was_used_before_is_refused(tmp_path: Path) -> None:
    own = Report(0, 1, "h", "s", "n", {"nccl@library": "2.27.5"})
    assert meeting.meet(own, tmp_path, seconds=5).exit_code is errors.ExitCode.IN_STEP
    with pytest.raises(errors.InputError, match="that name of an attempt was used before"):
        meeting.meet(own, tmp_path, seconds=5)


def test_a_verdict_made_without_a_ranks_report_does_not_clear_it() -> None:
    own = Report(1, 2, "h", "s", "mine")
    data = json.dumps({"exit": 0, "lines": [], "reports": {"1": "another"}}).encode()
    with pytest.raises(errors.NotMeasuredError, match="without the report of rank 1"):
        meeting.from_verdict(data, own)


def test_a_damaged_report_is_a_problem_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "rank-1.json").write_bytes(b"\xff{")
    answer = meeting.meet(Report(0, 2, "h", "s", "n", {"nccl@library": "2.27.5"}), tmp_path, seconds=5)
    assert answer.exit_code is errors.ExitCode.NOT_MEASURED
    assert "rank-1.json: no JSON" in answer.lines


def test_an_attempt_cannot_leave_its_folder(tmp_path: Path) -> None:
    with pytest.raises(errors.InputError, match="cannot name an attempt"):
        meeting.meet(Report(0, 1, "h", "../up", "n"), tmp_path, seconds=1)


def test_strangers_at_the_address_are_refused_with_the_reason(tmp_path: Path) -> None:
    import asyncio

    async def play() -> tuple[meeting.Answer, list[bytes]]:
        port = free_port()
        own = Report(0, 2, "zero", "s", "n", {"nccl@library": "2.27.5"})
        first = asyncio.create_task(rendezvous._listen(own, ("127.0.0.1", port), 10))
        said = []
        for line in (
            b"GET / HTTP/1.1\r\n",
            reports.to_json(Report(1, 2, "x", "other", "n")),
            reports.to_json(Report(0, 2, "x", "s", "n")),
        ):
            reader, writer = await rendezvous._connect(("127.0.0.1", port), 1e18)
            writer.write(line)
            said.append(await reader.readline())
            writer.close()
        last = Report(1, 2, "one", "s", "m", {"nccl@library": "2.27.5"})
        await rendezvous._ask(last, ("127.0.0.1", port), 10)
        return await first, said

    answer, said = asyncio.run(play())
    assert [json.loads(line)["refused"].split(":")[0] for line in said] == [
        "not taken",
        "this is attempt s of 2 ranks, not other of 2",
        "rank 0 has reported already, from zero",
    ]
    assert any("rank 0 came twice" in line for line in answer.lines)


def test_a_pipe_in_the_place_of_a_report_holds_nobody(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    os.mkfifo(tmp_path / "s" / "rank-1.json")
    answer = meeting.meet(Report(0, 2, "zero", "s", "n", {"nccl@library": "2.27.5"}), tmp_path, seconds=10)
    assert answer.exit_code is errors.ExitCode.NOT_MEASURED
    assert "rank-1.json is no file" in answer.lines


def test_a_taken_address_is_said(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(errors.InputError, match="cannot listen"):
            rendezvous.meet(Report(0, 2, "h", "s", "n"), other.getsockname(), seconds=1)


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`lockstep preflight`, as a launcher starts it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RANK", "WORLD", "SLURM", "PM"))}
    return subprocess.run(
        [sys.executable, "-m", "lockstep.cli.main", "preflight", *words],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_any_collective_library_the_program_is_not_started(tmp_path: Path) -> None:
    done = command("--folder", str(tmp_path / "m"), "--rank", "0", "--world", "1", "--", "echo", "trained")
    assert (done.returncode, done.stdout) == (3, "")
    assert "no rank has NCCL or RCCL" in done.stderr


def test_the_command_looks_at_a_process_and_starts_the_program(tmp_path: Path, usual: Path) -> None:
    code = (
        "import mmap,sys; f=open(sys.argv[1],'rb'); m=mmap.mmap(f.fileno(),0,access=mmap.ACCESS_READ);"
        "print('up',flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(usual)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None
        assert job.stdin is not None
        assert job.stdout.readline() == "up\n"
        words = ["--folder", str(tmp_path / "m"), "--pid", str(job.pid), "--", "echo", "trained"]
        done = command(*words, SLURM_PROCID="0", SLURM_NTASKS="1", SLURM_JOB_ID="9")
        job.stdin.close()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "trained"
    assert "1 ranks in step" in done.stdout
    assert (tmp_path / "m" / "9-0-0" / "verdict.json").exists()


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        ((), [{"RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "t"} for rank in (0, 1)]),
        ((), [{"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7"} for rank in (0, 1)]),
        ((), [{"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2"} for rank in (0, 1)]),
        # An init container of an Indexed Job: Kubernetes says which pod it is, and not how many there are.
        (("--world", "2"), [{"JOB_COMPLETION_INDEX": str(rank)} for rank in (0, 1)]),
    ],
    ids=["torchrun", "srun", "mpirun", "init container"],
)
def test_every_launcher_says_which_rank_it_is(
    tmp_path: Path, usual: Path, words: tuple[str, ...], ranks: list[dict[str, str]]
) -> None:
    other = library(tmp_path / "other" / "libnccl.so.2", "NCCL version 2.23.4+cuda12.6")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", COMMAND, "--folder", str(tmp_path / "m"), *words, "--", "echo", "trained"],
            env={"PATH": os.environ["PATH"], "LIBRARY": str(path), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for environment, path in zip(ranks, (usual, other), strict=True)
    ]
    for code, out, err in ended(processes):
        assert (code, out) == (1, ""), err
        assert "2.23.4+cuda12.6" in err
        assert "rank" in err


def test_wrong_words_are_bad_input_with_a_remedy(tmp_path: Path) -> None:
    for words, text in (
        (["--rank", "0", "--world", "1"], "give one place to meet"),
        (["--folder", "x", "--rendezvous", "h:1", "--rank", "0", "--world", "1"], "give one place to meet"),
        (["--rendezvous", "nowhere", "--rank", "0", "--world", "1"], "is no HOST:PORT"),
        (["--folder", str(tmp_path), "--world", "1"], "--rank"),
        (["--folder", str(tmp_path), "--rank", "1", "--world", "1"], "rank 1 of 1"),
    ):
        done = command(*words)
        assert done.returncode == 2, words
        assert text in done.stderr
