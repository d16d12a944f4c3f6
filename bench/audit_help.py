"""CPU of `lockstep audit --help`, median of five: what a first user waits for before anything happens."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import processes
from bench.rows import Row

__all__ = ["rows"]

RUNS = 5
LOCKSTEP = Path(sys.executable).with_name("lockstep")


def rows(quick: bool = False) -> Iterator[Row]:
    """One case; no peer does this work."""
    runs = [processes.measure([str(LOCKSTEP), "audit", "--help"]) for _ in range(RUNS)]
    yield Row("help", "cpu", "s", statistics.median(run.cpu_seconds for run in runs))
    yield Row("help", "wall", "s", statistics.median(run.wall_seconds for run in runs))
