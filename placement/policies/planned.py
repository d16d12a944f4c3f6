"""Our policy: nodes have planned contents, work takes the slots made for it, FGD decides the rest.

Knows the frequencies of kinds (or learns them from arrivals) and the state; never the
future, never a trace. Work-conserving: what fits somewhere is placed, if need be over
reservations. A decision never makes a plan: `due` says what one would be made of, `adopt`
takes it (see `beside`). Without a plan it is FGD.

One plan per frequencies: plans made anew at 70 to 95 % of the capacity were measured and
gain nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from placement.plans import jobs, making
from placement.plans.kinds import Content, Kinds, Room
from placement.policies import base, expecting, fgd
from placement.policies.slots import Slot, Slots
from placement.state import State
from placement.tasks import Task, Workload
from placement.topology import WHOLE, Ints

__all__ = ["Planned"]

FIRST_ROUNDS, LATER_ROUNDS = 150, 20
"""Rounds of column generation for the first plan and for those that start from an older one's slots."""
LEARN_PART, LEARN_FACTOR = 0.05, 2.0
"""When learning: arrivals before the first plan, as a part of what the fleet holds, and their growth between plans."""
TURNOVER, LEAST_LEFT = 0.3, 20
"""Pieces of work that have left, per node and at least, at which the plan is first held against lifetimes seen; then
at each turnover."""
ROOM = 0.1
"""When learning: part of the fleet that must be free for a better plan to be worth its making."""
MISFIT, MISFIT_AFTER = 0.08, 200
"""A plan is dropped when more than this part of the decisions since had to break it (a plan that fits: 3 to 4 %),
asked from this many decisions on: the mix is not what it was made for, and FGD is the better guess."""
MEMORY = 4
"""When learning: arrivals remembered, in fleets' worth; at twice as many all counts are halved."""
CANDIDATES = 300
"""Nodes examined in full when a reservation must be broken."""


@dataclass(slots=True)
class Counts:
    """How decisions came about."""

    slot: int = 0
    """Took a slot of its own kind."""
    like: int = 0
    """Took the slot of a like kind."""
    free: int = 0
    """FGD chose among unreserved room."""
    broken: int = 0
    """Reservations were given up for it."""
    refused: int = 0
    dropped: int = 0
    """Plans given up because work did not come as planned."""
    seconds: float = 0.0
    """CPU seconds of making plans."""
    plans: list[float] = field(default_factory=list)
    """Part of capacity in use at each plan."""


