"""Instances of one node against each other: GPUs of one tray that differ in what no pin names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from lockstep.base.names import ComponentName
from pinsets import components
from pinsets.deviations import Deviation
from pinsets.facts import Coordinate, Fact, Layer, Version
from pinsets.findings import Severity, Verdict

__all__ = ["unlike"]

_LAYERS: Final = (Layer.RUNNING, Layer.FLASHED)


def unlike(facts: Mapping[Coordinate, Fact], pinned: Collection[str], *, alone: bool) -> tuple[Deviation, ...]:
    """A deviation for each value of a component whose instances must hold one (`alike`) that most of them do not have.

    ``pinned`` components are left out: their pin says what is right. ``alone``: nothing but the node itself tells what
    is right (no lock), so that it is skew; beside a lock it is a warning.
    """
    known = components.load()
    values: dict[tuple[ComponentName, Layer], dict[Coordinate, str]] = {}
    for place, fact in facts.items():
        if place.instance is None or place.layer not in _LAYERS or place.component in pinned:
            continue
        entry = known.get(place.component)
        if entry is not None and entry.alike and isinstance(fact.observation, Version):
            values.setdefault((place.component, place.layer), {})[place] = fact.observation.value
    found = []
    for (component, _), held in values.items():
        counts = Counter(held.values())
        if len(counts) < 2:
            continue
        common, most = max(counts.items(), key=lambda item: (item[1], item[0]))
        for value in sorted(set(counts) - {common}):
            places = sorted(place for place, seen in held.items() if seen == value)
            found.append(
                Deviation(
                    id=f"instance.skew.{component}",
                    severity=Severity.BLOCK if alone else Severity.WARN,
                    verdict=Verdict.SKEWED if alone else Verdict.ADMIT,
                    coordinate=places[0],
                    expected=f"{common}, as in {most} of {len(held)} of this node",
                    observed=f"{value} in {', '.join(str(place.instance) for place in places)}",
                    cause="parts of one machine that must be alike are not",
                    remedy=f"bring {component} of this node to one version",
                )
            )
    return tuple(found)
