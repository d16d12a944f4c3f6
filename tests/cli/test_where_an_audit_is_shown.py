"""Where an audit goes: narrow and poor terminals, full and closed outputs, devices, folders that are not there."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import stat
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.bringup import answers

LOCKSTEP = Path(sys.executable).with_name("lockstep")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outputs of four nodes of which one has another NCCL."""
    folder = tmp_path_factory.mktemp("outputs")
    for number in range(1, 5):
        changes = {"nccl": "2.27.7"} if number == 3 else {}
        (folder / f"gpu-{number}.jsonl").write_bytes(answers.answer(f"SN{number}", **changes))
    return folder


def _audit(outputs: Path, *words: str, **more: object) -> subprocess.CompletedProcess[bytes]:
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    done: subprocess.CompletedProcess[bytes] = subprocess.run(  # type: ignore[call-overload]
        [str(LOCKSTEP), "audit", "--from-dir", str(outputs), *words], **given
    )
    return done


def _on_a_terminal(outputs: Path, columns: int) -> str:
    """What a terminal of so many columns is sent, without its colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    words = [str(LOCKSTEP), "audit", "--from-dir", str(outputs)]
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, env=environment | {"TERM": "xterm"})
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 65536):
            said += chunk
    except OSError:
        pass  # The other end is closed: it has ended.
    os.close(ours)
    assert process.wait() == 1
    return re.sub(r"\x1b\[[0-9;]*m", "", said.decode()).replace("\r", "")


@pytest.mark.parametrize("columns", [60, 80, 119, 120, 200])
def test_a_finding_is_whole_on_a_terminal_of_any_width(outputs: Path, columns: int) -> None:
    said = _on_a_terminal(outputs, columns)
    assert max(map(len, said.splitlines())) <= columns
    findings = " ".join(said.partition("  findings")[2].split())
    for words in ("gpu-3", "2.28.9", "2.27.7", "it differs", "bring the nodes"):
        assert words in findings


def test_a_terminal_that_lacks_a_character_is_shown_its_code(outputs: Path) -> None:
    done = _audit(outputs, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (1, b"")
    assert b"drift or skew found (exit 1)" in done.stdout


def test_a_document_for_machines_is_utf_8_on_any_terminal(outputs: Path) -> None:
    usual = _audit(outputs, "--format", "html")
    poor = _audit(outputs, "--format", "html", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert not usual.stdout.isascii()
    assert usual.stdout == poor.stdout


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_full_disk_behind_the_output_is_one_sentence(outputs: Path, form: str) -> None:
    with open("/dev/full", "wb") as full:
        done = _audit(outputs, "--format", form, stdout=full)
    assert done.returncode == 5
    assert done.stderr == b"cannot write the output: No space left on device; what was printed is cut\n"


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_reader_that_left_is_no_drift(outputs: Path, form: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = _audit(outputs, "--format", form, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (5, b"")


def test_without_any_output_the_exit_code_still_says_it(outputs: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", str(LOCKSTEP), "audit", "--from-dir", str(outputs)], stderr=subprocess.PIPE
    )
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_pipe_is_written_to_and_never_replaced(outputs: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    link = tmp_path / "link"
    link.symlink_to(pipe)
    for path in (pipe, link):
        reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
        assert _audit(outputs, "--format", "json", "--output", str(path)).returncode == 1
        assert json.loads(reader.communicate()[0])["exit_code"] == 1
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert link.is_symlink()


def test_our_own_output_can_be_named_as_a_file(outputs: Path) -> None:
    before = os.lstat("/dev/stdout")
    done = _audit(outputs, "--format", "json", "--output", "/dev/stdout")
    assert json.loads(done.stdout)["exit_code"] == 1
    assert os.lstat("/dev/stdout").st_ino == before.st_ino


@pytest.mark.parametrize("option", ["--output", "--save"])
def test_a_file_that_cannot_be_written_is_said_before_anything_is_read(tmp_path: Path, option: str) -> None:
    nobody = tmp_path / "not-there"
    done = _audit(nobody, option, str(tmp_path / "neither" / "file"))
    assert done.returncode == 2
    assert done.stderr.decode() == f"{option}: there is no folder {tmp_path}/neither\n  hint: make it first\n"
    done = _audit(nobody, option, str(tmp_path))
    assert (done.returncode, done.stderr.decode().partition(": ")[2][: len(str(tmp_path))]) == (2, str(tmp_path))
    assert list(tmp_path.iterdir()) == []
