"""Occupancy of NVL72 racks with segments and node loss, against the same work without any topology (B5).

Load 1.6: work of every size always waits, so what is measured is packing. Load 1.1: the line is short and
holds mostly the largest gangs, so their starts decide; shown beside it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bench.rows import Row
from lockstep.base import errors
from placement import planner
from placement.simulate import fleets, jobs, shapes

__all__ = ["rows"]

HOUR = 3600.0
WARM_UP = 12 * HOUR
CASES = (
    (40, 0.01, 1.6, None, 36),
    (40, 0.01, 1.1, None, 36),
    (40, 0.005, 1.6, None, 36),
    (40, 0.02, 1.6, None, 36),
    (40, 0.05, 1.6, None, 36),
    (40, 0.01, 1.6, 1, 36),
    (40, 0.01, 1.6, 4, 36),
    (40, 0.01, 1.6, 16, 36),
    (100, 0.005, 1.6, None, 24),
    (100, 0.05, 1.6, None, 24),
    (278, 0.01, 1.6, None, 18),
)
"""Domains, part of the nodes down, load, fixed segment (None: NVIDIA's advice by size), hours."""


def rows(quick: bool) -> Iterator[Row]:
    """Per case: ours beside the topology-blind packer, on the same jobs and outages; waits of the largest gangs."""
    for domains, loss, load, fixed, hours in CASES[:1] if quick else CASES:
        seen, blind = (_play(domains, loss, load, fixed, hours, aware) for aware in (True, False))
        if seen.split_segments:
            raise errors.EngineError(f"{seen.split_segments} segments were split", place=f"{domains} domains")
        case = f"{domains} domains, {100 * loss:g} % down, load {load}, segments {fixed or 'advised'}"
        yield Row(case, "alloc", "%", seen.occupancy, blind.occupancy, "topology-blind")
        yield Row(f"{case}, split segments", "count", "1", seen.split_segments)
        waits = [float(np.median(report.waits.get(64, [0.0]))) / HOUR for report in (seen, blind)]
        yield Row(f"{case}, median wait of 64 nodes, hours", "count", "1", waits[0], waits[1], "topology-blind")


def _play(domains: int, loss: float, load: float, fixed: int | None, hours: int, aware: bool) -> jobs.Report:
    built = fleets.nvl72(domains)
    nodes = len(built.names)
    work = shapes.mix(nodes, load, hours * HOUR, seed=1, fixed=fixed)
    outages = shapes.outages(nodes, loss, hours * HOUR, seed=2)
    planning = planner.Planner(fleets.quiet_view(built))
    return jobs.replay(planning, work if aware else shapes.blind(work), outages, warm_up=WARM_UP)
