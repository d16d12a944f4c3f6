"""Gangs that wait: in which order they are tried, and what is kept free until the oldest of them fits.

Two rules. What ends makes room for its like: gangs are tried by the size that must stand
together, largest first, so a block that a large gang leaves goes to a large gang and is
not crumbled by small ones. And for the gang that has waited longest beyond `PATIENCE` the
blocks that will be whole soonest are kept (gate ``kept``); what keeping may cost is bounded.
Run times are not known and not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from lockstep.base import errors
from placement import candidates, feasibility
from placement.planner import Decision, Planner
from placement.requests import Need, Request
from placement.topology import Ints

__all__ = ["Line", "unit"]

PATIENCE = 3600.0
"""Seconds that a gang waits before anything is kept for it: most get their like's room sooner."""
BUDGET = 0.005
"""Part of the fleet's time that kept nodes may stand idle, over the whole run."""
KEEPERS = 8
"""Waiting gangs for which blocks are kept at once."""
LOOK = 2000
"""Waiting gangs looked at per event; a shape that did not fit is not tried again in the event."""


def unit(request: Request) -> int:
    """Members that must stand in one domain together."""
    return request.size if request.need is Need.SAME_DOMAIN else min(request.segment, request.size)


def _shape(request: Request) -> tuple[object, ...]:
    """Everything that decides whether it fits: what did not fit once in an event is not tried again."""
    isolation = (request.tenant, request.exclusive, request.performance, request.security, request.compute_domain)
    return (request.members, request.need, request.segment, request.models, request.regions, *isolation)


@dataclass(slots=True)
class _Waiting:
    request: Request
    since: float
    serial: int


