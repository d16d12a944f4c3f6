"""A stack lock is removed only when its engine was on this host and is dead."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stacks import stack_locks


@pytest.fixture
def backend(tmp_path: Path) -> str:
    """A local state folder with a blank in its path."""
    return f"file://{tmp_path / 'a state'}"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A living process called pulumi."""
    program = tmp_path / "pulumi"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    with subprocess.Popen([program, "600"]) as process:
        yield process
        process.kill()


def lock(backend: str, pid: int, host: str | None = None, at: float | None = None) -> Path:
    """Write a lock as the engine writes it."""
    folder = stack_locks.folder(backend, "lab")
    assert folder is not None
    folder.mkdir(parents=True)
    when = datetime.fromtimestamp(time.time() if at is None else at, UTC).isoformat()
    path = folder / "013921c2.json"
    path.write_text(
        json.dumps({"pid": pid, "username": "root", "hostname": host or socket.gethostname(), "timestamp": when})
    )
    return path


def dead_pid() -> int:
    """The pid of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_the_lock_of_a_dead_engine_is_removed_and_said(backend: str) -> None:
    pid = dead_pid()
    path = lock(backend, pid)
    assert stack_locks.clear_dead(backend, "lab") == (f"removed the stack lock of an engine that is dead (pid {pid})",)
    assert not path.exists()


def test_the_lock_of_a_living_engine_stays(backend: str, engine: subprocess.Popen[bytes]) -> None:
    path = lock(backend, engine.pid, at=time.time() + 1)
    assert stack_locks.clear_dead(backend, "lab") == ()
    assert path.exists()


def test_a_pid_that_another_program_has_now_is_a_dead_engine(backend: str) -> None:
    path = lock(backend, os.getpid())
    stack_locks.clear_dead(backend, "lab")
    assert not path.exists()


def test_an_engine_that_began_after_the_lock_did_not_take_it(backend: str, engine: subprocess.Popen[bytes]) -> None:
    path = lock(backend, engine.pid, at=time.time() - 3600)
    stack_locks.clear_dead(backend, "lab")
    assert not path.exists()


def test_the_lock_of_another_host_stays(backend: str) -> None:
    path = lock(backend, dead_pid(), host="elsewhere")
    assert stack_locks.clear_dead(backend, "lab") == ()
    assert path.exists()


def test_the_lock_of_another_stack_stays(backend: str) -> None:
    path = lock(backend, dead_pid())
    stack_locks.clear_dead(backend, "other")
    assert path.exists()


def test_a_lock_that_is_not_understood_stays(backend: str) -> None:
    path = lock(backend, dead_pid())
    path.write_text("{")
    assert stack_locks.clear_dead(backend, "lab") == ()
    assert path.exists()


def test_a_backend_elsewhere_is_left_to_the_engine() -> None:
    assert stack_locks.clear_dead("s3://bucket", "lab") == ()
