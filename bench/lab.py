"""Fresh lab nodes: seconds until all answer over SSH, and their memory (sum of PSS), for 8, 16 and 64."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.rows import Row
from lab import base, liveness, nodes, testing

__all__ = ["rows"]

CASES = (8, 16, 64)
QUICK = (8,)


def rows(quick: bool = False) -> Iterator[Row]:
    """Wall time from "the disks do not exist" to "every sshd has sent its banner", base tree in the cache; no peer."""
    base.need_root("lab up")
    for count in QUICK if quick else CASES:
        with (
            tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder,
            testing.fresh_lab(Path(folder), nodes=count, start=False) as lab,
        ):
            started = time.monotonic()
            lab.up()
            wall = time.monotonic() - started
            yield Row(str(count), "wall", "s", wall)
            yield Row(str(count), "rss", "MB", _memory_mb(lab))


def _memory_mb(lab: testing.FreshLab) -> float:
    """Sum of proportional set sizes of everything that runs for the nodes: inside them, and what powers them."""
    sessions, spaces = set(), set()
    for name in lab.nodes:
        supervisor = liveness.marked(liveness.folder(lab.state, name) / "supervisor.pid")
        first = nodes.pid1(lab.state, name)
        if supervisor is not None and first is not None:
            sessions.add(supervisor[0])
            spaces.add(os.readlink(f"/proc/{first}/ns/pid"))
    total = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            session = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
            if session in sessions or os.readlink(entry / "ns" / "pid") in spaces:
                total += _pss_kb(entry)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended meanwhile, or is the machine's own and closed even to root
    return total / 1024


def _pss_kb(entry: Path) -> int:
    lines = (entry / "smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
