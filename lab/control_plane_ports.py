"""Loopback ports of a lab's control plane: chosen once, kept in its folder, checked before every start."""

from __future__ import annotations

import contextlib
import json
import socket
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab import control_plane_files as files
from lockstep.base import errors

__all__ = ["HOST", "choose", "ensure_free"]

HOST = "127.0.0.1"
FIRST, COUNT = 20_000, 12_000
"""Below the range from which the kernel takes ports for outgoing connections (32768 and up)."""


def choose(folder: Path, names: Sequence[str]) -> dict[str, int]:
    """The port of each program, from ``folder/ports.json``; chosen among free ones at the first call.

    The search starts at a place derived from the folder, so that two labs that start
    at the same time do not look at the same ports. Raises `errors.EngineError` when no port is free.
    """
    path = folder / "ports.json"
    known: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
    if set(names) <= set(known):
        return {name: known[name] for name in names}
    start = zlib.crc32(str(folder.resolve()).encode()) % COUNT
    candidates = (FIRST + (start + step) % COUNT for step in range(COUNT))
    free = (port for port in candidates if port not in known.values() and _free(port))
    for name in names:
        if name not in known:
            port = next(free, None)
            if port is None:
                raise errors.EngineError(f"no free port on {HOST} between {FIRST} and {FIRST + COUNT - 1}")
            known[name] = port
    files.write_private(path, json.dumps(known, indent=1) + "\n")
    return {name: known[name] for name in names}


def ensure_free(program: str, port: int) -> None:
    """Raise `errors.BusyError`, naming who holds it, when another program listens on the port."""
    if _free(port):
        return
    holder = _holder(port)
    raise errors.BusyError(
        f"port {HOST}:{port} of {program} is taken by {holder or 'another program'}",
        place="lab control plane",
        hint="end that program; or remove the lab with `lockstep lab down --wipe`, the next `lockstep lab up` "
        "chooses other ports",
    )


def _free(port: int) -> bool:
    with socket.socket() as probe:
        # As the programs themselves do: connections of the last run in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _holder(port: int) -> str | None:
    """``pid 123 (etcd)`` of the process that listens on the port; None when it cannot be seen."""
    inodes = _listening_inodes(port)
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        with contextlib.suppress(OSError):  # the process ended meanwhile, or belongs to somebody else
            if any(link.readlink().name in inodes for link in (process / "fd").iterdir()):
                return f"pid {process.name} ({(process / 'comm').read_text().strip()})"
    return None


def _listening_inodes(port: int) -> Mapping[str, None]:
    """``socket:[INODE]`` of the sockets that listen on the port, from /proc/net/tcp (state 0A)."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {f"socket:[{row[9]}]": None for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == port}
