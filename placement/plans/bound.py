"""An upper bound on what any policy can place: the configuration bound over GPU patterns.

A relaxation: per node class totals of CPU, memory and GPUs, whole patterns of shares per
GPU in fractional numbers, and at most one piece per node that asks for more than half of
its CPU. It may refuse at will, so a work-conserving policy cannot quite reach it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import optimize, sparse

from lockstep.base import errors
from placement.plans.kinds import Kinds, Room
from placement.tasks import Workload
from placement.topology import WHOLE, Topology

__all__ = ["allocation"]

SMALLEST = 150
"""Shares below are counted by volume only: patterns of tiny shares are too many and bind nowhere."""


def allocation(topology: Topology, workload: Workload, arrived: float = 1.0) -> float:
    """% of GPU capacity that can be allocated when ``arrived`` x capacity was asked for in the workload's mix.

    Raises `errors.EngineError` when HiGHS fails.
    """
    kinds = Kinds(tuple(workload.frequencies), topology.models)
    frequency = np.array(list(workload.frequencies.values()))
    need = frequency * arrived * topology.capacity / workload.mean_demand()
    classes: dict[Room, int] = {}
    for node in range(len(topology.names)):
        gpus = (WHOLE,) * int(topology.gpus[node])
        room = Room(int(topology.model[node]), int(topology.cpu[node]), int(topology.memory[node]), gpus)
        classes[room] = classes.get(room, 0) + 1
    shares = sorted({int(share) for share in kinds.share[(kinds.gpus == 1) & (kinds.share >= SMALLEST)]} - {WHOLE})
    patterns = list(_patterns(shares, WHOLE))
    programme = _Programme(kinds, need, shares, patterns)
    for room, count in classes.items():
        programme.add(room, count)
    return programme.solve() / topology.capacity * 100


def _patterns(shares: list[int], room: int) -> Iterator[tuple[int, ...]]:
    """All multisets of ``shares`` (counts per share) to which none can be added within ``room``."""
    if not shares:
        yield ()
        return
    smallest = shares[0]

    def walk(place: int, left: int, counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if place < 0:
            if left < smallest:
                yield counts
            return
        for number in range(left // shares[place] + 1):
            yield from walk(place - 1, left - number * shares[place], (number, *counts))

    yield from walk(len(shares) - 1, room, ())


class _Programme:
    """Rows and columns of the linear programme, class by class."""

    def __init__(self, kinds: Kinds, need: np.ndarray, shares: list[int], patterns: list[tuple[int, ...]]) -> None:
        self._kinds, self._need, self._shares, self._patterns = kinds, need, shares, patterns
        self._entries: list[tuple[int, int, float]] = []
        self._limits: list[float] = list(need)
        self._values: list[float] = []

    def _row(self, limit: float) -> int:
        self._limits.append(limit)
        return len(self._limits) - 1

    def _column(self, value: float) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def add(self, room: Room, count: int) -> None:
        """``count`` nodes of one class."""
        kinds = self._kinds
        gpus = len(room.gpu)
        cpu, memory = self._row(count * room.cpu), self._row(count * room.memory)
        whole, half, volume = self._row(count * gpus), self._row(count), self._row(0.0)
        per_share = {share: self._row(0.0) for share in self._shares}
        for pattern in self._patterns if self._shares else [()]:
            column = self._column(0.0)
            self._entries += [(whole, column, 1.0), (volume, column, -float(WHOLE))]
            self._entries += [
                (per_share[share], column, -float(number))
                for share, number in zip(self._shares, pattern, strict=False)
                if number
            ]
        for kind in np.flatnonzero(kinds.fits(room)).tolist():
            column = self._column(float(kinds.demand[kind]))
            share = int(kinds.share[kind])
            self._entries += [(kind, column, 1.0), (cpu, column, kinds.cpu[kind]), (memory, column, kinds.memory[kind])]
            if kinds.cpu[kind] * 2 > room.cpu:
                self._entries.append((half, column, 1.0))
            if share == WHOLE:
                self._entries.append((whole, column, float(kinds.gpus[kind])))
            elif share:
                self._entries.append((volume, column, float(share)))
                if share in per_share:
                    self._entries.append((per_share[share], column, 1.0))

    def solve(self) -> float:
        """The optimum in thousandths of a GPU."""
        row, column, entry = zip(*self._entries, strict=True)
        shape = (len(self._limits), len(self._values))
        matrix = sparse.csr_matrix((np.array(entry, dtype=float), (row, column)), shape=shape)
        found = optimize.linprog(-np.array(self._values), A_ub=matrix, b_ub=self._limits, method="highs")
        if found.status != 0:
            raise errors.EngineError(f"no bound: {found.message}", place="HiGHS")
        return -float(found.fun)
