"""A command measured: CPU of it and all it waited for, wall time, largest memory of its session."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.base import errors

__all__ = ["Measured", "measure"]

SAMPLE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run took."""

    cpu_seconds: float
    """User and system, start-up included; of every descendant that was waited for."""
    wall_seconds: float
    rss_mb: float
    """Largest sum of proportional set sizes over the command's session, ten samples a second."""
    status: int
    output: bytes
    errors: bytes = b""


def measure(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    stdin: Path | None = None,
    allowed: Sequence[int] = (0,),
) -> Measured:
    """Run it in a session of its own. Raises `errors.EngineError` when it ends with a status not ``allowed``."""
    with (stdin or Path(os.devnull)).open("rb") as given:
        started = time.monotonic()
        process = subprocess.Popen(
            list(command),
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env) if env is not None else None,
            start_new_session=True,
        )
        said: list[bytes] = []
        # Drained while it runs, or a full pipe would hold it.
        assert process.stderr is not None
        assert process.stdout is not None
        reader = threading.Thread(target=lambda stream=process.stderr: said.append(stream.read()))
        reader.start()
        memory = _Memory(process.pid)
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        reader.join()
        largest = memory.stop()
    if process.returncode not in allowed:
        last = b"".join(said).decode(errors="replace").strip().splitlines()[-3:]
        raise errors.EngineError(f"{command[0]} ended with {process.returncode}: {' / '.join(last)}")
    return Measured(usage.ru_utime + usage.ru_stime, wall, largest / 1024, process.returncode, output, b"".join(said))


class _Memory:
    """Samples the session's memory in a thread."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._largest_kb = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """Largest sum in kB."""
        self._stop.set()
        self._thread.join()
        return self._largest_kb

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self._largest_kb = max(self._largest_kb, sum(map(_pss_kb, self._members())))

    def _members(self) -> list[str]:
        found = []
        for name in os.listdir("/proc"):
            if name.isdecimal():
                try:
                    fields = Path("/proc", name, "stat").read_text().rpartition(") ")[2].split()
                except OSError:
                    continue
                if fields[3] == str(self._session):
                    found.append(name)
        return found


def _pss_kb(pid: str) -> float:
    try:
        text = Path("/proc", pid, "smaps_rollup").read_text()
    except OSError:
        return 0.0
    return next((float(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0.0)
