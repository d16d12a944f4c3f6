"""The NVLink domain a node declares against the one its fabric reports, and whether the fabric of every GPU is up.

The key of a domain is (cluster uuid, clique id), never the clique alone. HGX boxes
report the zero uuid and clique 0, which is right there; on a tray of a rack it is a fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from lockstep.base.names import ComponentName, DomainName, NodeName
from pinsets import deviations
from pinsets.deviations import Deviation
from pinsets.facts import Coordinate, Layer, NodeFacts
from pinsets.findings import Severity, Verdict

if TYPE_CHECKING:
    from inventory.model import Node, Sku

__all__ = ["judge"]

ZERO_UUID: Final = "00000000-0000-0000-0000-000000000000"
DOMAIN: Final = Coordinate(ComponentName("nvlink.domain"), Layer.RUNNING)
Key = tuple[str, str]


def judge(nodes: Sequence[tuple[Node, Sku, NodeFacts | None]]) -> dict[NodeName, tuple[Deviation, ...]]:
    """Deviations of the nodes whose fabric disagrees, of SKUs with a fabric over nodes; nodes in order are left out."""
    found: dict[NodeName, tuple[Deviation, ...]] = {}
    keys: dict[NodeName, tuple[DomainName, Key]] = {}
    for node, sku, facts in nodes:
        if sku.nvlink == "none" or facts is None or facts.unreachable is not None:
            continue
        if (down := _down(facts, sku)) and deviations.driver_answers(facts.facts):
            found[node.name] = (_not_up(down),)
        if sku.nvlink != "rack":
            continue
        uuid, clique = facts.attributes.get("fabric.cluster-uuid"), facts.attributes.get("fabric.clique")
        if uuid is None or clique is None:
            # A switch tray has no GPU that could tell of a fabric.
            if sku.gpus and deviations.driver_answers(facts.facts):
                found[node.name] = (*found.get(node.name, ()), _unreadable(node.domain))
        elif ZERO_UUID in uuid:
            # The zero uuid says more than the state that goes with it.
            found[node.name] = (_zero(node.domain, facts.attributes.get("fabric.state")),)
        elif "," in uuid or "," in clique:
            found[node.name] = (
                *found.get(node.name, ()),
                _mismatch(node.domain, "one fabric for all GPUs", f"{uuid} clique {clique}"),
            )
        else:
            keys[node.name] = (node.domain, (uuid, clique))
    owners = _owners(keys)
    for name, (domain, key) in keys.items():
        expected = owners.get(domain)
        if expected != key:
            wanted = f"{expected[0]} clique {expected[1]}" if expected else "a fabric of its own"
            found[name] = (*found.get(name, ()), _mismatch(domain, wanted, f"{key[0]} clique {key[1]}"))
    return found


def _down(facts: NodeFacts, sku: Sku) -> dict[str, list[str]]:
    """State, or status of a completed one → slots whose fabric is not up. A state that nobody gave is no fault."""
    found: dict[str, list[str]] = {}
    attributes = facts.attributes
    for slot in sku.slots("gpu"):
        state = attributes.get(f"gpu.{slot}.fabric.state")
        status = attributes.get(f"gpu.{slot}.fabric.status", "Success")
        if state is not None and (state, status) != ("Completed", "Success"):
            found.setdefault(state if state != "Completed" else status, []).append(slot)
    if not found and (state := attributes.get("fabric.state")) not in (None, "Completed"):
        found[str(state)] = []
    if not found and (status := attributes.get("fabric.status", "Success")) != "Success":
        found[status] = []
    return found


def _owners(keys: dict[NodeName, tuple[DomainName, Key]]) -> dict[DomainName, Key]:
    """Which fabric each declared domain is: one that most of its nodes report, and no domain with more nodes claims."""
    votes = Counter(keys.values())
    owners: dict[DomainName, Key] = {}
    taken: set[Key] = set()
    for (domain, key), _ in sorted(votes.items(), key=lambda item: (-item[1], item[0])):
        if domain not in owners and key not in taken:
            owners[domain] = key
            taken.add(key)
    return owners


def _not_up(down: Mapping[str, Sequence[str]]) -> Deviation:
    told = "; ".join(f"{state} on {', '.join(slots)}" if slots else state for state, slots in sorted(down.items()))
    return Deviation(
        id="fabric.state",
        severity=Severity.BLOCK,
        verdict=Verdict.DRIFTED,
        coordinate=DOMAIN,
        expected="Completed, Success on every GPU",
        observed=told,
        cause="the NVLink fabric of these GPUs is not up, whatever the versions say",
        remedy="look at fabric manager, NVLSM and IMEX, then at the switches; a version check alone shows nothing here",
    )


def _mismatch(domain: DomainName, expected: str, observed: str) -> Deviation:
    return Deviation(
        id="domain.mismatch",
        severity=Severity.BLOCK,
        verdict=Verdict.DRIFTED,
        coordinate=DOMAIN,
        expected=f"{domain}: {expected}",
        observed=observed,
        cause="the NVLink fabric that the node reports is not the one its declared domain has",
        remedy="correct `domain:` in the fleet file, or look at cabling and the NVLink controller",
    )


def _zero(domain: DomainName, state: str | None) -> Deviation:
    return Deviation(
        id="domain.zero-uuid",
        severity=Severity.BLOCK,
        verdict=Verdict.DRIFTED,
        coordinate=DOMAIN,
        expected=f"{domain}: a fabric with a cluster uuid",
        observed=f"the all-zero cluster uuid{f', fabric state {state}' if state else ''}",
        cause="the tray is not part of its rack's fabric",
        remedy="look at the NVLink controller and the switch trays",
    )


def _unreadable(domain: DomainName) -> Deviation:
    return Deviation(
        id="domain.unreadable",
        severity=Severity.BLOCK,
        verdict=Verdict.UNREADABLE,
        coordinate=DOMAIN,
        expected=f"{domain}: a fabric with a cluster uuid",
        observed="unreadable: no fabric state, though a driver runs",
        cause="the vendor tool gave no fabric state",
        remedy="see the reading's reasons; `lockstep probe` shows the script",
    )
