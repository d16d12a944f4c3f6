"""End every process below this one, also those that lead sessions of their own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Final

__all__ = ["adopt_orphans", "kill_all"]

PR_SET_CHILD_SUBREAPER: Final = 36
"""linux/prctl.h"""

SECONDS: Final = 5.0
"""A killed process is gone in milliseconds unless it sleeps in the kernel; then nobody can help."""


def adopt_orphans() -> None:
    """From now on, children of children that lose their parent become ours, so that `kill_all` finds them."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_all() -> None:
    """KILL the whole tree below the caller, until nothing is left or `SECONDS` are over."""
    deadline = time.monotonic() + SECONDS
    while (pids := _below(os.getpid())) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        time.sleep(0.02)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _below(root: int) -> list[int]:
    """Living descendants; zombies that others must reap do not count."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found
