"""Making a plan: column generation in two phases, then whole nodes.

Phase one finds the largest part of every kind that can be accepted alike. Phase two
maximises the GPU share placed, with that part of the CPU-only kinds as a
floor: they add nothing to what is maximised, yet a work-conserving policy must take them
while they fit, so a plan that forgets them is broken by them. Where CPU is plentiful the
floor binds nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.plans import master
from placement.plans.kinds import Bin, Content, Kinds, Room
from placement.plans.pricing import Pricer
from placement.topology import WHOLE

__all__ = ["Plan", "make"]

EVEN = 3.0
"""Worth of even acceptance against value in phase one; large enough that it decides."""
SMOOTHING = 0.8
"""Weight of past prices in the prices that columns are made for: raw ones oscillate."""
CPU_VALUE = 1e-5
"""Worth of a thousandth of a core of CPU-only work, in thousandths of a GPU: breaks ties only."""
IDLE_ROUNDS = 6
STALL = 2e-5
"""Relative gain over `STALL_ROUNDS` below which more rounds do not pay."""
STALL_ROUNDS = 12


@dataclass(frozen=True, slots=True)
class Plan:
    """What nodes should hold."""

    contents: tuple[Content, ...]
    chosen: tuple[tuple[int, ...], ...]
    """Per group: indices into `contents`, one per node that has one."""
    prices: NDArray[np.float64]
    """(kinds,) worth of one more place: what breaking a reservation costs."""
    evenly: float
    """Part of every kind that could be accepted alike."""
    value: float
    """Thousandths of a GPU that the fractional plan accepts."""


def make(
    kinds: Kinds,
    rooms: Sequence[Room],
    nodes: Sequence[int],
    need: NDArray[np.float64],
    pricer: Pricer,
    *,
    known: Iterable[Content] = (),
    rounds: int = 60,
) -> Plan:
    """Plan for ``need`` (kinds,) pieces of work on ``nodes[i]`` nodes with ``rooms[i]``.

    ``known`` are contents that are already good (the slots of an older plan). Kinds that
    fit nowhere are left out. Raises `errors.EngineError` when HiGHS fails.
    """
    possible = np.zeros(len(kinds), dtype=bool)
    for room in rooms:
        possible |= kinds.fits(room)
    need = np.where(possible, need, 0.0)
    columns = _Columns(rooms)
    for content in known:
        columns.add(content)
    for content in _uniform(kinds, rooms, covered=columns.kinds()):
        columns.add(content)
    value = kinds.demand + CPU_VALUE * kinds.cpu * (kinds.gpus == 0)
    counts = np.array(nodes, dtype=float)
    even = _generate(master.Problem(counts, need, value, even=EVEN), columns, rooms, pricer, rounds)
    floor = max(0.0, even.evenly - 1e-6)
    problem = master.Problem(counts, need, value, floor=floor, floored=kinds.gpus == 0)
    best = _generate(problem, columns, rooms, pricer, rounds)
    chosen = _whole_nodes(problem, columns, best)
    accepted = float(best.accepted @ kinds.demand)
    return Plan(tuple(columns.contents), tuple(map(tuple, chosen)), best.prices, even.evenly, accepted)


class _Columns:
    """Distinct contents."""

    def __init__(self, rooms: Sequence[Room]) -> None:
        self.contents: list[Content] = []
        self.groups: list[int] = []
        self.counts: list[dict[int, int]] = []
        self._seen: set[tuple[int, tuple[tuple[int, int], ...]]] = set()

    def add(self, content: Content) -> bool:
        """Whether it was new."""
        counts = content.counts()
        key = (content.group, tuple(sorted(counts.items())))
        if not counts or key in self._seen:
            return False
        self._seen.add(key)
        self.contents.append(content)
        self.groups.append(content.group)
        self.counts.append(counts)
        return True

    def kinds(self) -> set[int]:
        """Kinds in any content."""
        return {kind for counts in self.counts for kind in counts}


def _uniform(kinds: Kinds, rooms: Sequence[Room], covered: set[int]) -> Iterable[Content]:
    """Per kind and group as much of that one kind as fits; for covered kinds none: the start of a first plan."""
    for kind in range(len(kinds)):
        if kind in covered:
            continue
        task = kinds.tasks[kind]
        for group, room in enumerate(rooms):
            if not kinds.allowed[kind, room.model]:
                continue
            most = min(room.cpu // task.cpu if task.cpu else 99, room.memory // task.memory if task.memory else 99)
            if task.gpus == 0:
                yield Content(group, (), (kind,) * most)
                continue
            bins = []
            if task.gpus > 1:
                whole = sum(free == WHOLE for free in room.gpu) // task.gpus
                bins = [Bin(WHOLE, task.gpus, (kind,))] * min(most, whole)
            else:
                for free in room.gpu:
                    here = min(most, free // task.share)
                    if here > 0:
                        bins.append(Bin(free, 1, (kind,) * here))
                        most -= here
            yield Content(group, tuple(bins), ())


def _generate(
    problem: master.Problem, columns: _Columns, rooms: Sequence[Room], pricer: Pricer, rounds: int
) -> master.Solution:
    """Solve, price, add columns; until nothing new is found for a while or nothing is gained any more."""
    center: NDArray[np.float64] | None = None
    history: list[float] = []
    idle = 0
    solution = master.solve(problem, columns.groups, columns.counts)
    for _ in range(rounds):
        center = solution.prices if center is None else SMOOTHING * center + (1 - SMOOTHING) * solution.prices
        added = [columns.add(content) for content, _ in pricer.price(center, rooms, solution.rents)]
        idle = 0 if any(added) else idle + 1
        if idle >= IDLE_ROUNDS:
            break
        if any(added):
            solution = master.solve(problem, columns.groups, columns.counts)
        history.append(solution.worth)
        if len(history) > STALL_ROUNDS and history[-1] - history[-1 - STALL_ROUNDS] < STALL * abs(history[-1]):
            break
    return solution


def _whole_nodes(problem: master.Problem, columns: _Columns, solution: master.Solution) -> list[list[int]]:
    """Whole numbers of nodes: round down, then dive on what is left, without the floor."""
    chosen: list[list[int]] = [[] for _ in problem.nodes]
    left, need = problem.nodes.copy(), problem.need.copy()

    def fix(column: int, number: int) -> None:
        group = columns.groups[column]
        number = int(min(number, left[group]))
        left[group] -= number
        chosen[group].extend([column] * number)
        for kind, count in columns.counts[column].items():
            need[kind] = max(0.0, need[kind] - count * number)

    for column in np.flatnonzero(solution.columns >= 1 - 1e-6):
        fix(int(column), int(solution.columns[column] + 1e-6))
    for _ in range(30):
        active = [column for column, group in enumerate(columns.groups) if left[group] >= 1]
        if not active:
            break
        rest = master.Problem(left, need, problem.value)
        found = master.solve(
            rest, [columns.groups[column] for column in active], [columns.counts[column] for column in active]
        ).columns
        if found.max(initial=0.0) <= 1e-6:
            break
        budget, moved = max(1, int(0.25 * left.sum())), False
        for position in np.argsort(-found, kind="stable"):
            whole = int(found[position] + 1e-6)
            part = found[position] - whole
            if whole:
                fix(active[position], whole)
                moved = True
            if budget > 0 and part > (0.5 if moved else 1e-6):
                fix(active[position], 1)
                budget, moved = budget - 1, True
    return chosen
