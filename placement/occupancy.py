"""What runs where beyond sizes: tenants, channels, MIG slices; kept beside `state.State`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.state import State
from placement.topology import Ints, Topology

__all__ = ["NO_TENANT", "Occupancy", "Placed"]

NO_TENANT = -1
MIXED = -2
WAYS = {"time-slicing": 1, "mps": 2}
"""Ways of sharing a GPU that exclude each other, and their numbers in `Occupancy.sharing`."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One member on one node."""

    node: int
    gpus: tuple[int, ...]
    share: int
    cpu: int
    memory: int
    nics: int = 0
    slices: int = 0
    """MIG memory slices taken on the one GPU, as a bit mask."""
    channel: bool = False
    tenant: str = ""
    exclusive: bool = False
    """No other tenant beside it."""
    sole: bool = False
    """Nobody else at all on its GPUs' node."""
    vm: bool = False
    """Runs behind a VM boundary: its GPUs are never shared."""
    sharing: str = ""
    """How its part of a GPU is shared, as `requests.Performance`; empty: whole GPUs or a MIG instance."""


class Occupancy:
    """A `State` and who uses it."""

    def __init__(self, topology: Topology) -> None:
        self.state = State(topology)
        count = len(topology.names)
        self.members: Ints = np.zeros(count, dtype=np.int64)
        """(n,) members on each node."""
        self.channel: NDArray[np.bool_] = np.zeros(count, dtype=bool)
        """(n,) whether the ComputeDomain channel is taken."""
        self.slices: Ints = np.zeros(topology.numa.shape, dtype=np.int64)
        """(n, g) MIG slices taken."""
        self.tenant: Ints = np.full(count, NO_TENANT)
        """(n,) index of the one tenant, `NO_TENANT`, or `MIXED`."""
        self.exclusive: NDArray[np.bool_] = np.zeros(count, dtype=bool)
        """(n,) whether the tenant there wants no other."""
        self.sole: NDArray[np.bool_] = np.zeros(count, dtype=bool)
        """(n,) whether somebody there has the whole node."""
        self.sharing: NDArray[np.int8] = np.zeros(topology.numa.shape, dtype=np.int8)
        """(n, g) way in which parts of the GPU are shared now, of `WAYS`; 0: none."""
        self.ways = {way: 0 for way in WAYS}
        """Members per way of sharing."""
        self.mig = False
        """Whether any GPU may hold MIG instances."""
        self.restricted = 0
        """Members running now that keep others away: exclusive, sole, or on a channel."""
        self._tenants: dict[str, int] = {}
        self._on: list[list[Placed]] = [[] for _ in range(count)]

    def tenant_index(self, tenant: str) -> int:
        """Index of a tenant, a new one for a new name."""
        return self._tenants.setdefault(tenant, len(self._tenants))

    def on(self, node: int) -> Sequence[Placed]:
        """Members on a node."""
        return self._on[node]

    def take(self, placed: Placed) -> None:
        """Add one member. Raises ValueError, with nothing changed, if it does not fit."""
        if placed.channel and self.channel[placed.node]:
            raise ValueError(f"node {self.state.topology.names[placed.node]}: its channel is taken")
        if placed.slices and any(self.slices[placed.node, gpu] & placed.slices for gpu in placed.gpus):
            raise ValueError(f"node {self.state.topology.names[placed.node]}: MIG slices are taken")
        if placed.sharing and self.sharing[placed.node, placed.gpus[0]] not in (0, WAYS[placed.sharing]):
            raise ValueError(f"node {self.state.topology.names[placed.node]}: its GPU is shared in another way")
        self.state.take(placed.node, placed.gpus, placed.share, placed.cpu, placed.memory, placed.nics)
        self._on[placed.node].append(placed)
        self.restricted += _restricts(placed)
        if placed.sharing:
            self.ways[placed.sharing] += 1
            self.sharing[placed.node, placed.gpus[0]] = WAYS[placed.sharing]
        if placed.slices or _restricts(placed):
            self._refresh(placed.node)
            return
        # The common case, without looking at who else is there.
        self.members[placed.node] += 1
        mine, there = self.tenant_index(placed.tenant), self.tenant[placed.node]
        self.tenant[placed.node] = mine if there in (NO_TENANT, mine) else MIXED

    def give(self, placed: Placed) -> None:
        """Remove one member. Raises ValueError if it is not there."""
        self._on[placed.node].remove(placed)
        self.restricted -= _restricts(placed)
        self.state.give(placed.node, placed.gpus, placed.share, placed.cpu, placed.memory, placed.nics)
        if placed.sharing:
            self.ways[placed.sharing] -= 1
            if not any(other.sharing and other.gpus == placed.gpus for other in self._on[placed.node]):
                self.sharing[placed.node, placed.gpus[0]] = 0
        self._refresh(placed.node)

    def _refresh(self, node: int) -> None:
        here = self._on[node]
        self.members[node] = len(here)
        self.channel[node] = any(placed.channel for placed in here)
        self.exclusive[node] = any(placed.exclusive for placed in here)
        self.sole[node] = any(placed.sole for placed in here)
        self.slices[node] = 0
        for placed in here:
            if placed.slices:
                self.mig = True
                for gpu in placed.gpus:
                    self.slices[node, gpu] |= placed.slices
        tenants = {self.tenant_index(placed.tenant) for placed in here}
        self.tenant[node] = NO_TENANT if not tenants else tenants.pop() if len(tenants) == 1 else MIXED

    def fill(self, items: Mapping[str, Sequence[Placed]]) -> None:
        """Take many; see `take`."""
        for members in items.values():
            for placed in members:
                self.take(placed)


def _restricts(placed: Placed) -> bool:
    return placed.exclusive or placed.sole or placed.channel
