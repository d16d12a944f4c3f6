"""What the sources here share: observations by their normal form, and the gaps of a source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lockstep.base.names import ComponentName, NodeName
from pinsets import components, normalisers
from pinsets.facts import NOT_OFFERED, Absent, Coordinate, Fact, Layer, Snapshot, Unreadable, Version

__all__ = ["fact", "with_gaps"]


def fact(
    component: str, layer: Layer, value: str | Absent | Unreadable, source: str, instance: str | None = None
) -> Fact:
    """One observation; text is brought into the component's normal form. The component must be registered."""
    name = ComponentName(component)
    assert name in components.load(), component  # noqa: S101 - a name in this package is wrong
    coordinate = Coordinate(name, layer, instance)
    if isinstance(value, (Absent, Unreadable)):
        return Fact(coordinate, value, source)
    return Fact(coordinate, Version(normalisers.normalise(component, value), value), source)


def with_gaps(snapshot: Snapshot, wanted: Mapping[NodeName, Iterable[Coordinate]], source: str) -> Snapshot:
    """Every coordinate of ``wanted`` that a reached node has no fact for becomes `not offered`."""
    nodes = {}
    for name, facts in snapshot.nodes.items():
        gaps = {
            coordinate: Fact(coordinate, NOT_OFFERED, source)
            for coordinate in wanted.get(name, ())
            if coordinate not in facts.facts
        }
        nodes[name] = replace(facts, facts={**facts.facts, **gaps}) if gaps and facts.unreachable is None else facts
    return Snapshot(snapshot.taken_at, nodes)
