"""With what hosts without a fleet file are compared: a pinset of the catalogue, one of them, or their majority."""

from __future__ import annotations

from dataclasses import dataclass

from inventory import load as inventory_load
from inventory import model
from inventory.model import Sku
from lockstep.base import errors
from lockstep.base.names import DomainName, NodeName, PoolName, Slot
from pinsets import canonical, compare, load, wishes
from pinsets.facts import NodeFacts, Snapshot
from pinsets.findings import Comparison
from pinsets.model import Lock

__all__ = ["Baseline", "of_pinset"]

POOL = PoolName("hosts")


@dataclass(frozen=True, slots=True)
class Baseline:
    """One node, a pinset with its SKU, or neither: the majority."""

    like: NodeName | None = None
    lock: Lock | None = None
    """Pins alone, without packages: nothing is installed from it."""
    sku: Sku | None = None

    def compare(self, snapshot: Snapshot) -> Comparison:
        """Every node of the snapshot against it. Raises `errors.InputError` when the one node is not there."""
        if self.lock is None or self.sku is None:
            return compare.compare_without_fleet(snapshot, self.like)
        expected = [compare.Expectation(_node(facts), self.sku, self.lock) for facts in snapshot.nodes.values()]
        return compare.compare(expected, snapshot)


def of_pinset(name: str, sku: str | None) -> Baseline:
    """The pins of a pinset of the catalogue; ``sku`` None: the one that it is made for.

    Raises `errors.InputError` for unknown names, for a SKU that the pinset is not made
    for, and when it is made for several and none is named.
    """
    pinset = load.pinset(name)
    if sku is None and len(pinset.sku) != 1:
        raise errors.InputError(
            f"pinset {name} is made for {', '.join(pinset.sku)}", place="--pinset", hint="say which with --sku"
        )
    wanted = sku or pinset.sku[0]
    if wanted not in pinset.sku:
        raise errors.InputError(
            f"pinset {name} is not made for {wanted}", place="--sku", hint=f"it is made for {', '.join(pinset.sku)}"
        )
    pins = wishes.pins(pinset)
    made_from = "0" * 64
    lock = Lock(
        pinset=name,
        os="any",
        sku=pinset.sku,
        pins=pins,
        packages=(),
        made_from=made_from,
        full=canonical.full(name, "any", pinset.sku, pins, [], [], made_from),
        job=canonical.job(pins),
    )
    return Baseline(lock=lock, sku=inventory_load.sku(wanted))


def _node(facts: NodeFacts) -> model.Node:
    """What a fleet file would declare of it: its domain is the fabric that it reports."""
    uuid, clique = facts.attributes.get("fabric.cluster-uuid"), facts.attributes.get("fabric.clique")
    domain = f"{uuid} {clique}" if uuid and clique and set(uuid) - set("0-") else facts.node
    return model.Node(facts.node, POOL, Slot(facts.node), facts.node, DomainName(domain))