class Planned:
    """See `base.Policy`. ``workload`` None: learn the frequencies."""

    def __init__(
        self,
        state: State,
        workload: Workload | None,
        rank: Ints,
        *,
        lives: Mapping[Task, float] | None = None,
        seed: int = 0,
    ) -> None:
        self._state = state
        self._rank = rank
        self._seed = seed
        self._expected = expecting.Expectation(workload, lives)
        self._due = 0.0 if workload is not None else math.inf
        """Arrivals at which a plan is due."""
        self._next_fit = 1
        self._adopted = self._broken = 0
        """Arrivals when the plan in use was taken, and how often it was broken since."""
        self._left = 0
        self._next_left = max(LEAST_LEFT, math.ceil(TURNOVER * len(rank)))
        self.counts = Counts()
        self._mix: Workload | None = None
        """What the last plan was made for."""
        # Before the first arrival there is nothing to know: any kind will do, the first arrival replaces it.
        self._fgd = fgd.Fgd(state, workload or Workload({Task(0, 0, 0, 0): 1.0}), rank)
        self._kinds = Kinds([], state.topology.models)
        self._slots = Slots(state, self._kinds)
        self._prices: list[float] = []
        self._likes: dict[int, list[int]] = {}

    def choose(self, task: Task, among: NDArray[np.bool_] | None = None) -> base.Choice | None:
        """See `base.Policy`."""
        self._learn(task)
        choice = self._decide(task, among)
        if choice is None:
            self.counts.refused += 1
        else:
            self._expected.place(task)
        return choice

    def left(self, task: Task, choice: base.Choice) -> None:
        """Work has ended and its room was given back: the slot opens again if it still fits."""
        self._expected.leave(task)
        self._left += 1
        if self._left >= self._next_left:
            self._next_left = self._left + sum(self._expected.present.values())
            if self._mix is not None and self._expected.drifted(self._mix):
                self._due = self._expected.arrived
        kind = self._kinds.index.get(task)
        if kind is not None and not self._slots.conflicts(
            choice.node, (task.cpu, task.memory, task.share), choice.gpus, self._prices
        ):
            self._slots.add(choice.node, Slot(kind, choice.gpus))

    def inform(self, workload: Workload, lives: Mapping[Task, float] | None = None) -> None:
        """Other frequencies from now on: FGD has them at once, a plan is due."""
        present = self._expected.present
        self._expected = expecting.Expectation(workload, lives)
        self._expected.present = present
        self._due = 0.0
        self._fgd = fgd.Fgd(self._state, workload, self._rank)

    def planned_for(self) -> Workload | None:
        """The mix of kinds that the last plan was for."""
        return self._mix

    def _learn(self, task: Task) -> None:
        """Count an arrival; FGD gets the frequencies seen whenever their number has doubled."""
        expected = self._expected
        if expected.arrive(task):
            self._due = self._next_fit = expected.arrived
        if not expected.learning or expected.arrived < self._next_fit:
            return
        workload = expected.frequencies()
        assert workload is not None  # noqa: S101 - something has arrived
        self._fgd = fgd.Fgd(self._state, workload, self._rank)
        if workload.mean_demand() > 0:
            holds = self._state.topology.capacity / workload.mean_demand()
            if not self.counts.plans and self._due > expected.arrived:
                self._due = max(LEARN_PART * holds, 1.0)
            expected.forget(2 * MEMORY * holds)
        self._next_fit = 2 * expected.arrived

    def due(self) -> jobs.Job | None:
        """What the plan that is due now is to be made of; asked again it is not due any more."""
        expected = self._expected
        if expected.arrived < self._due:
            return None
        frequencies, mix = expected.frequencies(), expected.mix()
        if frequencies is None or mix is None or mix.mean_demand() <= 0:
            self._due = math.inf
            return None
        topology = self._state.topology
        holds = topology.capacity / mix.mean_demand()
        self._due = math.inf
        if expected.learning:
            self._fgd = fgd.Fgd(self._state, frequencies, self._rank)
            self._due = min(LEARN_FACTOR * expected.arrived, expected.arrived + holds)
            if expected.arrived > 1 and float(self._state.free.sum()) < ROOM * topology.capacity:
                return None
        self._mix = mix
        fresh = Kinds(tuple(mix.frequencies), topology.models)
        need = np.array(list(mix.frequencies.values())) * holds
        present = np.array([expected.present[task] for task in fresh.tasks], dtype=float)
        groups = self._groups()
        return jobs.Job(
            fresh,
            tuple(groups),
            tuple(map(tuple, groups.values())),
            np.maximum(need - present, 0.0),
            Room(0, int(topology.cpu.max()), int(topology.memory.max()), ()),
            len(topology.models),
            tuple(self._known(groups, fresh)),
            LATER_ROUNDS if self.counts.plans else FIRST_ROUNDS,
            self._seed,
        )

    def adopt(self, job: jobs.Job, plan: making.Plan) -> None:
        """Open the slots of ``plan``; nodes that have changed since ``job`` was taken get none."""
        self._kinds, self._slots = job.kinds, Slots(self._state, job.kinds)
        self._likes = {}
        self._adopted, self._broken = self._expected.arrived, 0
        self._prices = plan.prices.tolist()
        shuffle = np.random.default_rng((self._seed, len(self.counts.plans)))
        budget = job.need.tolist()
        for room, nodes, chosen in zip(job.rooms, job.members, plan.chosen, strict=True):
            members = list(nodes)
            shuffle.shuffle(members)
            for node, column in zip(members, chosen, strict=False):
                if self._room(node) == room:
                    self._slots.install(node, plan.contents[column], budget)
        self.counts.plans.append(1.0 - float(self._state.free.sum()) / max(self._state.topology.capacity, 1))

    def _groups(self) -> dict[Room, list[int]]:
        """Nodes of equal room."""
        groups: dict[Room, list[int]] = {}
        for node in range(len(self._rank)):
            groups.setdefault(self._room(node), []).append(node)
        return groups

    def _room(self, node: int) -> Room:
        state, topology = self._state, self._state.topology
        free = tuple(sorted(state.gpu[node, : topology.gpus[node]].tolist(), reverse=True))
        return Room(int(topology.model[node]), int(state.cpu[node]), int(state.memory[node]), free)

    def _known(self, groups: dict[Room, list[int]], fresh: Kinds) -> list[Content]:
        """The open slots of the old plan, in the numbering of the new kinds."""
        if not len(self._kinds):
            return []
        renumber = [fresh.index.get(task) for task in self._kinds.tasks]
        found = []
        for group, nodes in enumerate(groups.values()):
            for node in nodes:
                if self._state.closed[node].any():
                    continue  # its slots are not what is free there
                content = self._slots.content(node, group)
                if any(renumber[kind] is None for kind in content.counts()):
                    continue
                bins = tuple(
                    item._replace(kinds=tuple(renumber[kind] or 0 for kind in item.kinds)) for item in content.bins
                )
                found.append(Content(group, bins, tuple(renumber[kind] or 0 for kind in content.cpu_only)))
        return found

    def _decide(self, task: Task, among: NDArray[np.bool_] | None) -> base.Choice | None:
        kind = self._kinds.index.get(task)
        if not len(self._kinds):
            return self._fgd.choose(task, among)
        if kind is not None and (choice := self._own(kind, among)) is not None:
            self.counts.slot += 1
            return choice
        keys = self._fgd.scores.keys(task).keys
        fits = keys != base.OUT
        if among is not None:
            fits &= among
        if not fits.any():
            return None
        if (choice := self._unreserved(task, keys, fits)) is not None:
            self.counts.free += 1
            return choice
        if kind is not None and (choice := self._like(kind, among)) is not None:
            self.counts.like += 1
            return choice
        self.counts.broken += 1
        self._broken += 1
        choice = self._break(task, keys, np.flatnonzero(fits))
        since = self._expected.arrived - self._adopted
        if since >= MISFIT_AFTER and self._broken > MISFIT * since:
            self._kinds, self._slots = Kinds([], self._state.topology.models), Slots(self._state, Kinds([], ()))
            self.counts.dropped += 1
        return choice

    def _own(self, kind: int, allowed: NDArray[np.bool_] | None = None) -> base.Choice | None:
        """A slot of ``kind``, on the fullest node that has one."""
        open_slots = self._slots.number[kind] > 0
        nodes = np.flatnonzero(open_slots if allowed is None else open_slots & allowed)
        if not len(nodes):
            return None
        state = self._state
        if state.closed_any:
            nodes = nodes[self._usable(kind, nodes)]
            if not len(nodes):
                return None
        # Free GPU share first, free CPU second, the run's node order last; all in one number.
        fullness = (state.free[nodes] * 10_000_000 + state.cpu[nodes]) * len(self._rank) + self._rank[nodes]
        node = int(nodes[fullness.argmin()])
        slot = self._slots.of_kind(node, kind)
        self._slots.remove(node, slot)
        return base.Choice(node, slot.gpus)

    def _usable(self, kind: int, nodes: Ints) -> NDArray[np.bool_]:
        """(m,) nodes whose slot of ``kind`` is on GPUs that no gate has closed."""
        state, share = self._state, self._kinds.share[kind]
        slots = [self._slots.of_kind(node, kind) for node in nodes.tolist()]
        return np.array(
            [all(state.gpu[node, gpu] >= share for gpu in slot.gpus) for node, slot in zip(nodes, slots, strict=True)],
            dtype=bool,
        )

    def _like(self, kind: int, among: NDArray[np.bool_] | None) -> base.Choice | None:
        """The slot of a kind with the same GPUs and no less of the rest, least excess first."""
        kinds = self._kinds
        likes = self._likes.get(kind)
        if likes is None:
            bigger = (kinds.gpus == kinds.gpus[kind]) & (kinds.share == kinds.share[kind])
            bigger &= (kinds.cpu >= kinds.cpu[kind]) & (kinds.memory >= kinds.memory[kind])
            bigger[kind] = False
            found = np.flatnonzero(bigger)
            largest = self._state.topology
            excess = kinds.cpu[found] / largest.cpu.max() + kinds.memory[found] / max(int(largest.memory.max()), 1)
            likes = self._likes[kind] = found[np.argsort(excess, kind="stable")].tolist()
        task = kinds.tasks[kind]
        allowed = task.allowed(self._state.topology) if task.models else among
        if task.models and among is not None and allowed is not None:
            allowed = allowed & among
        for like in likes:
            if (choice := self._own(like, allowed)) is not None:
                return choice
        return None

    def _unreserved(self, task: Task, keys: Ints, fits: NDArray[np.bool_]) -> base.Choice | None:
        """FGD's best node among those whose unreserved room holds the task."""
        state, slots = self._state, self._slots
        fits = fits & (state.cpu - slots.cpu >= task.cpu) & (state.memory - slots.memory >= task.memory)
        free = state.gpu - slots.gpu
        if task.share == WHOLE:
            fits &= (free == WHOLE).sum(axis=1) >= task.gpus
        elif task.gpus:
            fits &= free.max(axis=1) >= task.share
        nodes = np.flatnonzero(fits)
        if not len(nodes):
            return None
        node = int(nodes[keys[nodes].argmax()])
        if task.gpus == 0:
            return base.Choice(node, ())
        if task.share == WHOLE:
            return base.Choice(node, tuple(np.flatnonzero(free[node] == WHOLE)[: task.gpus].tolist()))
        return base.Choice(node, (int(base.tightest_gpu(free[node][None], task.share)[0]),))

    def _break(self, task: Task, keys: Ints, nodes: Ints) -> base.Choice:
        """Where the slots to be given up are worth least; FGD's order among equals."""
        state, slots, prices = self._state, self._slots, self._prices
        nodes = self._cheapest(task, nodes)
        # Plain numbers: hundreds of nodes are examined one by one.
        cpu = (state.cpu[nodes] - slots.cpu[nodes] - task.cpu).tolist()
        memory = (state.memory[nodes] - slots.memory[nodes] - task.memory).tolist()
        over = (slots.gpu[nodes] + task.share - state.gpu[nodes]).tolist()
        orders, rows = (-keys[nodes]).tolist(), state.gpu[nodes].tolist()
        best: tuple[float, int] = (math.inf, 0)
        found: tuple[int, tuple[int, ...], list[Slot]] = (-1, (), [])
        for index, node in enumerate(nodes.tolist()):
            by_price = sorted(slots.on[node], key=lambda slot: prices[slot.kind])
            for gpus in self._options(task, rows[index], slots.on[node]):
                missing = {gpu: over[index][gpu] for gpu in gpus}
                given = slots.given_up(by_price, cpu[index], memory[index], missing, prices, best[0])
                if given is None:
                    continue
                key = (sum(prices[slot.kind] for slot in given), orders[index])
                if key < best:
                    best, found = key, (node, gpus, given)
        node, gpus, given = found
        assert node >= 0  # noqa: S101 - every node given fits the task
        for slot in given:
            slots.remove(node, slot)
        return base.Choice(node, gpus)

    def _cheapest(self, task: Task, nodes: Ints) -> Ints:
        """The nodes where least is reserved beyond what is left over: only these are examined in full."""
        if len(nodes) <= CANDIDATES:
            return nodes
        state, slots, topology = self._state, self._slots, self._state.topology
        missing = np.maximum(task.cpu - (state.cpu[nodes] - slots.cpu[nodes]), 0) / topology.cpu.max()
        missing += np.maximum(task.memory - (state.memory[nodes] - slots.memory[nodes]), 0) / topology.memory.max()
        if task.gpus:
            gpu = state.gpu[nodes]
            over = np.where(gpu >= task.share, np.maximum(slots.gpu[nodes] + task.share - gpu, 0), 2 * WHOLE)
            missing += np.sort(over, axis=1)[:, : task.gpus].sum(axis=1) / WHOLE
        picked: Ints = nodes[np.argsort(missing, kind="stable")[:CANDIDATES]]
        return picked

    def _options(self, task: Task, row: Sequence[int], on: Sequence[Slot]) -> list[tuple[int, ...]]:
        """GPUs to try on one node: every distinct one for a share, the cheapest ones for whole GPUs.

        ``row`` is what each of its GPUs has free, ``on`` its slots.
        """
        if task.gpus == 0:
            return [()]
        usable = [gpu for gpu, free in enumerate(row) if free >= task.share]
        if task.share == WHOLE:
            worth = dict.fromkeys(usable, 0.0)
            for slot in on:
                for gpu in slot.gpus:
                    if gpu in worth:
                        worth[gpu] += self._prices[slot.kind] / len(slot.gpus)
            return [tuple(sorted(sorted(worth, key=lambda gpu: (worth[gpu], gpu))[: task.gpus]))]
        if len(usable) == 1:
            return [(usable[0],)]
        held: list[list[int]] = [[] for _ in row]
        for slot in on:
            for gpu in slot.gpus:
                held[gpu].append(slot.kind)
        distinct = {(row[gpu], tuple(sorted(held[gpu]))): gpu for gpu in reversed(usable)}
        return [(gpu,) for gpu in distinct.values()]
