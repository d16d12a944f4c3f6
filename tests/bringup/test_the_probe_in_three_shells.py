"""The real script in dash, bash and busybox: what it reads, what it abandons, what it leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bringup import probe
from bringup.parsers import collectives, communication, loader, records
from bringup.transport.base import Patience
from pinsets import components
from pinsets.facts import Unreadable

SHELLS = {"dash": ["dash"], "bash": ["bash"], "posix-bash": ["bash", "--posix"], "busybox": ["busybox", "ash"]}
SHM = Path("/dev/shm")


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    words = SHELLS[request.param]
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    return words


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[Path]:
    """A folder for stand-in programs; whatever they leave running is ended."""
    folder = tmp_path / "tools"
    folder.mkdir()
    yield folder
    for pid_file in tmp_path.glob("*.running"):
        try:
            os.kill(int(pid_file.read_text()), signal.SIGKILL)
        except (ProcessLookupError, ValueError):
            continue


def _program(tools: Path, name: str, text: str) -> None:
    path = tools / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _run(shell: list[str], tools: Path, patience: Patience | None = None) -> records.Answer:
    return _ran(shell, tools, patience)[0]


def _ran(shell: list[str], tools: Path, patience: Patience | None = None) -> tuple[records.Answer, int]:
    """The answer, and the shell's pid, by which its folder is named."""
    script = probe.script(components.load(), patience or Patience())
    environ = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(tools)}
    pipe = subprocess.PIPE
    with subprocess.Popen([*shell, "-s"], stdin=pipe, stdout=pipe, stderr=pipe, env=environ) as process:
        try:
            out, _ = process.communicate(script.encode(), timeout=60)
        finally:
            process.kill()
    return records.read(out), process.pid


def test_every_command_answers_in_order_and_nothing_is_left(shell: list[str], tools: Path) -> None:
    _program(tools, "nvidia-smi", "echo '<nvidia_smi_log/>'; echo complaint >&2; exit 7")
    answer, pid = _ran(shell, tools)
    assert answer.complete
    assert list(answer.records) == [command.id for command in probe.commands()]
    smi = answer.records["smi"]
    assert (smi.rc, smi.out, smi.err) == (7, b"<nvidia_smi_log/>\n", b"complaint\n")
    assert answer.records["kernel"].text.split() == [os.uname().release, os.uname().machine]
    assert "/proc/sys/kernel/random/boot_id" in answer.records["host"].text
    # Others probe this machine at the same time: only its own folder is looked for.
    assert not list(SHM.glob(f"lockstep-probe.{pid}.*"))


def test_a_large_output_arrives_whole_and_a_flood_is_cut(shell: list[str], tools: Path) -> None:
    _program(
        tools,
        "nvidia-smi",
        "i=0; while [ $i -lt 2000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done",
    )
    _program(tools, "nvidia-ctk", "exec cat /dev/zero")
    answer = _run(shell, tools)
    assert len(answer.records["smi"].out) == 2000 * 41
    assert "cut at" in str(answer.records["toolkit"].unreadable)


def test_a_command_that_ignores_term_and_holds_its_pipe_is_abandoned(
    shell: list[str], tools: Path, tmp_path: Path
) -> None:
    _program(tools, "nvidia-ctk", f"trap '' TERM; echo $$ >{tmp_path}/ctk.running; while :; do sleep 1; done")
    started = time.monotonic()
    answer = _run(shell, tools, Patience(command_seconds=1, script_seconds=10))
    assert answer.complete
    assert answer.records["toolkit"].rc == probe.ABANDONED
    assert "no answer" in str(answer.records["toolkit"].unreadable)
    assert answer.records["smi"].rc == 127
    assert time.monotonic() - started < 9