@dataclass(slots=True)
class Line:
    """The waiting gangs of one planner. Keeps `View.keepers` up to date."""

    planner: Planner
    patience: float = PATIENCE
    budget: float = BUDGET
    keepers: int = KEEPERS
    waiting: list[_Waiting] = field(default_factory=list)
    _serial: int = 0
    _begun: float | None = None
    _now: float = 0.0
    _denied: float = 0.0
    """Node seconds that stood idle for a gang while another one wanted them."""
    _where: dict[str, Ints | None] = field(default_factory=dict)
    """Running gang → its domains."""
    _firm: frozenset[str] = frozenset()
    """Gangs for which others are turned away; what is kept for the rest only steers."""

    def add(self, request: Request, now: float) -> Decision | None:
        """A gang arrives: its decision when it fits at once (committed), else None and it waits.

        Raises `errors.RefusedError` for a name that waits or runs already.
        """
        if request.name in self.planner.running or any(item.request.name == request.name for item in self.waiting):
            raise errors.RefusedError("a gang of this name waits or runs already", place=request.name)
        self._pass_time(now)
        decision = self._plan(request, now)
        if decision is None:
            self.waiting.append(_Waiting(request, now, self._serial))
            self._serial += 1
        return decision

    def freed(self, now: float) -> list[tuple[Decision, float]]:
        """Something ended or came back: what starts now (committed), each with the seconds it waited."""
        self._pass_time(now)
        self._keep(now)
        started: list[tuple[Decision, float]] = []
        tried: set[tuple[object, ...]] = set()
        rooms: dict[object, Ints] = {}
        for item in sorted(self.waiting, key=self._order)[:LOOK]:
            request = item.request
            mine = request.name if request.name in self.planner.view.keepers else ""
            shape = (_shape(request), mine)
            if shape in tried or self._hopeless(request, rooms):
                continue
            decision = self._plan(request, now)
            if decision is None:
                tried.add(shape)
                continue
            rooms.clear()
            self.waiting.remove(item)
            started.append((decision, now - item.since))
        return started

    def _hopeless(self, request: Request, rooms: dict[object, Ints]) -> bool:
        """Whether there is not enough room, whatever is kept: spares a whole decision."""
        view = self.planner.view
        smallest = request.least
        if smallest not in rooms:
            everywhere = np.ones((len(view.topology.names), 1), dtype=bool)
            room = candidates.room(view, smallest, everywhere)
            rooms[smallest] = np.bincount(view.topology.domain, weights=room, minlength=len(view.topology.domains))
        blocks = rooms[smallest] // unit(request)
        return bool(blocks.sum() * unit(request) < request.size)

    def _plan(self, request: Request, now: float) -> Decision | None:
        """Beside everything kept if that is possible, else only beside what is kept firmly."""
        planner, view = self.planner, self.planner.view
        decision = planner.plan(request, now)
        if not decision.placed and not self._firm.issuperset(view.keepers):
            kept = {name: np.flatnonzero(view.kept == index) for index, name in enumerate(view.keepers)}
            view.keep({name: nodes for name, nodes in kept.items() if name in self._firm})
            decision = planner.plan(request, now)
            view.keep(kept)
        if not decision.placed:
            return None
        planner.commit(decision)
        return decision

    def _order(self, item: _Waiting) -> tuple[bool, int, int, int]:
        """Whoever nodes are kept for firmly, then by what must stand together, by size, by arrival."""
        return (item.request.name not in self._firm, -unit(item.request), -item.request.size, item.serial)

    def _pass_time(self, now: float) -> None:
        if self._begun is None:
            self._begun = self._now = now
        view = self.planner.view
        if self._firm and now > self._now:
            mine = np.isin(view.kept, [index for index, name in enumerate(view.keepers) if name in self._firm])
            idle = int((mine & (view.occupancy.members == 0) & ~view.board.node_out).sum())
            wanted = sum(item.request.size for item in self.waiting if item.request.name not in view.keepers)
            self._denied += min(idle, wanted) * (now - self._now)
        self._now = now

    def _keep(self, now: float) -> None:
        """Choose anew for whom to keep what, oldest first; firmly for the oldest past its patience, within budget."""
        view = self.planner.view
        view.keep({})
        self._firm = frozenset()
        assert self._begun is not None  # noqa: S101 - time has passed
        wishes = sorted((item for item in self.waiting if unit(item.request) > 1), key=lambda item: item.serial)
        if not wishes or self.keepers == 0:
            return
        running = self._running()
        blocks: dict[str, Ints] = {}
        for item in wishes[: self.keepers]:
            chosen = _blocks(self.planner, item.request, running, blocks)
            if len(chosen):
                blocks[item.request.name] = chosen
        view.keep(blocks)
        spent = self._denied > self.budget * len(view.topology.names) * (now - self._begun)
        if not spent:
            self._firm = frozenset(
                item.request.name
                for item in wishes[: self.keepers]
                if item.request.name in blocks and now - item.since >= self.patience
            )

    def _running(self) -> Ints:
        """(d,) gangs that run in each domain."""
        planner, topology = self.planner, self.planner.view.topology
        where = {name: self._where.get(name) for name in planner.running}
        for name, domains in where.items():
            if domains is None:
                where[name] = np.unique(topology.domain[[item.node for item in planner.running[name][1]]])
        self._where = where
        return np.bincount(
            np.concatenate([np.zeros(0, dtype=np.int64), *where.values()]), minlength=len(topology.domains)
        )


def _blocks(planner: Planner, request: Request, running: Ints, taken: Mapping[str, Ints]) -> Ints:
    """Nodes of the domains that will hold the gang's blocks soonest: free ones, then those with fewest gangs to end."""
    view, topology = planner.view, planner.view.topology
    member = request.least
    usable = ~view.board.node_out & view.audits.in_step & view.fresh.nodes
    for nodes in taken.values():
        usable[nodes] = False
    holds = feasibility.members_per_node(request, topology, usable)
    free = np.minimum(candidates.room(view, member, planner.passes(request)), holds)
    size, needed = unit(request), -(-request.size // unit(request))
    could, can = (
        np.bincount(topology.domain, weights=counts, minlength=len(topology.domains)) >= size
        for counts in (holds, free)
    )
    order = np.lexsort((running, ~can))
    order = order[could[order]][:needed]
    if len(order) < needed:
        return np.zeros(0, dtype=np.int64)
    return np.concatenate([_block(topology.domain_nodes[domain], holds, free, size) for domain in order])


def _block(nodes: Ints, holds: Ints, free: Ints, size: int) -> Ints:
    """Nodes of one domain that hold ``size`` members, those that are free now first."""
    nodes = nodes[holds[nodes] > 0]
    nodes = nodes[np.lexsort((nodes, free[nodes] < holds[nodes]))]
    return nodes[: int(np.searchsorted(np.cumsum(holds[nodes]), size)) + 1]
