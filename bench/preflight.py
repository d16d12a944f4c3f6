"""Preflight inside a job: seconds from the last rank's report to the verdict on every rank.

Ranks are local processes, forked and not started anew: what is measured is the meeting, not Python's start.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.rows import Row
from bringup.injob import meeting, rendezvous
from bringup.injob.meeting import Answer
from bringup.injob.reports import Report
from lockstep.base import errors

__all__ = ["rows"]

SECONDS = 300.0


def rows(quick: bool) -> Iterator[Row]:
    """Every rank in step, and one odd, by folder and by address; no peer does this. Target at 512: 5 s."""
    for world in (64,) if quick else (64, 512):
        for way in ("folder", "address"):
            place = Path(tempfile.mkdtemp(prefix="lockstep-bench-"))
            try:
                yield Row(f"{world} ranks by {way}", "wall", "s", _measure(world, _way(way, place)))
            finally:
                shutil.rmtree(place)


def _way(way: str, place: Path) -> Callable[[Report], Answer]:
    if way == "folder":
        return lambda own: meeting.meet(own, place, seconds=SECONDS)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        at = ("127.0.0.1", int(one.getsockname()[1]))
    return lambda own: rendezvous.meet(own, at, seconds=SECONDS)


def _measure(world: int, meet: Callable[[Report], Answer]) -> float:
    """Seconds from the last rank's start until every rank has left with the verdict; the last one is the odd one."""
    ranks = [_rank(number, world, meet) for number in range(world - 1)]
    # All the others wait by then: their reports are written, and they look for the verdict.
    time.sleep(2 + world / 50)
    begun = time.perf_counter()
    ranks.append(_rank(world - 1, world, meet))
    codes = {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks}
    if codes != {int(errors.ExitCode.DRIFT)}:
        raise errors.EngineError(f"ranks left with {sorted(codes)}, not all with 1")
    return time.perf_counter() - begun


def _rank(number: int, world: int, meet: Callable[[Report], Answer]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = int(errors.ExitCode.INTERNAL)
    try:
        version = "2.23.4" if number == world - 1 else "2.27.5"
        values = {"nccl@library": version, **{f"variable NCCL_{name}": "1" for name in range(40)}}
        code = int(
            meet(Report(number, world, f"gpu-{number // 8:03}", "bench", secrets.token_hex(8), values)).exit_code
        )
    finally:
        os._exit(code)
