"""The decision: which exact GPUs a gang gets, and why every other candidate does not.

Every domain or rack is scored, none is sampled. Nothing here acts: the caller reserves
what was decided in the ledger, and `Planner.commit` only follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from lockstep.base import errors
from placement import advice, assigning, candidates, feasibility, gates
from placement.gates import Gatekeeper, Mask, View
from placement.headroom import AMPLE
from placement.occupancy import Placed
from placement.policies import base
from placement.requests import Member, Need, Request
from placement.tasks import Task
from placement.telemetry.samples import Samples
from placement.topology import Ints

__all__ = ["Candidate", "Decision", "Planner"]

TICK_SECONDS = 1.0
"""Device gates are asked anew this often at most: a thirtieth of the shortest freshness limit."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One domain, rack or the whole fleet as a place for the gang."""

    name: str
    room: int
    """Members that fit through all gates, in whole segments."""
    level: int
    """Headroom level that the gang would have; -1 when it does not fit."""
    cost: int
    """Fragmentation: blocks lost to others."""
    place: int
    """Rank among the candidates that fit, 1 is the best; 0 for those that do not."""


@dataclass(slots=True)
class _Scored:
    """The candidates of one job digest."""

    names: tuple[str, ...]
    scope: Ints
    """(n,) candidate that each node belongs to."""
    rooms: Ints
    levels: Ints
    costs: Ints
    order: Ints
    """Candidates that fit, best first; of a mixed gang those that hold each kind alone."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to one request."""

    request: Request
    members: tuple[Placed, ...]
    """In rank order, along the domain; empty when refused."""
    scored: _Scored | None = field(repr=False)
    digest: str = ""
    """Job digest of all nodes of the gang."""
    preempt: tuple[str, ...] = ()
    """Requests of lower priority whose end would make room; advice, never acted on."""

    def candidates(self) -> tuple[Candidate, ...]:
        """All candidates, best first, those that do not fit last; made on demand."""
        return () if self.scored is None else _table(self.scored)

    @property
    def placed(self) -> bool:
        """Whether the gang got a place."""
        return bool(self.members)


