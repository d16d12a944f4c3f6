"""Fleets to plan on: generated NVL72 racks, and fleet files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from pinsets.findings import Verdict
from placement import audits, gates, occupancy, topology
from placement.health import board

if TYPE_CHECKING:
    from inventory import model

__all__ = ["from_inventory", "nvl72", "quiet_view"]

NOT_DECLARED = 1 << 40
"""CPU and memory of nodes from fleet files, which do not declare them: never a reason to refuse."""


MODES = {"nvidia": frozenset({"time-slicing", "mps", "mig"}), "amd": frozenset({"time-slicing"})}
"""Vendor → ways of sharing that its accelerators have; MPS and MIG are NVIDIA's."""


def nvl72(domains: int, *, per_rack: int = 1, nodes: int = 18) -> topology.Topology:
    """``domains`` NVLink domains of 18 trays with 4 GPUs each, as GB200 NVL72 racks are built."""
    return topology.build(
        [
            topology.NodeSpec(
                name=f"d{domain:04d}-n{node:02d}",
                cpu=144_000,
                memory=960 * 1024,
                gpus=4,
                model="GB200",
                domain=f"d{domain:04d}",
                rack=f"r{domain // per_rack:04d}",
                nics=4,
                numa=(0, 0, 1, 1),
                position=node,
            )
            for domain in range(domains)
            for node in range(nodes)
        ]
    )


def from_inventory(fleet: model.Fleet) -> topology.Topology:
    """Nodes of a fleet file in file order; the domain's order of slots is the rank order.

    Raises `errors.InputError` as `topology.build` does.
    """
    specs = []
    for pool in fleet.pools:
        for place, node in enumerate(sorted(pool.nodes, key=lambda node: (node.domain, _natural(node.slot)))):
            specs.append(
                topology.NodeSpec(
                    name=node.name,
                    cpu=NOT_DECLARED,
                    memory=NOT_DECLARED,
                    gpus=len(pool.sku.gpus),
                    model=pool.sku.accelerator,
                    domain=node.domain,
                    nics=len(pool.sku.nics),
                    position=place,
                    modes=MODES[pool.sku.vendor],
                )
            )
    return topology.build(specs)


def _natural(slot: str) -> list[tuple[int, str]]:
    """Slots in the order of their numbers: ``u2`` before ``u10``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", slot)]


def in_service(fleet: model.Fleet) -> dict[str, audits.Audit]:
    """Every node that may work, taken for in step: spares, new nodes and those in repair or held have no verdict."""
    from inventory import model  # late: a generated fleet needs no fleet files, and the models take a tenth of a second

    audit = audits.Audit(Verdict.ADMIT, "assumed", "assumed", 0.0)
    serving = [node for node in fleet.nodes if not node.spare and node.state is model.NodeState.IN_SERVICE]
    return {node.name: audit for node in serving}


def quiet_view(built: topology.Topology, known: audits.Audits | None = None) -> gates.View:
    """A view of an idle fleet without telemetry and events; without audits every node counts as in step."""
    return gates.View(
        built,
        occupancy.Occupancy(built),
        board.Board(built),
        known if known is not None else audits.Audits.trusted(built),
        gates.always_fresh(built),
        np.ones(built.numa.shape),
    )
