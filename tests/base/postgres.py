"""A PostgreSQL of a test's own: a fresh cluster on a Unix socket, that nobody else sees and that dies with the run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PASSWORD = "a-word-that-must-not-be-shown"


@dataclass(frozen=True)
class Server:
    """A running server; every database of it is empty when made."""

    folder: Path

    def url(self, database: str, password: str = PASSWORD) -> str:
        """What `LOCKSTEP_JOURNAL` would hold."""
        return f"postgresql://lockstep:{password}@/{database}?host={self.folder}"

    def fresh(self) -> str:
        """The URL of a database just made."""
        import psycopg

        name = f"journal_{uuid.uuid4().hex}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]  # a name of our own making
        return self.url(name)


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    if not found:
        pytest.skip("Debian's package postgresql is not installed (requirements/debian.txt)")
    return found[-1].parent


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """A server in ``folder`` with password logins only; it ends with the test run, however that ends.

    PostgreSQL refuses root: there it runs in a user namespace in which root's files belong to somebody else.
    """
    programs = _programs()
    somebody = ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.geteuid() == 0 else []
    word = folder / "word"
    word.touch(0o600)
    word.write_text(PASSWORD)
    data = str(folder / "data")
    initdb = [str(programs / "initdb"), "-D", data, "-U", "lockstep", "-A", "scram-sha-256", f"--pwfile={word}", "-N"]
    subprocess.run([*somebody, *initdb], check=True, capture_output=True, cwd=folder)
    server = [str(programs / "postgres"), "-D", data, "-k", str(folder), "-h", "", "-F"]
    with (folder / "log").open("wb") as log:
        # SIGINT is its fast shutdown.
        dies_with_us = ["setpriv", "--pdeathsig", "INT"]
        process = subprocess.Popen([*somebody, *dies_with_us, *server], stderr=log, stdout=log, cwd=folder)
    try:
        _wait(process, Server(folder))
        yield Server(folder)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def _wait(process: subprocess.Popen[bytes], server: Server) -> None:
    import psycopg

    for _ in range(300):
        if process.poll() is not None:
            raise RuntimeError(f"postgres ended: {(server.folder / 'log').read_text()}")
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(server.url("postgres")):
            return
        time.sleep(0.1)
    raise RuntimeError("postgres does not answer")
