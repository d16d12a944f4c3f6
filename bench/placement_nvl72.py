"""Occupancy of NVL72 racks with segments and node loss, against the same work without any topology (B5).

Load 1.6: work of every size always waits, so what is measured is packing. Load 1.1: the line is short and
holds mostly the largest gangs, so their starts decide; shown beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from bench.rows import Row
from lockstep.base import errors
from placement import gates, planner
from placement.simulate import blocks, fleets, jobs, shapes

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
    """Per case, on the same jobs and outages: occupancy, what is left over beside large blocks, waits of the largest.

    Peers: a packer that does not see domains; Slurm's topology/block in the same line; and, as what the racks
    allow, a packer that may move all that runs at every event.
    """
    for domains, loss, load, fixed, hours in CASES[:1] if quick else CASES:
        case = f"{domains} domains, {100 * loss:g} % down, load {load}, segments {fixed or 'advised'}"
        work = _Work(domains, loss, load, fixed, hours)
        seen, slurm = work.played(planner.Planner), work.played(blocks.SlurmBlock)
        blind = work.played(planner.Planner, shapes.blind(work.jobs))
        for report in (seen, slurm):
            if report.split_segments:
                raise errors.EngineError(f"{report.split_segments} segments were split", place=f"{domains} domains")
        moved = blocks.moved_at_will(work.built, work.jobs, work.outages, warm_up=WARM_UP)
        yield Row(case, "alloc", "%", seen.occupancy, blind.occupancy, "topology-blind")
        yield Row(f"{case}, all moved at will", "alloc", "%", seen.occupancy, moved, "bound")
        yield Row(case, "alloc", "%", seen.occupancy, slurm.occupancy, "Slurm block")
        yield Row(f"{case}, remainder used", "alloc", "%", seen.remainder_used, slurm.remainder_used, "Slurm block")
        yield Row(f"{case}, split segments", "count", "1", seen.split_segments)
        waits = [float(np.median(report.waits.get(64, [0.0]))) / HOUR for report in (seen, blind)]
        yield Row(f"{case}, median wait of 64 nodes, hours", "count", "1", waits[0], waits[1], "topology-blind")


class _Work:
    """Jobs and outages of one case."""

    def __init__(self, domains: int, loss: float, load: float, fixed: int | None, hours: int) -> None:
        self.built = fleets.nvl72(domains)
        nodes = len(self.built.names)
        self.jobs = shapes.mix(nodes, load, hours * HOUR, seed=1, fixed=fixed)
        self.outages = shapes.outages(nodes, loss, hours * HOUR, seed=2)

    def played(self, make: Callable[[gates.View], planner.Planner], work: list[jobs.Job] | None = None) -> jobs.Report:
        """One arm."""
        planning = make(fleets.quiet_view(self.built))
        return jobs.replay(planning, self.jobs if work is None else work, self.outages, warm_up=WARM_UP)
