"""From a planner's decision to what the ledger holds: the same devices, under the same conditions, and back.

The ledger's own predicate covers what records can tell (devices, shares, MIG slices, ways of
sharing, channel, tenants, CPU, memory, NICs). What else a decision rested on, the gates, is
asked again at commit through `conditions`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from placement import gates
from placement.ledger.records import Capacity, Grant, NodeGrant, Record, Refusal
from placement.ledger.reservations import Predicate
from placement.occupancy import Placed
from placement.planner import Decision, Planner
from placement.topology import WHOLE, Topology

__all__ = ["capacities", "conditions", "occupied", "parts"]

Names = Callable[[str, int], str]
"""(node, GPU index) → stable device id."""


def by_index(node: str, gpu: int) -> str:
    """Device ids of simulations; a cluster has UUIDs."""
    return f"{node}/gpu{gpu}"


def parts(topology: Topology, members: Iterable[Placed], names: Names = by_index) -> dict[str, tuple[NodeGrant, ...]]:
    """Domain → grants, one per node: what `reservations.Ledger.reserve` takes for a decision's ``members``."""
    per_node: dict[int, NodeGrant] = {}
    for item in members:
        more = NodeGrant(
            topology.names[item.node],
            tuple(
                Grant(names(topology.names[item.node], gpu), item.share, item.slices, item.sharing) for gpu in item.gpus
            ),
            item.cpu,
            item.memory,
            item.nics,
            item.channel,
            item.tenant,
            item.exclusive,
            item.sole,
        )
        there = per_node.get(item.node)
        per_node[item.node] = more if there is None else _added(there, more)
    found: dict[str, list[NodeGrant]] = {}
    for node in sorted(per_node):
        found.setdefault(topology.domains[topology.domain[node]], []).append(per_node[node])
    return {domain: tuple(grants) for domain, grants in found.items()}


def _added(one: NodeGrant, other: NodeGrant) -> NodeGrant:
    """Two members of one gang on one node; parts of one GPU add up."""
    grants = {grant.device: grant for grant in one.grants}
    for more in other.grants:
        there = grants.get(more.device, Grant(more.device, 0))
        grants[more.device] = Grant(more.device, there.share + more.share, there.slices | more.slices, more.sharing)
    return NodeGrant(
        one.node,
        tuple(grants.values()),
        one.cpu + other.cpu,
        one.memory + other.memory,
        one.nics + other.nics,
        one.channel or other.channel,
        one.tenant,
        one.exclusive,
        one.sole,
    )


def capacities(topology: Topology) -> dict[str, Capacity]:
    """What each node offers, for `reservations.Ledger`."""
    return {
        name: Capacity(int(topology.cpu[node]), int(topology.memory[node]), int(topology.nics[node]))
        for node, name in enumerate(topology.names)
    }


def conditions(planner: Planner, decision: Decision, clock: Callable[[], float]) -> Predicate:
    """The gates as a predicate for ``also`` of `reservations.Ledger.reserve`: asked anew at commit, node by node.

    A device that was shut, a node that changed its lock or went stale since the decision is
    refused with the gate's id and reason.
    """

    def asked(record: Record, wanted: Iterable[NodeGrant]) -> Refusal | None:
        planner.refresh(clock())
        here = {grant.node for grant in wanted}
        names = planner.view.topology.names
        members = [item for item in decision.members if names[item.node] in here]
        return next((found for item in members if (found := _shut(planner, decision, item)) is not None), None)

    return asked


def _shut(planner: Planner, decision: Decision, item: Placed) -> Refusal | None:
    view = planner.view
    name = view.topology.names[item.node]
    for gate in (*gates.DEVICE_GATES, *gates.REQUEST_GATES):
        passes = gate.passes(view, decision.request)
        if passes is None:
            continue
        row = passes[item.node]
        if not (row[list(item.gpus)].all() if passes.ndim == 2 and item.gpus else row.any()):
            return Refusal(name, f"{gate.id}: {gate.reason(view, decision.request, item.node)}")
    if view.audits.digest(item.node) != decision.digest:
        return Refusal(name, "audit.verdict: its job digest is another one than the gang's")
    return None


def occupied(topology: Topology, records: Iterable[Record], names: Names = by_index) -> list[Placed]:
    """Everything that records hold, for `occupancy.Occupancy`: a planner's view after a restart.

    Raises `errors.InputError` for nodes that the fleet does not have; devices that no node
    has (a GPU that was exchanged) hold nothing any more.
    """
    found = []
    for record in records:
        for hold in record.holds.values():
            for grant in hold.nodes:
                found += _members(topology, grant, names)
    return found


def _members(topology: Topology, grant: NodeGrant, names: Names) -> list[Placed]:
    node = topology.node(grant.node)
    index = {names(grant.node, gpu): gpu for gpu in range(int(topology.gpus[node]))}
    whole = tuple(index[item.device] for item in grant.grants if _plain(item) and item.device in index)
    pieces = [((index[item.device],), item) for item in grant.grants if not _plain(item) and item.device in index]
    first = Placed(
        node,
        whole,
        WHOLE if whole else 0,
        grant.cpu,
        grant.memory,
        grant.nics,
        channel=grant.channel,
        tenant=grant.tenant,
        exclusive=grant.exclusive,
        sole=grant.sole,
    )
    bare = dataclasses.replace(first, cpu=0, memory=0, nics=0, channel=False)
    parted = [
        dataclasses.replace(
            bare if number or whole else first,
            gpus=gpus,
            share=item.share,
            slices=item.slices,
            sharing=item.sharing,
        )
        for number, (gpus, item) in enumerate(pieces)
    ]
    return parted if parted and not whole else [first, *parted]


def _plain(grant: Grant) -> bool:
    """Whether it is the whole GPU, not cut into instances."""
    return grant.share == WHOLE and not grant.slices
