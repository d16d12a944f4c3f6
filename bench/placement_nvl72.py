"""Occupancy of NVL72 racks with segments and node loss, against the same work without any topology."""

from __future__ import annotations

from collections.abc import Iterator

from bench.rows import Row
from lockstep.base import errors
from placement import planner
from placement.simulate import fleets, jobs, shapes

__all__ = ["rows"]

HOUR = 3600.0


def rows(quick: bool) -> Iterator[Row]:
    """Per fleet size and node loss: ours beside the topology-blind packer, on the same jobs and outages."""
    cases = [(40, 0.01)] if quick else [(40, 0.005), (40, 0.05), (100, 0.01), (278, 0.01)]
    hours = 24 if quick else 72
    for domains, loss in cases:
        seen, blind = (_play(domains, loss, hours, aware) for aware in (True, False))
        if seen.split_segments:
            raise errors.EngineError(f"{seen.split_segments} segments were split", place=f"{domains} domains")
        case = f"{domains} domains, {100 * loss:g} % down"
        yield Row(case, "alloc", "%", seen.occupancy, blind.occupancy, "topology-blind")
        yield Row(f"{case}, split segments", "count", "1", seen.split_segments)
        yield Row(f"{case}, starts that filled a remainder", "count", "1", seen.remainder_filled)


def _play(domains: int, loss: float, hours: int, aware: bool) -> jobs.Report:
    built = fleets.nvl72(domains)
    nodes = len(built.names)
    work = shapes.mix(nodes, 1.1, hours * HOUR, seed=1)
    outages = shapes.outages(nodes, loss, hours * HOUR, seed=2)
    planning = planner.Planner(fleets.quiet_view(built))
    return jobs.replay(planning, work if aware else shapes.blind(work), outages, warm_up=12 * HOUR)