@dataclass(slots=True)
class Planner:
    """Plans on one view. ``policy`` packs single members that several nodes could take; None: tightest node."""

    view: View
    samples: Samples | None = None
    policy: base.Policy | None = None
    seed: int = 0
    running: dict[str, tuple[Request, tuple[Placed, ...]]] = field(default_factory=dict)
    """What `commit` placed and `release` has not ended; read it, change it by these two."""
    _priorities: Counter[int] = field(default_factory=Counter, init=False)
    """Priority → requests of it that run."""
    _keeper: Gatekeeper = field(init=False)
    _tie: Ints = field(init=False)
    _ticked: float = field(default=-np.inf, init=False)
    _feasible: set[object] = field(default_factory=set, init=False)
    """Shapes of requests that this fleet can serve when empty."""

    def __post_init__(self) -> None:
        self._priorities.update(request.priority for request, _ in self.running.values())
        self._keeper = Gatekeeper(self.view, self.samples)
        self._tie = np.random.default_rng(self.seed).permutation(len(self.view.topology.names))

    def refresh(self, now: float, headroom: np.ndarray[tuple[int, int], np.dtype[np.float64]] | None = None) -> None:
        """Ask the device gates anew if a tick has passed; take new headroom in."""
        if headroom is not None:
            self.view.set_headroom(headroom)
        if now - self._ticked >= TICK_SECONDS or now < self._ticked:
            self._ticked = now
            self._keeper.refresh(now)

    def passes(self, request: Request) -> Mask:
        """(n, g) devices open to the request by every gate; (n, 1) while nothing tells GPUs of a node apart.

        Closed GPUs need no mention: they have nothing free.
        """
        nodes, devices = self._gates(request)
        if nodes is None:
            nodes = np.ones(len(self.view.topology.names), dtype=bool)
        return nodes[:, None] if devices is None else nodes[:, None] & devices

    def _gates(self, request: Request) -> tuple[Mask | None, Mask | None]:
        """(n,) nodes and (n, g) devices open to the request; None where no gate shuts anything."""
        nodes, devices = self.view.open_nodes, None
        for gate in gates.REQUEST_GATES:
            found = gate.passes(self.view, request)
            if found is None:
                continue
            if found.ndim == 1:
                nodes = found if nodes is None else nodes & found
            else:
                devices = found if devices is None else devices & found
        return nodes, devices

    def plan(self, request: Request, now: float, *, scores: bool = False) -> Decision:
        """Decide. ``scores``: with every candidate's, also where the packing policy decides without them.

        Raises `errors.RefusedError` for what this fleet can never give, with the nearest request it can.
        """
        self._check(request)
        self.refresh(now)
        if not scores and self._policy_decides(request):
            nodes, devices = self._gates(request)
            if devices is None:
                members = self._by_policy(request, request.members[0], nodes)
                if members:
                    return Decision(request, members, None, self.view.audits.digest(members[0].node))
                # Policies are work-conserving: what they find no node for has none.
                return Decision(request, (), None, preempt=self._advice(request))
        opened = self.passes(request)
        audits = self.view.audits
        best: tuple[tuple[int, ...], Decision] | None = None
        refused: _Scored | None = None
        for digest in audits.usable or [-1]:
            of_digest = self._of_digest(opened, digest)
            scored = self._score(request, of_digest)
            if not len(scored.order):
                refused = scored if refused is None or scored.rooms.sum() > refused.rooms.sum() else refused
                continue
            top = scored.order[0]
            members = self._assign(request, of_digest, scored)
            if not members:
                refused = scored
                continue
            key = (-int(scored.levels[top]), int(scored.costs[top]), int(scored.rooms[top]), digest)
            if best is None or key < best[0]:
                name = audits.digests[digest] if digest >= 0 else ""
                best = (key, Decision(request, members, scored, name))
        if best is not None:
            return best[1]
        return Decision(request, (), refused, preempt=self._advice(request))

    def _check(self, request: Request) -> None:
        """`feasibility.check`, once per shape: the topology does not change."""
        shape = (request.members, request.models, request.regions, request.need, request.segment)
        nameless = request.exclusive and not request.tenant
        known = (*shape, request.performance, request.security, request.compute_domain, nameless)
        if known not in self._feasible:
            feasibility.check(request, self.view.topology)
            self._feasible.add(known)

    def _policy_decides(self, request: Request) -> bool:
        """A single member stands nowhere in particular: the packing policy chooses. MIG and roots it cannot tell."""
        member = request.members[0]
        plain = member.profile is None and not member.one_root and not self.view.occupancy.mig
        return self.policy is not None and request.size == 1 and plain

    def _of_digest(self, opened: Mask, digest: int) -> Mask:
        """One gang, one job digest: nodes of another lock are as if shut."""
        audits = self.view.audits
        return opened & (audits.job == digest)[:, None] if audits.mixed else opened

    def scopes(self, request: Request) -> tuple[tuple[str, ...], Ints]:
        """Names of the candidates, and (n,) the one that each node belongs to."""
        topology = self.view.topology
        if request.need is Need.SAME_DOMAIN:
            return topology.domains, topology.domain
        if request.need is Need.SAME_RACK:
            return topology.racks, topology.rack
        return ("fleet",), np.zeros(len(topology.names), dtype=np.int64)

    def _score(self, request: Request, opened: Mask) -> _Scored:
        """Every candidate: room through the gates in whole segments, headroom level, fragmentation."""
        view, topology = self.view, self.view.topology
        names, scope = self.scopes(request)
        domains = len(topology.domains)
        owner = scope if request.need is Need.SAME_DOMAIN else None

        def rooms_at(floor: int, member: Member) -> Ints:
            cool = floor and member.gpus
            usable = candidates.room(view, member, opened & (view.levels >= floor) if cool else opened)
            if assigning.one_per_node(request):
                usable = np.minimum(usable, 1)
            per_domain = np.bincount(topology.domain, weights=usable, minlength=domains).astype(np.int64)
            per_domain = per_domain // request.segment * request.segment
            if request.need is Need.SPREAD:
                per_domain = np.minimum(per_domain, 1)
            if owner is not None:
                return per_domain
            if len(names) == 1:
                return np.array([per_domain.sum()])
            return np.bincount(topology.domain_rack, weights=per_domain, minlength=len(names)).astype(np.int64)

        def enough(floor: int, rooms: Ints | None = None) -> Mask:
            """Of a mixed gang each kind alone: a bound. `_assign` finds out what holds them together."""
            found = np.ones(len(names), dtype=bool)
            for member in request.members:
                wanted = -(-member.count // request.segment) * request.segment
                found &= (rooms if rooms is not None else rooms_at(floor, member)) >= wanted
            return found

        rooms = rooms_at(0, request.least)
        floors = () if view.ample or not request.gpus else range(1, AMPLE + 1)
        levels = np.where(enough(0, rooms if len(request.members) == 1 else None), 0 if floors else AMPLE, -1)
        for floor in floors:
            levels[enough(floor)] = floor
        costs = candidates.fragmentation(rooms, request.size) if owner is not None else np.zeros_like(rooms)
        history = np.bincount(scope, weights=view.board.history, minlength=len(names)).astype(np.int64)
        tie = self._tie[: len(names)] if len(names) <= len(self._tie) else np.arange(len(names))
        order = np.lexsort((tie, history, rooms, costs, -levels))
        return _Scored(names, scope, rooms, levels, costs, order[levels[order] >= 0])

    def _assign(self, request: Request, opened: Mask, scored: _Scored) -> tuple[Placed, ...]:
        """Members onto nodes and GPUs of the best candidate that really holds them."""
        for candidate in scored.order:
            usable = (scored.scope == candidate)[:, None]
            # The policy is asked about nodes; where single devices are shut it would take those too.
            if opened.shape[1] == 1 and self._policy_decides(request):
                found = self._by_policy(request, request.members[0], opened[:, 0] & (scored.scope == candidate))
            else:
                found = self._gang(request, opened & usable, int(scored.levels[candidate]))
            if found:
                return found
        return ()

    def _gang(self, request: Request, opened: Mask, level: int) -> tuple[Placed, ...]:
        """On GPUs of that headroom level; a mixed gang on less where that does not hold all kinds together."""
        view = self.view
        for floor in (0,) if view.ample else range(level, -1, -1):
            found = assigning.gang(view, request, opened, view.levels >= floor if floor else None)
            if found:
                return found
        return ()

    def _by_policy(self, request: Request, member: Member, among: Mask | None) -> tuple[Placed, ...]:
        """One member where the packing policy wants it, among the nodes that gates leave, the best of them first."""
        assert self.policy is not None  # noqa: S101 - the caller has asked
        task = Task(member.cpu, member.memory, member.gpus, member.share if member.gpus else 0, request.models)
        if member.nics:
            # Policies know no NICs.
            enough = self.view.occupancy.state.nics >= member.nics
            among = enough if among is None else enough & among
        choice = None
        for preferred in self._preferences(member):
            choice = self.policy.choose(task, preferred if among is None else _both(among, preferred))
            if choice is not None:
                break
        if choice is None:
            return ()
        return (assigning.placed(request, member, choice.node, choice.gpus, 0),)

    def _preferences(self, member: Member) -> Iterator[Mask | None]:
        """(n,) nodes to try, in turn: those without a demoted link first, then by headroom; None: all.

        A node counts with the worst GPU that the policy might take there.
        """
        view = self.view
        if member.gpus and view.board.demoted:
            clean: Mask = ~np.any(view.board.link, axis=1)
            yield from (_both(clean, mask) for mask in self._by_headroom(member))
        yield from self._by_headroom(member)

    def _by_headroom(self, member: Member) -> Iterator[Mask | None]:
        if self.view.ample or not member.gpus:
            yield None
            return
        takes = self.view.occupancy.state.gpu >= member.share
        worst = np.where(takes, self.view.levels, AMPLE).min(axis=1)
        for floor in range(AMPLE, -1, -1):
            yield worst >= floor

    def _advice(self, request: Request) -> tuple[str, ...]:
        """The least work of lower priority whose end would make room; empty if even all of it would not."""
        if not any(priority < request.priority for priority in self._priorities):
            return ()
        return advice.to_end(self.running, self.view.occupancy, request, lambda: self._holds(request))

    def _holds(self, request: Request) -> bool:
        """Whether it would be placed now."""
        opened = self.passes(request)
        for digest in self.view.audits.usable:
            of_digest = self._of_digest(opened, digest)
            scored = self._score(request, of_digest)
            if len(scored.order) and (len(request.members) == 1 or self._assign(request, of_digest, scored)):
                return True
        return False

    def commit(self, decision: Decision) -> None:
        """Follow a decision that the ledger holds.

        Raises, with nothing changed, `errors.RefusedError` for a decision that was refused or
        whose name runs already, and ValueError for one whose devices are not free any more.
        """
        if not decision.placed:
            raise errors.RefusedError("nothing was placed", place=decision.request.name)
        if decision.request.name in self.running:
            raise errors.RefusedError("a request of this name runs already", place=decision.request.name)
        taken: list[Placed] = []
        try:
            for placed in decision.members:
                self.view.occupancy.take(placed)
                taken.append(placed)
        except ValueError:
            for placed in reversed(taken):
                self.view.occupancy.give(placed)
            raise
        self.running[decision.request.name] = (decision.request, decision.members)
        self._priorities[decision.request.priority] += 1

    def release(self, name: str) -> None:
        """The work has ended. Raises `errors.InputError` for a name that does not run."""
        if name not in self.running:
            raise errors.InputError(f"{name} does not run here", place=name)
        request, members = self.running.pop(name)
        for placed in members:
            self.view.occupancy.give(placed)
        self._priorities[request.priority] -= 1
        if not self._priorities[request.priority]:
            del self._priorities[request.priority]


def _both(one: Mask, other: Mask | None) -> Mask:
    return one if other is None else one & other


def _table(scored: _Scored) -> tuple[Candidate, ...]:
    place = {int(index): rank for rank, index in enumerate(scored.order, start=1)}
    rest = [index for index in range(len(scored.names)) if index not in place]
    return tuple(
        Candidate(
            scored.names[index],
            int(scored.rooms[index]),
            int(scored.levels[index]),
            int(scored.costs[index]),
            place.get(index, 0),
        )
        for index in [*map(int, scored.order), *rest]
    )
