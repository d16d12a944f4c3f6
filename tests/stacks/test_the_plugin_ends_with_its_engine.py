"""The plugin's process: started from anywhere, and gone when what started it is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

WAIT_SECONDS = 30.0


@pytest.fixture
def wrapper(copied: Path) -> Path:
    """The program that the engine starts, in a checkout at a path with a blank."""
    return copied / "stacks" / "plugin" / "pulumi-resource-lockstep"


@pytest.fixture
def engine(wrapper: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A parent that starts the plugin and prints its pid, and then what the plugin prints."""
    script = '"$0" 127.0.0.1:1 & echo $!; wait'
    process = subprocess.Popen(
        ["sh", "-c", script, str(wrapper)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    yield process
    process.kill()
    process.communicate()


def started(engine: subprocess.Popen[str]) -> int:
    """The plugin's pid, once it serves."""
    assert engine.stdout is not None
    pid = int(engine.stdout.readline())
    assert int(engine.stdout.readline()) > 0  # the port
    return pid


def gone(pid: int) -> bool:
    """Whether the process ends before the time is up."""
    limit = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < limit:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_it_prints_its_port_when_started_from_another_folder(engine: subprocess.Popen[str]) -> None:
    started(engine)


def test_it_ends_when_the_engine_is_killed(engine: subprocess.Popen[str]) -> None:
    pid = started(engine)
    engine.send_signal(signal.SIGKILL)
    assert gone(pid)


def test_it_ends_when_the_engine_asks_it_to(engine: subprocess.Popen[str]) -> None:
    pid = started(engine)
    os.kill(pid, signal.SIGTERM)
    assert engine.wait(WAIT_SECONDS) == 0


def test_without_an_environment_it_says_what_to_run(wrapper: Path, copied: Path) -> None:
    (copied / ".venv").unlink()
    done = subprocess.run([wrapper], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "run `make`" in done.stderr
