"""A node that is as it should be → a draft of the pinset it holds. Pure.

What the node says of one component must be one value in every layer and, where the
registry calls instances alike, on every instance: a golden node that is out of step with
itself is no example.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lockstep.base.names import ComponentName
from pinsets import components, lint
from pinsets.drafts import Draft
from pinsets.facts import Absent, Fact, NodeFacts, Unreadable, Version
from pinsets.model import Component

__all__ = ["Disagreement", "draft"]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A component of which the node itself holds several values."""

    component: str
    values: tuple[tuple[str, tuple[str, ...]], ...]
    """Value → coordinates that hold it."""

    def __str__(self) -> str:
        return f"{self.component}: " + "; ".join(f"{value} at {', '.join(at)}" for value, at in self.values)


def draft(facts: NodeFacts, without: Collection[str] = ()) -> tuple[Draft, tuple[Disagreement, ...]]:
    """The pins of a node that answered, and where it disagrees with itself; ``without`` leaves components out."""
    moment = datetime.datetime.fromtimestamp(facts.observed_at, datetime.UTC)
    found = Draft(f"node {facts.node}, read {moment:%Y-%m-%dT%H:%M:%SZ}")
    disagreements = []
    read: dict[str, list[Fact]] = defaultdict(list)
    for coordinate in sorted(facts.facts):
        read[coordinate.component].append(facts.facts[coordinate])
    for name, entry in components.load().items():
        if name in lint.PRESENCE or not read.get(name):
            continue
        if name in without:
            found.leave(name, "left out by wish")
            continue
        disagreement = _component(found, name, entry, read[name])
        if disagreement is not None:
            disagreements.append(disagreement)
    return found, tuple(disagreements)


def _component(found: Draft, name: ComponentName, entry: Component, read: Sequence[Fact]) -> Disagreement | None:
    meant = [fact for fact in read if fact.coordinate.layer in entry.layers]
    # A component that is only found where a pin would not look by default is pinned where it was found.
    chosen = meant if any(isinstance(fact.observation, Version) for fact in meant) else list(read)
    for fact in chosen:
        if isinstance(fact.observation, Unreadable):
            found.leave(str(fact.coordinate), str(fact.observation))
    versions = [fact for fact in chosen if isinstance(fact.observation, Version)]
    if not versions:
        if all(isinstance(fact.observation, Absent) for fact in chosen):
            found.leave(name, "absent on the node")
        return None
    values: dict[str, list[Fact]] = defaultdict(list)
    for fact in versions:
        assert isinstance(fact.observation, Version)  # noqa: S101 - chosen above
        values[fact.observation.value].append(fact)
    if entry.instance is not None:
        # A slot that holds nothing beside others that do: a lost GPU, an empty bay.
        gone = [fact for fact in chosen if isinstance(fact.observation, Absent)]
        if gone := [fact for fact in gone if fact.coordinate.layer in {one.coordinate.layer for one in versions}]:
            held = [*((value, facts) for value, facts in sorted(values.items())), ("absent", gone)]
            return Disagreement(name, tuple((value, tuple(str(one.coordinate) for one in at)) for value, at in held))
    layers = tuple(
        layer for layer in (*entry.layers, *entry.further) if layer in {f.coordinate.layer for f in versions}
    )
    if len(values) > 1 and (entry.instance is None or entry.alike):
        listed = [(value, tuple(str(fact.coordinate) for fact in held)) for value, held in sorted(values.items())]
        return Disagreement(name, tuple(listed))
    if len(values) > 1:
        slots = {str(fact.coordinate.instance): value for value, held in values.items() for fact in held}
        source = f"{versions[0].source}; each slot has a value of its own"
        found.add(name, "", source, layers=layers, instances=dict(sorted(slots.items())))
    else:
        found.add(name, next(iter(values)), versions[0].source, package=_package(versions, name), layers=layers)
    return None


def _package(versions: Sequence[Fact], name: str) -> str | None:
    """The package's own version text, where the database was read and a pin needs it (epoch, suffix)."""
    if name == "kernel":
        # The package's name holds the version, its own number is another one.
        return None
    for fact in versions:
        seen = fact.observation
        if fact.coordinate.layer.value == "package" and isinstance(seen, Version) and seen.raw.strip() != seen.value:
            return seen.raw.strip()
    return None
