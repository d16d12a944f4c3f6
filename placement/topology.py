"""The fixed part of a fleet as flat arrays: which GPU stands where, and what a node offers when empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lockstep.base import errors

__all__ = ["WHOLE", "Ints", "NodeSpec", "Topology", "build"]

Ints = NDArray[np.int64]

WHOLE = 1000
"""Free share of an untouched GPU: shares are counted in thousandths of a GPU, so that sums are exact."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node as a loader describes it."""

    name: str
    cpu: int
    """Thousandths of a core."""
    memory: int
    """MiB."""
    gpus: int
    model: str
    """Accelerator model, as requests name it."""
    domain: str = ""
    """NVLink domain; empty: the node is its own."""
    rack: str = ""
    """Empty: the domain is its own rack."""
    nics: int = 0
    numa: tuple[int, ...] = ()
    """NUMA node (PCIe root) of each GPU; empty: all on 0."""
    rails: tuple[int, ...] = ()
    """Rail of each GPU; empty: the GPU's index."""
    region: str = ""
    """Residency label; empty: none declared."""
    position: int = 0
    """Place along the domain: ranks follow it."""
    security: int = 1
    """Strongest boundary that its runtimes offer, as `requests.Security`; 1: container."""
    modes: frozenset[str] = frozenset({"time-slicing", "mps", "mig"})
    """Ways in which its GPUs may be shared."""


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """``n`` nodes, ``d`` domains, ``k`` racks, at most ``g`` GPUs a node. Arrays are never written."""

    names: tuple[str, ...]
    models: tuple[str, ...]
    domains: tuple[str, ...]
    racks: tuple[str, ...]
    regions: tuple[str, ...]
    cpu: Ints
    """(n,) thousandths of a core."""
    memory: Ints
    """(n,) MiB."""
    gpus: Ints
    """(n,) number of GPUs."""
    nics: Ints
    """(n,)"""
    model: Ints
    """(n,) index into `models`."""
    domain: Ints
    """(n,) index into `domains`."""
    rack: Ints
    """(n,) index into `racks`."""
    domain_rack: Ints
    """(d,) rack of each domain."""
    region: Ints
    """(n,) index into `regions`."""
    position: Ints
    """(n,) place along the domain."""
    security: Ints
    """(n,) strongest boundary offered."""
    modes: Mapping[str, NDArray[np.bool_]]
    """Way of sharing → (n,) whether the node offers it."""
    numa: Ints
    """(n, g) NUMA node of each GPU; -1 where the node has no such GPU."""
    rail: Ints
    """(n, g) rail of each GPU; -1 where the node has no such GPU."""
    domain_nodes: tuple[Ints, ...] = field(repr=False)
    """Per domain: its nodes along the domain."""

    @property
    def width(self) -> int:
        """Most GPUs that a node has."""
        return int(self.numa.shape[1])

    @property
    def capacity(self) -> int:
        """Thousandths of a GPU in the whole fleet."""
        return int(self.gpus.sum()) * WHOLE

    def node(self, name: str) -> int:
        """Index of a node. Raises `errors.InputError` for a name that is not in the fleet."""
        try:
            return self.names.index(name)
        except ValueError:
            raise errors.InputError(f"no node {name!r} in this fleet", place="node") from None


def build(nodes: Sequence[NodeSpec]) -> Topology:
    """Arrays of ``nodes``, in the order given.

    Raises `errors.InputError` for no nodes, duplicate names, negative sizes, or a domain
    that stands in two racks.
    """
    if not nodes:
        raise errors.InputError("a fleet without nodes places nothing", place="nodes")
    if len({spec.name for spec in nodes}) != len(nodes):
        raise errors.InputError("two nodes bear the same name", place="nodes")
    for spec in nodes:
        if min(spec.cpu, spec.memory, spec.gpus, spec.nics) < 0:
            raise errors.InputError("cpu, memory, gpus and nics are zero or more", place=f"node {spec.name}")
    models = _Names(spec.model for spec in nodes)
    domains = _Names(spec.domain or spec.name for spec in nodes)
    racks = _Names(spec.rack or spec.domain or spec.name for spec in nodes)
    regions = _Names(spec.region for spec in nodes)
    domain, rack = np.array(domains.indices), np.array(racks.indices)
    domain_rack = np.full(len(domains.names), -1)
    for spec, here, there in zip(nodes, domain, rack, strict=True):
        if domain_rack[here] not in (-1, there):
            raise errors.InputError(f"domain {domains.names[here]} stands in two racks", place=f"node {spec.name}")
        domain_rack[here] = there
    position = np.array([spec.position for spec in nodes])
    order = np.lexsort((np.arange(len(nodes)), position, domain))
    bounds = np.searchsorted(domain[order], np.arange(1, len(domains.names)))
    return Topology(
        names=tuple(spec.name for spec in nodes),
        models=models.names,
        domains=domains.names,
        racks=racks.names,
        regions=regions.names,
        cpu=np.array([spec.cpu for spec in nodes]),
        memory=np.array([spec.memory for spec in nodes]),
        gpus=np.array([spec.gpus for spec in nodes]),
        nics=np.array([spec.nics for spec in nodes]),
        model=np.array(models.indices),
        domain=domain,
        rack=rack,
        domain_rack=domain_rack,
        region=np.array(regions.indices),
        position=position,
        security=np.array([spec.security for spec in nodes]),
        modes={
            mode: np.array([mode in spec.modes for spec in nodes])
            for mode in sorted(frozenset().union(*(spec.modes for spec in nodes)))
        },
        numa=_per_gpu(nodes, [spec.numa or (0,) * spec.gpus for spec in nodes]),
        rail=_per_gpu(nodes, [spec.rails or tuple(range(spec.gpus)) for spec in nodes]),
        domain_nodes=tuple(np.split(order, bounds)),
    )


def _per_gpu(nodes: Sequence[NodeSpec], values: Sequence[Sequence[int]]) -> Ints:
    """(n, g) of per-GPU values, -1 where a node has fewer GPUs."""
    table = np.full((len(nodes), max(1, *(spec.gpus for spec in nodes))), -1)
    for row, (spec, given) in enumerate(zip(nodes, values, strict=True)):
        if len(given) != spec.gpus:
            raise errors.InputError(f"{len(given)} values for {spec.gpus} GPUs", place=f"node {spec.name}")
        table[row, : spec.gpus] = given
    return table


class _Names:
    """Names in order of first appearance, and the index of each item."""

    def __init__(self, items: object) -> None:
        table: dict[str, int] = {}
        self.indices = [table.setdefault(item, len(table)) for item in items]  # type: ignore[attr-defined]
        self.names = tuple(table)
