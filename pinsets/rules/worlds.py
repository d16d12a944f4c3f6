"""What rules are asked about: one node's facts, or a set of pins. Both give coordinates and attributes.

A few attributes are derived where the reading has none: the product from the SKU,
the architecture and the kind of fabric from the product (`products`).
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

from lockstep.base.names import ComponentName
from pinsets import normalisers
from pinsets.facts import Coordinate, Layer, NodeFacts, Observation, Version
from pinsets.model import Lock
from pinsets.rules import products
from pinsets.rules.operands import World

if TYPE_CHECKING:
    from inventory.model import Sku

__all__ = ["BASE_ATTRIBUTES", "Context", "NodeWorld", "Readable", "SetWorld", "instances"]

BASE_ATTRIBUTES: Final = ("gpu.product", "gpu.*.product", "gpu.architecture", "gpu.*.architecture", "fabric.state")
"""What derived attributes are made from."""


@dataclass(frozen=True, slots=True)
class Context:
    """What is known beside the facts."""

    sku: Sku | None = None
    lock: Lock | None = None
    level: Literal["node", "domain", "pool"] = "pool"
    """Which rules `of_group` applies."""


class Readable(World, Protocol):
    """A world that also lists all instances of a component."""

    def values(self, component: ComponentName, layer: Layer) -> Sequence[str]:
        """Normal forms read at that layer, of every instance."""


@dataclass(frozen=True, slots=True)
class NodeWorld:
    """One node's facts."""

    facts: NodeFacts
    context: Context
    instance: str | None = None

    def observe(self, coordinate: Coordinate) -> Observation | None:
        """The observation there, None where nobody looked."""
        fact = self.facts.facts.get(coordinate)
        return fact.observation if fact is not None else None

    def attribute(self, key: str) -> str | None:
        """An attribute as it was read, else derived."""
        if "*" in key:
            found = [text for name, text in self.facts.attributes.items() if fnmatch.fnmatchcase(name, key)]
            return ",".join(sorted(set(found))) if found else None
        given = self.facts.attributes.get(key)
        return given if given is not None else _derived(key, self, self.context)

    def values(self, component: ComponentName, layer: Layer) -> list[str]:
        """Normal forms read at that layer, of every instance, each once."""
        found = {
            fact.observation.value: None
            for coordinate, fact in self.facts.facts.items()
            if coordinate.component == component and coordinate.layer is layer and isinstance(fact.observation, Version)
        }
        return list(found)


@dataclass(frozen=True, slots=True)
class SetWorld:
    """A set of pins: component → version as written. Every layer holds what is pinned; nothing is absent."""

    pins: Mapping[str, str]
    context: Context
    instance: str | None = None

    def observe(self, coordinate: Coordinate) -> Observation | None:
        """What is pinned, None for a component without a pin."""
        raw = self.pins.get(coordinate.component)
        return None if raw is None else Version(normalisers.normalise(coordinate.component, raw), raw)

    def attribute(self, key: str) -> str | None:
        """Only what the SKU tells."""
        return _derived(key, self, self.context)

    def values(self, component: ComponentName, layer: Layer) -> list[str]:
        """What is pinned."""
        seen = self.observe(Coordinate(component, layer))
        return [seen.value] if isinstance(seen, Version) else []


def instances(facts: NodeFacts, components: Sequence[ComponentName]) -> list[str]:
    """Slot names of the instances that were read of these components, sorted."""
    wanted = set(components)
    return sorted({place.instance for place in facts.facts if place.component in wanted and place.instance is not None})


def _derived(key: str, world: NodeWorld | SetWorld, context: Context) -> str | None:
    sku = context.sku
    match key:
        case "gpu.product":
            read = world.attribute("gpu.*.product") if isinstance(world, NodeWorld) else None
            return read or (sku.accelerator if sku is not None else None)
        case "gpu.architecture":
            read = world.attribute("gpu.*.architecture") if isinstance(world, NodeWorld) else None
            product = world.attribute("gpu.product")
            return read or (products.architecture(product) if product is not None else None)
        case "gpu.vendor":
            product = world.attribute("gpu.product")
            named = products.vendor(product) if product is not None else None
            return named or (sku.vendor if sku is not None else None)
        case "gpu.fabric":
            return sku.nvlink if sku is not None else _fabric(world)
        case _:
            return None


def _fabric(world: NodeWorld | SetWorld) -> str | None:
    """``rack``, ``node`` or ``none`` by what the GPUs say of their fabric, without a SKU."""
    product, state = world.attribute("gpu.product"), world.attribute("fabric.state")
    if product is None or state is None:
        return None
    if state.casefold() in ("n/a", "not supported", "none", ""):
        return "none"
    return "rack" if products.in_rack(product) else "node"
