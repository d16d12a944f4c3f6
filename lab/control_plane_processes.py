"""Programs that outlive the command that started them: started, recognised and ended by their own pid.

A pid alone proves nothing (it is reused, and a program left over from an earlier run
keeps its port while the new one ends at once), so a record holds the machine's boot id,
the pid with its start time, and a fingerprint of what was started.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lockstep.base import errors

__all__ = ["Record", "end", "last_lines", "lives", "read", "spawn", "start_time"]

SPAWN_SECONDS = 5.0
"""Until the shell of `spawn` wrote its record: two short reads and a write."""
END_SECONDS = 20.0
"""From TERM to KILL. etcd and the API server take a few seconds; what they hold is safe in etcd's log by then."""
LOG_BYTES = 10 * 1024 * 1024
"""A log larger than this is set aside once (`NAME.log.1`) at the next start."""

# The child writes its own record before it becomes the program: a parent killed
# right after the start leaves no program that the next run cannot find.
_RECORD_AND_EXEC = """
read -r boot </proc/sys/kernel/random/boot_id
read -r stat </proc/$$/stat
record=$1; printf '%s\\n%s\\n%s\\n' "$boot" "$stat" "$2" >"$record" || exit 125
shift 2
cd /
exec "$@"
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """Who was started, as the child itself wrote it."""

    pid: int
    started: int
    """Field 22 of /proc/PID/stat: clock ticks from the machine's boot to the start."""
    fingerprint: str
    """What was started, see `spawn`."""


def spawn(
    argv: Sequence[str | os.PathLike[str]], *, record: Path, log: Path, environ: Mapping[str, str], fingerprint: str
) -> Record:
    """Start a program in its own session, its output appended to ``log`` (0600), and return its record.

    ``fingerprint`` (one line) tells a later run whether the program still is what it would start.
    Raises `errors.EngineError` when the record does not appear.
    """
    record.unlink(missing_ok=True)
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_name(log.name + ".1"))
    words = [
        "/bin/sh",
        "-c",
        _RECORD_AND_EXEC,
        "lockstep-lab",
        str(record),
        fingerprint,
        *(os.fspath(word) for word in argv),
    ]
    pid = os.posix_spawn(
        "/bin/sh",
        words,
        dict(environ),
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )
    limit = time.monotonic() + SPAWN_SECONDS
    while time.monotonic() < limit:
        if (found := read(record)) is not None and found.pid == pid:
            return found
        if _reap(pid):
            break
        time.sleep(0.01)
    raise errors.EngineError(f"{argv[0]} did not start", place=str(log), hint=last_lines(log) or None)


def read(record: Path) -> Record | None:
    """The record, None when there is none, it is half written, or it is from before the machine's last boot."""
    try:
        lines = record.read_text().splitlines()
    except FileNotFoundError:
        return None
    if len(lines) < 3 or lines[0] != Path("/proc/sys/kernel/random/boot_id").read_text().strip():
        return None
    return Record(int(lines[1].split(" ", 1)[0]), int(_fields(lines[1])[19]), lines[2])


def lives(record: Record | None) -> bool:
    """Whether that very process runs; a zombie or a reused pid does not count."""
    return record is not None and start_time(record.pid) == record.started


def start_time(pid: int) -> int | None:
    """Start time of a running process in clock ticks since boot; None when it is gone or a zombie."""
    try:
        fields = _fields(Path(f"/proc/{pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def end(record: Record, *, seconds: float = END_SECONDS) -> None:
    """TERM, wait, KILL after ``seconds``, wait again; returns when the process is gone.

    Raises `errors.EngineError` when even KILL does not end it (a process in uninterruptible sleep).
    """
    try:
        handle = os.pidfd_open(record.pid)
    except ProcessLookupError:
        return
    try:
        # Checked after the handle is taken: from here on the pid cannot change its meaning.
        if not lives(record):
            return
        gone = select.poll()
        gone.register(handle, select.POLLIN)
        for sign, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, END_SECONDS)):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, sign)
            if gone.poll(patience * 1000):
                return
        raise errors.EngineError(f"process {record.pid} does not end, not even by KILL")
    finally:
        os.close(handle)
        _reap(record.pid)


def last_lines(log: Path, count: int = 8) -> str:
    """The end of a log, for messages."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - 8192))
            return "\n".join(stream.read().decode(errors="replace").splitlines()[-count:])
    except FileNotFoundError:
        return ""


def _fields(stat: str) -> list[str]:
    """/proc/PID/stat from field 3 (state) on; the name before it may hold blanks and parentheses."""
    return stat.rpartition(")")[2].split()


def _reap(pid: int) -> bool:
    """Collect the process if it is our own ended child; False when it runs on or is not ours."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False
