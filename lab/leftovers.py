"""Processes of a lab whose state folder is gone: found by their arguments, since no pid file is left to ask.

A test run's temporary folder may be cleared by somebody else while its lab runs. What the lab starts carries the
path of its state folder in its arguments, in forms that nothing else has; only these forms, of this user and in this
pid namespace's sight, are ended, each through a handle taken before its arguments are read again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import control_plane_processes as processes
from lab import control_plane_programs as programs

__all__ = ["Leftover", "end", "find", "role"]

ROUNDS = 10
"""A supervisor that was about to boot its node leaves an `unshare` that only the next look sees."""
PATIENCE_SECONDS = 5.0
"""From TERM to KILL for a control plane that has no folder to write to any more."""
_ORDER = ("watcher", "kwok", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd", "starter")


@dataclass(frozen=True, slots=True)
class Leftover:
    """One running process of the lab."""

    pid: int
    started: int
    """Clock ticks since boot."""
    role: str
    """``supervisor``, ``boot`` (unshare or init), ``starter``, or a program of the control plane."""


def role(arguments: Sequence[str], state: Path) -> str | None:
    """What a process with these arguments is in the lab whose state folder is ``state``; None: none of its own."""
    if not arguments:
        return None
    program = os.path.basename(arguments[0])
    home = f"{state}/nodes/"
    if program == "sh" and len(arguments) == 4 and arguments[1].endswith("/supervisor"):
        return "supervisor" if arguments[2].startswith(home) else None
    if program in ("unshare", "sh") and len(arguments) >= 4 and arguments[-3].endswith("/init"):
        return "boot" if arguments[-2].startswith(home) else None
    plane = f"{state}/control-plane/"
    if arguments[1:2] == ["-c"] and arguments[3:4] == ["lockstep-lab"]:
        return "starter" if arguments[4:5] and arguments[4].startswith(plane) else None
    if "lab.control_plane_watch" in arguments[:4]:
        return "watcher" if str(state) in arguments else None
    if program in programs.PORTS and any(word.partition("=")[2].startswith(plane) for word in arguments):
        return program
    return None


def find(state: Path) -> tuple[Leftover, ...]:
    """Every process of the lab that runs now, supervisors first: they would boot their nodes again."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal() and (one := _look(int(name), state)) is not None:
            found.append(one)
    order = ("supervisor", "boot", *_ORDER)
    return tuple(sorted(found, key=lambda one: order.index(one.role)))


def end(state: Path, progress: Callable[[str], None]) -> int:
    """End every process of the lab and return how many there were. Raises `errors.EngineError` for one that stays."""
    count = 0
    for _ in range(ROUNDS):
        running = find(state)
        if not running:
            break
        for one in running:
            if _look(one.pid, state) != one:
                continue  # ended meanwhile, with its supervisor or its unshare
            progress(f"ending {one.role} (pid {one.pid}) of {state.name}, which no pid file names")
            # unshare blocks TERM; its end, however it comes, takes pid 1 of the node and all below with it.
            seconds = 0.0 if one.role in ("supervisor", "boot") else PATIENCE_SECONDS
            processes.end(processes.Record(one.pid, one.started, ""), seconds=seconds)
            count += 1
    return count


def _look(pid: int, state: Path) -> Leftover | None:
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid() or pid == os.getpid():
            return None
        started = processes.start_time(pid)
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return None
    found = role(arguments, state)
    return Leftover(pid, started, found) if found is not None and started is not None else None
