"""What is free now: arrays changed in place, and a log so that caches redo only what changed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from placement.topology import WHOLE, Ints, Topology

__all__ = ["State"]


class State:
    """Free CPU, memory and GPU shares of every node of a `Topology`.

    `changes` grows by one node index per change; a cache remembers how much of it it has seen.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.cpu: Ints = topology.cpu.copy()
        """(n,) free thousandths of a core."""
        self.memory: Ints = topology.memory.copy()
        """(n,) free MiB."""
        self.nics: Ints = topology.nics.copy()
        """(n,) free NICs."""
        self.gpu: Ints = np.where(topology.numa >= 0, WHOLE, 0)
        """(n, g) free thousandths per GPU; 0 where there is no such GPU."""
        self.free: Ints = self.gpu.sum(axis=1)
        """(n,) free thousandths over the node's GPUs."""
        self.whole: Ints = (self.gpu == WHOLE).sum(axis=1)
        """(n,) GPUs that nobody uses."""
        self._closed: Ints = np.full(self.gpu.shape, -1)
        """(n, g) free share withheld while a gate has the GPU closed; -1: open."""
        self.closed: NDArray[np.bool_] = np.zeros(self.gpu.shape, dtype=bool)
        """(n, g) GPUs that a gate has closed."""
        self.closed_any = False
        """Whether any GPU is closed."""
        self.changes: list[int] = []

    def take(self, node: int, gpus: Sequence[int], share: int, cpu: int, memory: int, nics: int = 0) -> None:
        """Take ``share`` thousandths of each of ``gpus`` and the rest from ``node``.

        Raises ValueError, with nothing changed, if that is more than is free: a caller
        that gets here has decided on a stale view.
        """
        row = self.gpu[node]
        if self.cpu[node] < cpu or self.memory[node] < memory or self.nics[node] < nics:
            raise ValueError(f"node {self.topology.names[node]}: not enough CPU, memory or NICs")
        if len(set(gpus)) != len(gpus) or any(row[gpu] < share for gpu in gpus):
            raise ValueError(f"node {self.topology.names[node]}: GPUs {list(gpus)} are not free")
        self._move(node, gpus, -share, -cpu, -memory, -nics)

    def give(self, node: int, gpus: Sequence[int], share: int, cpu: int, memory: int, nics: int = 0) -> None:
        """The inverse of `take`. Raises ValueError, with nothing changed, if more would be free than there is."""
        limit = self.topology
        if (
            self.cpu[node] + cpu > limit.cpu[node]
            or self.memory[node] + memory > limit.memory[node]
            or self.nics[node] + nics > limit.nics[node]
            or any(self._free(node, gpu) + share > WHOLE or limit.numa[node, gpu] < 0 for gpu in gpus)
        ):
            raise ValueError(f"node {limit.names[node]}: given back more than was taken")
        self._move(node, gpus, share, cpu, memory, nics)

    def _free(self, node: int, gpu: int) -> int:
        return int(max(self.gpu[node, gpu], self._closed[node, gpu]))

    def close(self, closed: NDArray[np.bool_]) -> None:
        """Withhold exactly the GPUs of ``closed`` (n, g) from everybody; what runs there stays and may leave."""
        closed = closed & (self.topology.numa >= 0)
        differ = closed != self.closed
        self.closed = closed
        self.closed_any = bool(closed.any())
        for node, gpu in np.argwhere(differ).tolist():
            row = self.gpu[node]
            if closed[node, gpu]:
                self._closed[node, gpu], row[gpu] = row[gpu], 0
            else:
                row[gpu], self._closed[node, gpu] = self._closed[node, gpu], -1
            self._count(node)

    def _move(self, node: int, gpus: Sequence[int], share: int, cpu: int, memory: int, nics: int) -> None:
        row = self.gpu[node]
        for gpu in gpus:
            if self._closed[node, gpu] >= 0:
                self._closed[node, gpu] += share
            else:
                row[gpu] += share
        self.cpu[node] += cpu
        self.memory[node] += memory
        self.nics[node] += nics
        self._count(node)

    def _count(self, node: int) -> None:
        row = self.gpu[node]
        self.free[node] = row.sum()
        self.whole[node] = np.count_nonzero(row == WHOLE)
        self.changes.append(node)
