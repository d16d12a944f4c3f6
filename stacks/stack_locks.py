"""Locks of a local state folder whose engine is dead.

The engine writes its pid, user and host into a JSON file and removes it at the end; after a
SIGKILL the file stays and stops the next run. Only a lock of this host whose process is
gone is removed; any other is left to the engine, whose message names `pulumi cancel`.
"""

from __future__ import annotations

import json
import os
import socket
import time
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["clear_dead", "folder"]

PROJECT = "lockstep"

DEAD = ("Z", "X")
"""States of a process that has ended and was not waited for yet."""


def folder(backend: str, stack: str) -> Path | None:
    """Where the locks of ``stack`` lie; None for a backend that is not a local folder."""
    address = urlsplit(backend)
    if address.scheme != "file":
        return None
    root = Path(unquote(address.netloc + address.path)).expanduser()
    return root / ".pulumi" / "locks" / "organization" / PROJECT / stack


def clear_dead(backend: str, stack: str) -> tuple[str, ...]:
    """Remove the locks of dead engines of this host. Returns one line for each, for people."""
    place = folder(backend, stack)
    if place is None or not place.is_dir():
        return ()
    removed = []
    for path in sorted(place.glob("*.json")):
        try:
            lock = json.loads(path.read_text())
            pid, host = int(lock["pid"]), str(lock["hostname"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # being written, being removed, or not ours to understand
        if host == socket.gethostname() and not _is_engine(pid, str(lock.get("timestamp", ""))):
            path.unlink(missing_ok=True)
            removed.append(f"removed the stack lock of an engine that is dead (pid {pid})")
    return tuple(removed)


def _is_engine(pid: int, taken: str) -> bool:
    """Whether the process that took the lock lives: the pid is alive, is a pulumi, and began before the lock."""
    try:
        words = (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0")
        state, began = _state(pid)
    except OSError:
        return False
    if state in DEAD:
        return False
    # No words at all: it is just being started, and whether it is an engine cannot be told yet.
    if any(words) and not any(Path(os.fsdecode(word)).name == "pulumi" for word in words[:4]):
        return False
    try:
        when = datetime.fromisoformat(taken).timestamp()
    except ValueError:
        return True
    return began <= when + 1.0


def _state(pid: int) -> tuple[str, float]:
    """State letter, and Unix time at which a process began (proc(5), stat: field 22 is in ticks since boot)."""
    fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return fields[0], time.time() - uptime + int(fields[19]) / os.sysconf("SC_CLK_TCK")
