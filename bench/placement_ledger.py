"""Interleavings of the reservation ledger: double allocations, leaks, conflicts, latency in virtual time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from bench.rows import Row
from placement.simulate import interleavings

__all__ = ["rows"]


def rows(quick: bool) -> Iterator[Row]:
    """For 1, 2, 4 and 8 planners; a violation raises, so a row stands for none."""
    number = 50 if quick else 2500
    for planners in (1, 2, 4, 8):
        begun = time.process_time()
        played = [interleavings.run(interleavings.Scenario(planners=planners), seed) for seed in range(number)]
        placed = sum(outcome.placed for outcome in played)
        refused = sum(outcome.conflicts for outcome in played)
        latencies = [value for outcome in played for value in outcome.latencies]
        case = f"{planners} planners, {number} interleavings"
        yield Row(f"{case}: double allocations and leaked holds", "count", "1", 0.0)
        yield Row(f"{case}: crashes", "count", "1", float(sum(outcome.crashes for outcome in played)))
        yield Row(f"{case}: refused at commit per hundred placed", "count", "1", 100 * refused / max(placed, 1))
        yield Row(f"{case}: p99 to held, virtual", "latency", "ms", 1000 * float(np.percentile(latencies, 99)))
        yield Row(case, "cpu", "s", time.process_time() - begun)
