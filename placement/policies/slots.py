"""Reserved places on nodes: what a plan keeps free for which kind of work."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from placement.plans.kinds import Bin, Content, Kinds
from placement.state import State
from placement.topology import WHOLE, Ints

__all__ = ["Slot", "Slots"]


class Slot(NamedTuple):
    """A place for one piece of work."""

    kind: int
    gpus: tuple[int, ...]


class Slots:
    """The slots of every node, how many of each kind, and what they reserve."""

    def __init__(self, state: State, kinds: Kinds) -> None:
        count, width = state.gpu.shape
        self._state = state
        self._kinds = kinds
        self._cpus, self._memories, self._shares = kinds.cpu.tolist(), kinds.memory.tolist(), kinds.share.tolist()
        self.on: list[list[Slot]] = [[] for _ in range(count)]
        self.number: Ints = np.zeros((len(kinds), count), dtype=np.int64)
        """(kinds, n) open slots per kind and node."""
        self.cpu: Ints = np.zeros(count, dtype=np.int64)
        """(n,) reserved thousandths of a core."""
        self.memory: Ints = np.zeros(count, dtype=np.int64)
        """(n,) reserved MiB."""
        self.gpu: Ints = np.zeros((count, width), dtype=np.int64)
        """(n, g) reserved thousandths of each GPU."""

    def add(self, node: int, slot: Slot) -> None:
        """Open a slot."""
        self.on[node].append(slot)
        self._move(node, slot, 1)

    def remove(self, node: int, slot: Slot) -> None:
        """Close a slot: it is used, or given up."""
        self.on[node].remove(slot)
        self._move(node, slot, -1)

    def _move(self, node: int, slot: Slot, sign: int) -> None:
        kind, kinds = slot.kind, self._kinds
        self.number[kind, node] += sign
        self.cpu[node] += sign * kinds.cpu[kind]
        self.memory[node] += sign * kinds.memory[kind]
        for gpu in slot.gpus:
            self.gpu[node, gpu] += sign * kinds.share[kind]

    def clear(self) -> None:
        """Close all slots."""
        for slots in self.on:
            slots.clear()
        for array in (self.number, self.cpu, self.memory, self.gpu):
            array[:] = 0

    def of_kind(self, node: int, kind: int) -> Slot:
        """The slot of ``kind`` on ``node`` whose GPU has least left but enough; there must be one."""
        row, share = self._state.gpu[node], self._kinds.share[kind]
        matching = (slot for slot in self.on[node] if slot.kind == kind)

        def left(slot: Slot) -> int:
            # A GPU that a gate has closed shows nothing free: its slots come last.
            least = min((int(row[gpu]) for gpu in slot.gpus), default=0)
            return least if least >= share else WHOLE + 1

        return min(matching, key=left)

    def install(self, node: int, content: Content, budget: list[float]) -> None:
        """Open the slots of a planned content on GPUs that have as much left as it was made for.

        ``budget`` (per kind) is what is still expected and is counted down: contents may hold more
        of a kind that costs nothing, and a slot for work that will not come only hides room.
        """
        row = self._state.gpu[node]
        free: dict[int, list[int]] = {}
        for gpu in range(int(self._state.topology.gpus[node])):
            free.setdefault(int(row[gpu]), []).append(gpu)
        for item in sorted(content.bins, key=lambda item: (-item.gpus, -item.free)):
            gpus = free[WHOLE if item.gpus > 1 else item.free]
            taken, gpus[: item.gpus] = tuple(gpus[: item.gpus]), []
            for kind in item.kinds:
                self._open(node, Slot(kind, taken), budget)
        for kind in content.cpu_only:
            self._open(node, Slot(kind, ()), budget)

    def _open(self, node: int, slot: Slot, budget: list[float]) -> None:
        if budget[slot.kind] > 0:
            budget[slot.kind] -= 1
            self.add(node, slot)

    def content(self, node: int, group: int) -> Content:
        """The open slots of a node as a content of its group: the inverse of `install`."""
        row = self._state.gpu[node]
        per_gpu: dict[int, list[int]] = {}
        bins, cpu_only = [], []
        for slot in self.on[node]:
            if not slot.gpus:
                cpu_only.append(slot.kind)
            elif len(slot.gpus) > 1:
                bins.append(Bin(WHOLE, len(slot.gpus), (slot.kind,)))
            else:
                per_gpu.setdefault(slot.gpus[0], []).append(slot.kind)
        bins += [Bin(int(row[gpu]), 1, tuple(kinds)) for gpu, kinds in per_gpu.items()]
        return Content(group, tuple(bins), tuple(cpu_only))

    def conflicts(self, node: int, need: Sequence[int], gpus: Iterable[int], order: Sequence[float]) -> list[Slot]:
        """Slots to give up, cheapest first by ``order`` (per kind), so that (cpu, memory, share) fits on ``gpus``."""
        state = self._state
        cpu = int(state.cpu[node] - self.cpu[node]) - need[0]
        memory = int(state.memory[node] - self.memory[node]) - need[1]
        over = {gpu: int(self.gpu[node, gpu] + need[2] - state.gpu[node, gpu]) for gpu in gpus}
        by_price = sorted(self.on[node], key=lambda slot: order[slot.kind])
        return self.given_up(by_price, cpu, memory, over, order, math.inf) or []

    def given_up(
        self,
        by_price: Sequence[Slot],
        cpu: int,
        memory: int,
        over: dict[int, int],
        order: Sequence[float],
        limit: float,
    ) -> list[Slot] | None:
        """The first of ``by_price`` that must go: ``over`` per GPU, and below zero of CPU and memory, is missing.

        None as soon as those given up are worth more than ``limit``. ``over`` is used up.
        """
        cpus, memories, shares = self._cpus, self._memories, self._shares
        given: list[Slot] = []
        worth = 0.0
        left = by_price
        if any(missing > 0 for missing in over.values()):
            left = []
            for slot in by_price:
                for gpu in slot.gpus:
                    if over.get(gpu, 0) > 0:
                        break
                else:
                    left.append(slot)
                    continue
                worth += order[slot.kind]
                if worth > limit:
                    return None
                given.append(slot)
                cpu += cpus[slot.kind]
                memory += memories[slot.kind]
                for gpu in slot.gpus:
                    over[gpu] = over.get(gpu, 0) - shares[slot.kind]
        for slot in left:
            if cpu >= 0 and memory >= 0:
                break
            if (cpu < 0 and cpus[slot.kind]) or (memory < 0 and memories[slot.kind]):
                worth += order[slot.kind]
                if worth > limit:
                    return None
                given.append(slot)
                cpu += cpus[slot.kind]
                memory += memories[slot.kind]
        return given
