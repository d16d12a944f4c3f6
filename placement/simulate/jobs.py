"""Job lists over time: gangs arrive, wait, run and leave; nodes fail and come back. Virtual time only."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from placement import waiting
from placement.occupancy import Placed
from placement.planner import Decision, Planner
from placement.requests import Request
from placement.topology import WHOLE

__all__ = ["Job", "Outage", "Report", "replay"]


BLOCK = 16
"""Nodes that jobs of 128 GPUs and more want in one domain: what has fewer free is in pieces for them."""


LARGE = 16
"""Members of the block that leaves a remainder of two in a domain of 18."""


@dataclass(frozen=True, slots=True)
class Job:
    """A gang with its times in seconds."""

    request: Request
    arrives: float
    runs: float


@dataclass(frozen=True, slots=True)
class Outage:
    """A node that takes nothing new for a while; what runs there runs on."""

    node: int
    begins: float
    ends: float


@dataclass(slots=True)
class Report:
    """What a replay measured between warm-up and end."""

    occupancy: float = 0.0
    """% of the GPU time of nodes that were up."""
    finished: int = 0
    started: int = 0
    never_started: int = 0
    split_segments: int = 0
    """Segments of one gang that ended up in two domains: must be none."""
    queue_seconds: list[float] = field(default_factory=list)
    waits: dict[int, list[float]] = field(default_factory=dict)
    """Members of the gang → seconds that each waited; who never started, with the wait so far."""
    series: list[tuple[float, float]] = field(default_factory=list)
    """(seconds, % of GPUs in use) after every event."""
    loads: list[tuple[float, float, float]] = field(default_factory=list)
    """After every event, all in % of GPUs: asked for by what runs and waits, in use, and free but no part of a block:
    in domains with fewer than `BLOCK` free nodes."""
    remainder_filled: int = 0
    """Starts that went into a domain with less than 16 nodes free although others had 16."""
    remainder_used: float = 0.0
    """% of the GPU time of nodes that are up and beside a block of `LARGE`, in its domain, not part of one."""


def replay(planner: Planner, jobs: Sequence[Job], outages: Iterable[Outage] = (), *, warm_up: float = 0.0) -> Report:
    """Play ``jobs`` to the last arrival. Requests that the fleet can never serve raise as `Planner.plan` does."""
    return _Replay(planner, jobs, outages, warm_up).run()


class _Replay:
    def __init__(self, planner: Planner, jobs: Sequence[Job], outages: Iterable[Outage], warm_up: float) -> None:
        self._planner = planner
        self._view = planner.view
        self._warm_up = warm_up
        self._report = Report()
        self._line = waiting.Line(planner)
        self._jobs: dict[str, Job] = {}
        self._events: list[tuple[float, int, str, object]] = []
        self._serial = itertools.count()
        self._end = max((job.arrives for job in jobs), default=0.0)
        self._time = 0.0
        self._used_time = self._up_time = 0.0
        self._waiting = 0
        """GPUs that the waiting ones ask for."""
        self._used = np.zeros(len(self._view.topology.names), dtype=np.int64)
        """(n,) GPUs in use."""
        self._large = np.zeros_like(self._used)
        """(n,) members there that are part of a block of `LARGE`."""
        self._beside_time = self._filled_time = 0.0
        for job in jobs:
            self._push(job.arrives, "arrives", job)
        for outage in outages:
            self._push(outage.begins, "down", outage.node)
            self._push(outage.ends, "up", outage.node)

    def _push(self, at: float, kind: str, what: object) -> None:
        heapq.heappush(self._events, (at, next(self._serial), kind, what))

    def run(self) -> Report:
        """Events until the last arrival."""
        while self._events and self._events[0][0] <= self._end:
            at, _, kind, what = heapq.heappop(self._events)
            self._account(at)
            if kind == "arrives":
                assert isinstance(what, Job)  # noqa: S101 - pushed so
                self._jobs[what.request.name] = what
                decision = self._line.add(what.request, at)
                self._begins(at, decision, 0.0)
                self._waiting += what.request.gpus if decision is None else 0
                continue
            if kind == "ends":
                self._count(*self._planner.running[str(what)], -1)
                self._planner.release(str(what))
                self._report.finished += 1
            else:
                self._view.board.node_out[int(what)] = kind == "down"  # type: ignore[call-overload]
                self._view.board.version += 1
                if kind == "down":
                    continue
            for decision, waited in self._line.freed(at):
                self._begins(at, decision, waited)
                self._waiting -= decision.request.gpus
        self._report.never_started = len(self._line.waiting)
        for item in self._line.waiting:
            self._report.waits.setdefault(item.request.size, []).append(self._end - item.since)
        self._report.remainder_used = 100 * self._filled_time / self._beside_time if self._beside_time else 0.0
        self._report.occupancy = 100 * self._used_time / self._up_time if self._up_time else 0.0
        return self._report

    def _account(self, at: float) -> None:
        topology = self._view.topology
        alive = ~self._view.board.node_out
        used, up = int(self._used[alive].sum()), int(topology.gpus[alive].sum())
        since = max(self._time, self._warm_up)
        if at > since:
            self._used_time += (at - since) * used
            self._up_time += (at - since) * up
            has_block = np.bincount(topology.domain, weights=self._large) > 0
            beside = alive & (self._large == 0) & has_block[topology.domain]
            self._beside_time += (at - since) * int(topology.gpus[beside].sum())
            self._filled_time += (at - since) * int(self._used[beside].sum())
        total = int(topology.gpus.sum())
        self._report.series.append((at, 100 * used / total))
        self._report.loads.append(self._load(alive, 100 / total))
        self._time = at

    def _load(self, alive: NDArray[np.bool_], percent: float) -> tuple[float, float, float]:
        topology, state = self._view.topology, self._view.occupancy.state
        used = int(self._used.sum())
        empty = (self._used == 0) & alive
        free = np.bincount(topology.domain, weights=empty, minlength=len(topology.domains))
        loose = alive & (free < BLOCK)[topology.domain]
        return (used + self._waiting) * percent, used * percent, int(state.free[loose].sum()) / WHOLE * percent

    def _count(self, request: Request, members: Sequence[Placed], sign: int) -> None:
        large = waiting.unit(request) >= LARGE
        for item in members:
            self._used[item.node] += sign * len(item.gpus)
            self._large[item.node] += sign * large

    def _begins(self, at: float, decision: Decision | None, waited: float) -> None:
        if decision is None:
            return
        job = self._jobs.pop(decision.request.name)
        self._watch(job.request, decision.members)
        self._count(job.request, decision.members, 1)
        self._report.started += 1
        self._report.queue_seconds.append(waited)
        self._report.waits.setdefault(job.request.size, []).append(waited)
        self._push(at + job.runs, "ends", job.request.name)

    def _watch(self, request: Request, members: Sequence[Placed]) -> None:
        """Count what must not happen, and what is wanted."""
        topology, state = self._view.topology, self._view.occupancy.state
        domains = topology.domain[[item.node for item in members]]
        counts = np.bincount(domains)
        if request.segment > 1:
            self._report.split_segments += int((counts[counts > 0] % request.segment > 0).sum()) - (
                request.size % request.segment > 0
            )
        free_nodes = np.bincount(topology.domain, weights=state.whole == topology.gpus)
        if request.size < LARGE and (free_nodes >= LARGE).any() and free_nodes[domains[0]] < LARGE:
            self._report.remainder_filled += 1
