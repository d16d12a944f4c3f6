"""One node's answer → `NodeFacts`: every coordinate of the registry that the probe can read, and what goes with it.

The tables are by family: `node_host`, `node_nvidia`, `node_libraries`, `node_nics`, `node_amd`. Keys of the
attributes are listed in docs/facts/ssh.md.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping

from bringup.parsers import host, node_amd, node_host, node_libraries, node_nics, node_nvidia, packages, parsed, smi
from bringup.parsers.parsed import Item, Parsed, Slots
from bringup.parsers.records import Answer
from bringup.parsers.texts import Raw
from inventory.model import Sku
from lockstep.base.names import ComponentName, NodeName
from pinsets import normalisers
from pinsets.facts import Absent, Coordinate, Fact, Layer, NodeFacts, Observation, Unreadable, Version
from pinsets.model import Component

__all__ = ["facts", "interned", "unreachable"]


def facts(
    node: NodeName,
    answer: Answer,
    components: Mapping[ComponentName, Component],
    *,
    sku: Sku | None,
    observed_at: float,
) -> NodeFacts:
    """Everything that the answer says. ``sku`` names the slots; without one devices go by PCI address."""
    if answer.problem is not None:
        return unreachable(node, f"bad output: {answer.problem}", observed_at)
    read = parsed.parse(answer)
    slots = parsed.slots_of(sku)
    found = {fact.coordinate: fact for fact in _facts(read, components, slots)}
    gpus = read.seen.gpus if isinstance(read.seen, smi.Smi) else ()
    chassis = next((gpu.chassis for gpu in gpus if gpu.chassis), None)
    user = 0 if read.rooted == "sudo" else host.uid(read.files)
    return NodeFacts(
        node=node,
        observed_at=observed_at,
        facts=found,
        boot_id=host.boot_id(read.files),
        serial=host.serial(read.files, read.answer.get("serial"), chassis),
        busy=host.busy(read.holders, user, sku.daemons if sku is not None else ()),
        admission=host.admission(read.files),
        # Of 10,000 nodes nearly all say the same: each text is kept once.
        attributes={sys.intern(key): sys.intern(value) for key, value in _attributes(read, components, slots)},
    )


def unreachable(node: NodeName, reason: str, observed_at: float) -> NodeFacts:
    """A node that gave no answer that can be used."""
    return NodeFacts(node=node, observed_at=observed_at, unreachable=reason)


def _items(read: Parsed, slots: Slots) -> Iterator[Item]:
    yield from node_host.items(read)
    yield from node_nvidia.items(read, slots)
    yield from node_libraries.items(read)
    yield from node_nics.items(read, slots)
    yield from node_amd.items(read, slots)


def _facts(read: Parsed, components: Mapping[ComponentName, Component], slots: Slots) -> Iterator[Fact]:
    for name, layer, instance, value, source in _items(read, slots):
        component = ComponentName(name)
        if component in components and not _not_asked(value):
            yield _fact(component, layer, instance, value, source)
    family = _family(read)
    database = "rpm" if family == "rhel" else "dpkg-query"
    for component, entry in components.items():
        package = packages.version_of(read.database, _carriers(entry, family))
        if package is not None and not _not_asked(package):
            yield _fact(component, Layer.PACKAGE, None, package, database)


def _not_asked(value: Raw) -> bool:
    """What the probe of that reading did not have makes no fact, as of a source that does not know the thing."""
    return isinstance(value, Unreadable) and value.reason == host.NOT_ASKED


_LIKE = {"ubuntu": "debian"}


def _carriers(component: Component, family: str) -> tuple[str, ...]:
    return component.packages.get(family) or component.packages.get(_LIKE.get(family, ""), ())


def _family(read: Parsed) -> str:
    """Key of the registry's packages: the distribution where it has its own, else the family of its database."""
    if not isinstance(read.os, Unreadable) and read.os.get("ID") == "ubuntu":
        return "ubuntu"
    return read.database.family if isinstance(read.database, packages.Packages) else "debian"


def _fact(component: ComponentName, layer: Layer, instance: str | None, value: Raw, source: str) -> Fact:
    return Fact(Coordinate(component, layer, instance), _observation(component, value), f"ssh:{source}")


def _observation(component: ComponentName, value: Raw) -> Observation:
    if isinstance(value, (Absent, Unreadable)):
        return value
    return Version(normalisers.normalise(component, value), value)


def _attributes(read: Parsed, components: Mapping[ComponentName, Component], slots: Slots) -> Iterator[tuple[str, str]]:
    yield from node_host.attributes(read)
    yield from node_nvidia.attributes(read, slots)
    yield from node_libraries.attributes(read)
    yield from node_nics.attributes(read, slots)
    yield from node_amd.attributes(read, slots)
    family = _family(read)
    locked = packages.version_locks(read.files)
    for component, entry in components.items():
        mark = packages.held(read.database, _carriers(entry, family), locked)
        if mark is not None:
            yield f"hold.{component}", mark


def interned(node: NodeFacts, pool: dict[tuple[Fact, ...], Mapping[Coordinate, Fact]]) -> NodeFacts:
    """The same with one mapping for all nodes that read alike: of 10,000 nodes in step nearly all do."""
    return dataclasses.replace(node, facts=pool.setdefault(tuple(node.facts.values()), node.facts))