def test_an_answer_is_written_in_few_pieces(shell: list[str], tools: Path) -> None:
    """Each write becomes a packet: what a socket of datagrams receives is one write of the shell."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        environ = {"PATH": f"{tools}:{os.environ['PATH']}"}
        script = probe.script(components.load()).encode()
        subprocess.run([*shell, "-s"], input=script, stdout=theirs, env=environ, timeout=60, check=True)
        theirs.close()
        pieces = list(iter(lambda: ours.recv(1 << 20), b""))
    assert records.read(b"".join(pieces)).complete
    # busybox writes a kilobyte at a time; a slow machine lets a second or two go by.
    assert len(pieces) < 15


def test_what_was_read_is_sent_while_a_later_command_hangs(shell: list[str], tools: Path, tmp_path: Path) -> None:
    _program(tools, "nvidia-ctk", f"trap '' TERM; echo $$ >{tmp_path}/ctk.running; while :; do sleep 1; done")
    script = probe.script(components.load(), Patience(command_seconds=50, script_seconds=50)).encode()
    environ = {"PATH": f"{tools}:{os.environ['PATH']}"}
    with subprocess.Popen([*shell, "-s"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(script)
        process.stdin.close()
        said = b""
        while b'"id":"libfabric"' not in said:
            line = process.stdout.readline()
            assert line, "ended before it said what it had read"
            said += line
        assert process.poll() is None
        process.kill()
        answer = records.read(said)
    assert not answer.complete
    assert answer.records["kernel"].text.split()[0] == os.uname().release
    assert "toolkit" not in answer.records


def test_what_the_time_does_not_allow_is_said_and_not_started(shell: list[str], tools: Path, tmp_path: Path) -> None:
    _program(tools, "nvidia-ctk", "sleep 30")
    _program(tools, "nvidia-smi", f"touch {tmp_path}/was-started")
    answer = _run(shell, tools, Patience(command_seconds=30, script_seconds=1))
    assert answer.complete
    assert answer.records["smi"].rc == probe.NO_TIME
    assert not (tmp_path / "was-started").exists()


def test_a_leftover_of_an_earlier_reading_keeps_nvidia_smi_from_being_started(tools: Path, tmp_path: Path) -> None:
    _program(tools, "nvidia-smi", f"touch {tmp_path}/was-started")
    stuck = subprocess.Popen(["sleep", "60"])
    folder = SHM / "lockstep-probe.1.test0001"
    folder.mkdir(mode=0o700)
    try:
        start = Path(f"/proc/{stuck.pid}/stat").read_text().rpartition(") ")[2].split()[19]
        (folder / f"{stuck.pid}.pid").write_text(f"nvml {stuck.pid} {start} nvidia-smi\n")
        (folder / "shell").write_text("1 1\n")
        answer = _run(["dash"], tools)
        smi = answer.records["smi"]
        assert smi.rc == probe.EARLIER_ALIVE
        assert f"nvidia-smi of an earlier reading still runs (pid {stuck.pid})" in str(smi.unreadable)
        assert answer.records["toolkit"].rc == 127
        assert not (tmp_path / "was-started").exists()
        assert folder.is_dir()
    finally:
        stuck.kill()
        stuck.wait()
    # The child is gone: the next reading clears the folder and asks again.
    answer = _run(["dash"], tools)
    assert answer.records["smi"].rc == 0
    assert not folder.exists()


def test_a_process_number_that_was_given_out_again_is_no_leftover(tools: Path) -> None:
    folder = SHM / "lockstep-probe.1.test0002"
    folder.mkdir(mode=0o700)
    (folder / f"{os.getpid()}.pid").write_text(f"nvml {os.getpid()} 12345 nvidia-smi\n")
    (folder / "shell").write_text("1 1\n")
    _program(tools, "nvidia-smi", "echo here")
    assert _run(["dash"], tools).records["smi"].rc == 0
    assert not folder.exists()


def test_two_readings_at_once_do_not_refuse_each_other(tools: Path) -> None:
    _program(tools, "nvidia-smi", "sleep 1; echo here")
    script = probe.script(components.load()).encode()
    environ = {"PATH": f"{tools}:{os.environ['PATH']}"}
    both = [
        subprocess.Popen(["dash", "-s"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) for _ in range(2)
    ]
    for one in both:
        assert one.stdin is not None
        one.stdin.write(script)
        one.stdin.close()
    for one in both:
        assert one.stdout is not None
        answer = records.read(one.stdout.read())
        one.wait()
        assert answer.records["smi"].out == b"here\n"


@pytest.mark.parametrize("written", [False, True])
def test_a_reading_that_has_only_begun_keeps_its_folder(shell: list[str], tools: Path, written: bool) -> None:
    begun = Path(f"/dev/shm/lockstep-probe.{os.getpid()}.begun")  # a living process, as its shell would be
    begun.mkdir(mode=0o700)
    try:
        if written:
            (begun / "shell").touch()  # opened, and not a line in it yet
        _run(shell, tools)
        assert begun.is_dir()
    finally:
        (begun / "shell").unlink(missing_ok=True)
        begun.rmdir()


def _library(folder: Path, name: str, link: str, content: bytes) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    if link != name:
        (folder / link).symlink_to(name)


def test_libraries_come_in_the_loader_s_order_with_what_is_inside(
    shell: list[str], tools: Path, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    _library(old, "libnccl.so.2.23.4", "libnccl.so.2", b"\0\xffNCCL version 2.23.4+cuda12.6\0\n")
    _library(new, "libnccl.so.2.28.9", "libnccl.so.2", b"\0NCCL version 2.28.9+cuda13.0\0")
    _library(new, "libnccl-net.so", "libnccl-net.so", b"\0ncclNetPlugin_v10\0aws-ofi-nccl 1.17.2\0FABRIC_1.7\0")
    cached = "".join(
        f"\tlib{name} (libc6,x86-64) => {new}/lib{name}\n" for name in ("nccl.so.2", "nccl-net.so", "gone.so.1")
    )
    (tools / "cache").write_text(f"3 libs found in cache\n{cached}")
    _program(tools, "ldconfig", f"cat {tools}/cache")
    environ = {"PATH": f"{tools}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(old)}
    script = probe.script(components.load()).encode()
    done = subprocess.run([*shell, "-s"], input=script, capture_output=True, env=environ, timeout=60)
    found = loader.read(records.read(done.stdout).get("libraries"))
    assert collectives.library(found, "libnccl.so.2") == ("2.23.4+cuda12.6", f"{old}/libnccl.so.2.23.4")
    assert loader.copies(found, "libnccl.so.2") == (f"{old}/libnccl.so.2.23.4", f"{new}/libnccl.so.2.28.9")
    assert collectives.plugins(found) == "libnccl-net.so:net-v10"
    assert collectives.plugin_versions(found) == {"aws-ofi-nccl": "1.17.2"}
    assert collectives.plugin_needs(found) == ("FABRIC_1.7",)
    assert not isinstance(found, Unreadable)
    assert found.gdrcopy_modules == (), "looked for, and there is none"


def test_ucx_s_module_for_gdrcopy_is_asked_which_functions_it_binds(
    shell: list[str], tools: Path, tmp_path: Path
) -> None:
    """The names stand for themselves among the module's strings; a message may hold others."""
    names = b"\0gdr_open\0gdr_get_info_v2\0uct_gdr_copy_md_open\0needs gdr_pin_buffer_v2\0\n\xff\0gdr_map\0"
    ucx = tmp_path / "u c x"
    _library(ucx, "libnccl.so.2.28.9", "libnccl.so.2", b"\0NCCL version 2.28.9+cuda13.0\0")
    _library(ucx / "ucx", "libuct_cuda_gdrcopy.so.0.0.0", "libuct_cuda_gdrcopy.so.0", names)
    environ = {"PATH": f"{tools}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(ucx)}
    script = probe.script(components.load()).encode()
    done = subprocess.run([*shell, "-s"], input=script, capture_output=True, env=environ, timeout=60)
    found = loader.read(records.read(done.stdout).get("libraries"))
    assert not isinstance(found, Unreadable)
    assert found.gdrcopy_modules == (f"{ucx}/ucx/libuct_cuda_gdrcopy.so.0",)
    assert loader.strings_of(found, found.gdrcopy_modules[0]) == ("gdr_open", "gdr_get_info_v2", "gdr_map")
    assert communication.ucx_gdrcopy(found) == "2.4"


def test_a_script_that_was_cut_does_nothing(shell: list[str], tools: Path, tmp_path: Path) -> None:
    _program(tools, "mktemp", f"touch {tmp_path}/was-started")
    script = probe.script(components.load())
    environ = {"PATH": f"{tools}:{os.environ['PATH']}"}
    for part in (0.3, 0.7, 0.95):
        subprocess.run(
            [*shell, "-s"], input=script[: int(len(script) * part)].encode(), capture_output=True, env=environ
        )
    assert not (tmp_path / "was-started").exists()


def test_the_output_is_json_lines_and_ends_with_the_count(tools: Path) -> None:
    done = subprocess.run(["dash", "-s"], input=probe.script({}).encode(), capture_output=True, timeout=60)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[-1] == {"done": len(probe.commands())}
    assert {frozenset(line) for line in lines[:-1]} == {frozenset({"id", "rc", "ms", "out", "err"})}


def test_heavy_tools_are_only_asked_when_told_to() -> None:
    heavy = {command.id for command in probe.COMMANDS if command.deep}
    assert {"mstflint", "mlxfwmanager", "mlxconfig"} <= heavy
    assert not heavy & {command.id for command in probe.commands()}
    assert "mlxfwmanager" not in probe.script(components.load())
    assert "mlxfwmanager" in probe.script(components.load(), deep=True)


def test_a_program_that_is_not_there_starts_nothing(shell: list[str], tools: Path) -> None:
    answer = _run(shell, tools)
    missing = answer.records["fabricmanager"]
    assert (missing.rc, missing.ms, missing.out, missing.err) == (127, 0, b"", b"")


def _as_nobody(shell: list[str], tools: Path) -> records.Answer:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to become nobody")
    for folder in (tools, *tools.parents):
        if folder == Path(tempfile.gettempdir()):
            break
        folder.chmod(0o755)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    script = probe.script(components.load(), deep=True)
    environ = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": "/"}
    done = subprocess.run(
        [*nobody, *shell, "-s"], input=script.encode(), capture_output=True, env=environ, timeout=60, cwd="/"
    )
    return records.read(done.stdout)


def test_what_needs_root_says_so_to_those_who_are_not(shell: list[str], tools: Path) -> None:
    _program(tools, "sudo", "exit 1")
    _program(tools, "nicctl", "echo must not run")
    answer = _as_nobody(shell, tools)
    assert answer.complete, answer.problem
    assert answer.records["root"].rc == 1
    assert str(answer.records["nicctl"].unreadable) == "unreadable: needs root"
    assert answer.records["kernel"].rc == 0


def test_sudo_that_asks_nothing_reads_what_needs_root(shell: list[str], tools: Path) -> None:
    _program(tools, "sudo", '[ "$1" = -n ] || exit 1; shift; exec "$@"')
    _program(tools, "nicctl", 'echo "$1 $2 $3"')
    answer = _as_nobody(shell, tools)
    assert answer.complete, answer.problem
    assert answer.records["root"].rc == 0
    assert answer.records["nicctl"].text == "show card -j\n"
    assert "@root\n sudo\n" in answer.records["host"].text


def test_a_sudo_that_waits_for_a_password_holds_nothing_up(tools: Path, tmp_path: Path) -> None:
    _program(tools, "sudo", f"echo $$ >{tmp_path}/sudo.running; exec sleep 60")
    answer = _as_nobody(["dash"], tools)
    assert answer.complete, answer.problem
    assert answer.records["root"].rc == probe.ABANDONED
    assert answer.records["kernel"].rc == 0


def test_every_carrier_of_the_registry_is_asked_for() -> None:
    names = probe.packages(components.load())
    assert {"nvidia-driver-cuda", "libnccl2", "cuda-toolkit-*-*", "kubelet"} <= set(names)
    assert all("{" not in name and "'" not in name for name in names)


@pytest.mark.debian
@pytest.mark.parametrize("deep", [False, True])
def test_the_script_passes_shellcheck(deep: bool) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed (requirements/debian.txt)")
    # `test -O` and `ulimit -c` are not of POSIX, but of dash, bash and busybox, in which the script runs above.
    text = "#!/bin/sh\n" + probe.script(components.load(), deep=deep)
    words = ["shellcheck", "-s", "sh", "-e", "SC3045,SC3067", "-"]
    done = subprocess.run(words, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
