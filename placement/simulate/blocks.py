"""What NVL72 racks allow: Slurm's block rule as a rival, and what a packer could hold that may move running work.

Both keep to what the requests say: a block stands in one domain, whole.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from placement import assigning, candidates, waiting
from placement.occupancy import Placed
from placement.planner import Decision, Planner
from placement.requests import Need, Request
from placement.simulate.jobs import Job, Outage
from placement.topology import Ints, Topology

__all__ = ["SlurmBlock", "moved_at_will"]


class SlurmBlock(Planner):
    """Gates as ours; domains by the rule of Slurm's topology/block, with one domain as base block.

    The smallest aggregated block (1, 2, 4 … adjacent base blocks) that holds the job in whole
    segments, the tightest of these; inside it best fit: the base block with the fewest free
    nodes that still holds a segment. For gangs of one kind of member.
    """

    def plan(self, request: Request, now: float, *, scores: bool = False) -> Decision:
        """See `Planner.plan`; there are no scores."""
        self._check(request)
        self.refresh(now)
        topology, (member,) = self.view.topology, request.members
        opened = self.passes(request)
        rooms = candidates.room(self.view, member, opened)
        free = np.bincount(topology.domain, weights=rooms, minlength=len(topology.domains)).astype(np.int64)
        found: list[Placed] = []
        for domain, count in _block_rule(free, request.size, waiting.unit(request)).items():
            part = dataclasses.replace(
                request, members=(dataclasses.replace(member, count=count),), need=Need.SAME_DOMAIN, segment=1
            )
            found += assigning.gang(self.view, part, opened & (topology.domain == domain)[:, None])
        return Decision(request, tuple(found), None)


def _block_rule(free: Ints, size: int, unit: int) -> dict[int, int]:
    """Domain → members; empty when the job fits nowhere. ``free`` (d,) members that each domain holds."""
    needed, width = -(-size // unit), 1
    while True:
        groups = [range(at, min(at + width, len(free))) for at in range(0, len(free), width)]
        fitting = [group for group in groups if sum(int(free[domain]) // unit for domain in group) >= needed]
        if fitting:
            group = min(fitting, key=lambda group: sum(int(free[domain]) for domain in group))
            break
        if width >= len(free) or size <= unit:
            return {}
        width *= 2
    left = {domain: int(free[domain]) for domain in group}
    chosen: dict[int, int] = {}
    for start in range(0, size, unit):
        domain = min((domain for domain in group if left[domain] >= unit), key=lambda domain: (left[domain], domain))
        left[domain] -= unit
        chosen[domain] = chosen.get(domain, 0) + min(unit, size - start)
    return chosen


def moved_at_will(topology: Topology, jobs: Sequence[Job], outages: Iterable[Outage], *, warm_up: float) -> float:
    """% occupancy of whole-node gangs if all that runs were packed anew, for nothing, at every event.

    Blocks stay whole and in one domain: what this loses against a topology-blind packer the
    shape of the racks costs, and what a real packer loses beyond it is that work cannot be moved.
    Nearly a bound: the order in which gangs start is a line's (largest block first), not the best one.
    Sizes and segments must be powers of two: then counting blocks is exact.
    """
    packer, used, up, at = _Packer(topology), 0.0, 0.0, 0.0
    end = max(job.arrives for job in jobs)
    serial = itertools.count()
    events: list[tuple[float, int, object]] = [(job.arrives, next(serial), job) for job in jobs]
    for outage in outages:
        events += [(outage.begins, next(serial), (outage.node, -1)), (outage.ends, next(serial), (outage.node, 1))]
    heapq.heapify(events)
    while events and events[0][0] <= end:
        now, _, what = heapq.heappop(events)
        alive = int(packer.alive.sum())
        lasted = now - max(at, warm_up)
        if lasted > 0:
            used += lasted * min(packer.running, alive)
            up += lasted * alive
        at = now
        if isinstance(what, tuple):
            packer.alive[topology.domain[what[0]]] += what[1]
        elif isinstance(what, Job):
            packer.waiting.append(what)
        else:
            assert isinstance(what, Request)  # noqa: S101 - pushed so
            packer.move(what, -1)
        for job in packer.start():
            heapq.heappush(events, (now + job.runs, next(serial), job.request))
    return 100 * used / up if up else 0.0


class _Packer:
    def __init__(self, topology: Topology) -> None:
        self.alive = np.bincount(topology.domain, minlength=len(topology.domains)).astype(np.int64)
        self.waiting: list[Job] = []
        self.running = 0
        self._blocks: Counter[int] = Counter()
        """Members that stand together → such blocks running."""

    def move(self, request: Request, sign: int) -> None:
        unit = waiting.unit(request)
        self._blocks[unit] += sign * (request.size // unit)
        self.running += sign * request.size

    def start(self) -> list[Job]:
        """All that fits beside what runs, largest block first."""
        begun: list[Job] = []
        refused: set[tuple[int, int]] = set()
        order = sorted(self.waiting, key=lambda job: (-waiting.unit(job.request), -job.request.size, job.arrives))
        for job in order:
            shape = (waiting.unit(job.request), job.request.size)
            if shape in refused:
                continue
            self.move(job.request, 1)
            if self._packs():
                begun.append(job)
            else:
                self.move(job.request, -1)
                refused.add(shape)
        gone = set(map(id, begun))
        self.waiting = [job for job in self.waiting if id(job) not in gone]
        return begun

    def _packs(self) -> bool:
        """Of powers of two a larger block takes the same number of places from every smaller size, wherever it is."""
        larger = 0
        for size in sorted(self._blocks, reverse=True):
            larger += size * self._blocks[size]
            if larger > int((self.alive // size).sum()) * size:
                return False
        return True
