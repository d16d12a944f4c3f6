"""Good node contents for given prices of the kinds: the pricing step of column generation.

GPU shares are an unbounded knapsack per GPU, solved for all capacities at once by dynamic
programming, for a ladder of charges on CPU and memory. A node then picks one of those
patterns per GPU, greedily by value per CPU and memory, around every number of
several-GPU pieces and several reserves of CPU for CPU-only work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placement.plans.kinds import Bin, Content, Kinds, Room
from placement.topology import WHOLE

__all__ = ["Pricer"]

UNIT = 10
"""Thousandths per step of the knapsack; shares are rounded up to it."""
CHARGES = (0, 100, 200, 400, 700, 1000, 1400, 2000, 2800, 4000, 5600, 8000, 11000, 16000)
"""Thousandths of a GPU that a whole large node's CPU is charged at; varied at random per call."""
RESERVES = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)
"""Parts of a node's CPU that GPU work may use, when CPU-only work is worth something."""
NEVER = -1e18


class _Pattern(NamedTuple):
    """Kinds on one GPU."""

    kinds: tuple[int, ...]
    cpu: int
    memory: int
    value: float


_EMPTY = _Pattern((), 0, 0, 0.0)


class Pricer:
    """Prices contents for the groups of one fleet. ``cpu`` and ``memory`` are those of its largest node."""

    def __init__(self, kinds: Kinds, models: int, cpu: int, memory: int, generator: np.random.Generator) -> None:
        self._kinds = kinds
        self._models = models
        self._cpu, self._memory = max(cpu, 1), max(memory, 1)
        self._generator = generator
        single = kinds.gpus == 1
        self._shares: list[int] = sorted({int(share) for share in kinds.share[single]})
        self._steps = np.array([-(-share // UNIT) for share in self._shares], dtype=np.int64)
        self._by_share = [np.flatnonzero(single & (kinds.share == share)) for share in self._shares]
        self._several = {
            int(count): np.flatnonzero(kinds.gpus == count)
            for count in sorted(set(kinds.gpus[kinds.gpus > 1].tolist()))
        }
        self._cpu_only = np.flatnonzero(kinds.gpus == 0)
        self._kind_cpu: list[int] = kinds.cpu.tolist()
        self._kind_memory: list[int] = kinds.memory.tolist()

    def price(
        self, prices: NDArray[np.float64], rooms: Sequence[Room], least: NDArray[np.float64]
    ) -> Iterator[tuple[Content, float]]:
        """The best content found per group, where it is worth more than ``least`` (groups,), and its worth."""
        self._solve(prices)
        self._prices: list[float] = prices.tolist()
        worth = prices[self._cpu_only]
        order = np.argsort(-worth / (self._weight(self._cpu_only) + 1e-9), kind="stable")
        fillers: list[int] = self._cpu_only[order][worth[order] > 1e-9].tolist()
        for group, room in enumerate(rooms):
            best, value = None, float(least[group]) + 1e-6
            for head, whole, cpu, memory, base in self._heads(room):
                for reserve in RESERVES if fillers else (1.0,):
                    bins, got, left_cpu, left_memory = self._fill(room, whole, cpu, memory, reserve)
                    extra, more = self._top_up(fillers, left_cpu, left_memory)
                    if base + got + more > value:
                        value = base + got + more
                        best = Content(group, (*head, *bins), extra)
            if best is not None:
                yield best, value

    def _weight(self, kinds: NDArray[np.int64]) -> NDArray[np.float64]:
        weight: NDArray[np.float64] = self._kinds.cpu[kinds] / self._cpu + self._kinds.memory[kinds] / self._memory
        return weight

    def _solve(self, prices: NDArray[np.float64]) -> None:
        """Knapsacks for every charge and model: value and choice per capacity."""
        kinds, draw = self._kinds, self._generator
        toward_cpu, toward_memory = draw.random(2) if draw.random() < 0.5 else (1.0, 0.3)
        charge = np.array(CHARGES) * draw.uniform(0.7, 1.4)
        cost = toward_cpu * kinds.cpu / self._cpu + toward_memory * kinds.memory / self._memory
        profit = np.where(kinds.allowed.T[None], (prices[None] - charge[:, None] * cost[None])[:, None, :], NEVER)
        self._profit = profit
        shape = (len(charge), self._models)
        best = np.full((*shape, len(self._shares)), NEVER)
        self._best_kind = np.zeros((*shape, len(self._shares)), dtype=np.int64)
        for column, members in enumerate(self._by_share):
            top = profit[:, :, members].argmax(axis=2)
            self._best_kind[:, :, column] = members[top]
            best[:, :, column] = np.take_along_axis(profit[:, :, members], top[:, :, None], 2)[:, :, 0]
        capacity = WHOLE // UNIT
        value = np.zeros((capacity + 1, *shape))
        self._choice = np.full((capacity + 1, *shape), -1)
        for room in range(1, capacity + 1):
            value[room] = value[room - 1]
            usable = np.flatnonzero(self._steps <= room)
            if not len(usable):
                continue
            candidates = value[room - self._steps[usable]].transpose(1, 2, 0) + best[:, :, usable]
            pick = candidates.argmax(axis=2)
            top_value = np.take_along_axis(candidates, pick[:, :, None], 2)[:, :, 0]
            better = top_value > value[room] + 1e-9
            value[room] = np.where(better, top_value, value[room])
            self._choice[room] = np.where(better, usable[pick], -1)
        self._patterns: dict[tuple[int, int], list[_Pattern]] = {}

    def _pattern(self, room: int, charge: int, model: int) -> _Pattern:
        found = []
        while room > 0:
            column = int(self._choice[room, charge, model])
            if column < 0:
                room -= 1
                continue
            found.append(int(self._best_kind[charge, model, column]))
            room -= int(self._steps[column])
        cpu, memory = sum(self._kind_cpu[k] for k in found), sum(self._kind_memory[k] for k in found)
        return _Pattern(tuple(found), cpu, memory, sum(self._prices[k] for k in found))

    def _candidates(self, room: int, model: int) -> list[_Pattern]:
        """Distinct patterns for a GPU with ``room`` steps free."""
        known = self._patterns.get((room, model))
        if known is None:
            distinct = {self._pattern(room, charge, model) for charge in range(len(CHARGES))}
            known = self._patterns[room, model] = sorted(distinct, key=lambda item: (item.cpu, item.kinds))
        return known

    def _heads(self, room: Room) -> Iterator[tuple[tuple[Bin, ...], int, int, int, float]]:
        """Every number of one kind of several-GPU work, and the whole GPUs, CPU and memory left beside it."""
        whole = sum(free == WHOLE for free in room.gpu)
        yield (), whole, room.cpu, room.memory, 0.0
        for count, members in self._several.items():
            if count > whole:
                continue
            picks = {int(members[self._profit[charge, room.model, members].argmax()]) for charge in (0, 4, 9)}
            for kind in sorted(picks):
                if not self._kinds.allowed[kind, room.model] or self._prices[kind] <= 0:
                    continue
                cpu, memory = self._kind_cpu[kind], self._kind_memory[kind]
                number = 1
                while number * count <= whole and number * cpu <= room.cpu and number * memory <= room.memory:
                    yield (
                        (Bin(WHOLE, count, (kind,)),) * number,
                        whole - number * count,
                        room.cpu - number * cpu,
                        room.memory - number * memory,
                        number * self._prices[kind],
                    )
                    number += 1

    def _fill(self, room: Room, whole: int, cpu: int, memory: int, reserve: float) -> tuple[list[Bin], float, int, int]:
        """One pattern per GPU, upgraded step by step to what adds most per CPU and memory; what is left."""
        spare_cpu = cpu - int(cpu * reserve)
        left_cpu, left_memory = cpu - spare_cpu, memory
        state: list[tuple[int, _Pattern, int]] = [(WHOLE, _EMPTY, whole)] if whole else []
        for free in sorted({free for free in room.gpu if 0 < free < WHOLE}, reverse=True):
            state.append((free, _EMPTY, room.gpu.count(free)))
        per_cpu, per_memory = 1.0 / max(left_cpu, 1), 1.0 / max(left_memory, 1)
        while True:
            best, pick = 0.0, None
            for place, (free, now, _) in enumerate(state):
                for pattern in self._candidates(free // UNIT, room.model):
                    gain = pattern.value - now.value
                    more_cpu, more_memory = pattern.cpu - now.cpu, pattern.memory - now.memory
                    if gain <= 1e-9 or more_cpu > left_cpu or more_memory > left_memory:
                        continue
                    rate = gain / max(more_cpu * per_cpu + more_memory * per_memory, 1e-6)
                    if rate > best:
                        best, pick = rate, (place, pattern, more_cpu, more_memory)
            if pick is None:
                break
            place, pattern, more_cpu, more_memory = pick
            free, now, count = state[place]
            times = count
            if more_cpu > 0:
                times = min(times, left_cpu // more_cpu)
            if more_memory > 0:
                times = min(times, left_memory // more_memory)
            left_cpu -= times * more_cpu
            left_memory -= times * more_memory
            state[place] = (free, pattern, times)
            if times < count:
                state.append((free, now, count - times))
        bins = [Bin(free, 1, item.kinds) for free, item, count in state if item.kinds for _ in range(count)]
        return bins, sum(item.value * count for _, item, count in state), left_cpu + spare_cpu, left_memory

    def _top_up(self, fillers: Sequence[int], cpu: int, memory: int) -> tuple[tuple[int, ...], float]:
        """CPU-only work into what is left, densest first."""
        chosen: list[int] = []
        value = 0.0
        for kind in fillers:
            needs_cpu, needs_memory = self._kind_cpu[kind], self._kind_memory[kind]
            number = min(cpu // needs_cpu if needs_cpu else 0, memory // needs_memory if needs_memory else cpu)
            if number > 0:
                chosen += [kind] * number
                cpu -= number * needs_cpu
                memory -= number * needs_memory
                value += number * self._prices[kind]
        return tuple(chosen), value
