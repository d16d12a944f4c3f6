"""What a rule looks at: a coordinate's version, an attribute, a part of one, or what a table says of one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

from lockstep.base.names import ComponentName
from pinsets import normal_versions
from pinsets.facts import Absent, Coordinate, Layer, Observation, Unreadable, Version
from pinsets.rules import ordering

__all__ = [
    "EACH",
    "Attribute",
    "BuiltFor",
    "Lookup",
    "Operand",
    "Packaged",
    "Part",
    "Place",
    "Reading",
    "Row",
    "World",
    "short",
]

EACH: Final = "each"
"""Stands in a coordinate or an attribute's key for the instance that a rule with ``each`` looks at."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What an operand is on one node or in one set: a value, absent (neither value nor missing), or missing."""

    value: str | None = None
    raw: str = ""
    missing: str | None = None
    """Name and reason of what could not be read; the rule is undecided then."""
    places: tuple[Coordinate, ...] = ()
    order: str = ordering.DOTTED
    doubtful: bool = False

    @property
    def absent(self) -> bool:
        """Looked for and not there."""
        return self.value is None and self.missing is None

    def __str__(self) -> str:
        return self.value if self.value is not None else "absent" if self.absent else f"unreadable: {self.missing}"


class World(Protocol):
    """One node's facts, or a set of pins, with the instance that is looked at."""

    @property
    def instance(self) -> str | None:
        """Slot name of the instance; None for rules that look at a node as a whole."""

    def observe(self, coordinate: Coordinate) -> Observation | None:
        """The observation there; None where nobody looked."""

    def attribute(self, key: str) -> str | None:
        """An attribute; empty for something that was looked for and is not there, None for what was not read."""


@dataclass(frozen=True, slots=True)
class Place:
    """``component@layer``, or the first layer read of ``component@layer|layer``."""

    component: ComponentName
    layers: tuple[Layer, ...]
    each: bool = False
    """The instance that the rule looks at: ``component[each]@layer``."""

    def __str__(self) -> str:
        return f"{self.component}{'[each]' if self.each else ''}@{'|'.join(self.layers)}"

    def read(self, world: World) -> Reading:
        """The version at the first layer that has one; absent or missing where none has."""
        order = ordering.of_component(self.component)
        absent: Coordinate | None = None
        missing: Coordinate | None = None
        reason = "not read"
        for layer in self.layers:
            coordinate = Coordinate(self.component, layer, world.instance if self.each else None)
            seen = world.observe(coordinate)
            if isinstance(seen, Version):
                return Reading(seen.value, seen.raw, places=(coordinate,), order=order)
            if isinstance(seen, Unreadable):
                missing, reason = missing or coordinate, seen.reason if missing is None else reason
            elif isinstance(seen, Absent):
                absent = absent or coordinate
        if missing is None and absent is not None:
            return Reading(places=(absent,), order=order)
        where = missing or Coordinate(self.component, self.layers[0], world.instance if self.each else None)
        return Reading(missing=f"{where}: {reason}", places=(where,), order=order)


_KEY_PART = re.compile(r"<([^<>]+)>")


@dataclass(frozen=True, slots=True)
class Attribute:
    """A further reading by its key; ``<each>`` and ``<kernel@ondisk>`` in the key stand for what they name."""

    key: str
    inside: tuple[tuple[str, Place], ...] = ()
    """Coordinates in the key, by their text."""

    def __str__(self) -> str:
        return self.key

    def read(self, world: World) -> Reading:
        """The attribute's text."""
        key = self.key.replace(f"<{EACH}>", world.instance or "*")
        places: tuple[Coordinate, ...] = ()
        for text, place in self.inside:
            found = place.read(world)
            if found.value is None:
                return Reading(missing=found.missing or f"{text}: absent", places=found.places)
            key, places = key.replace(f"<{text}>", found.value), found.places
        value = world.attribute(key)
        if value is None:
            return Reading(missing=f"{key}: not read", places=places)
        return Reading(value or None, value, places=places)

    @property
    def pattern(self) -> str:
        """The key with ``*`` for what depends on node and instance."""
        return _KEY_PART.sub("*", self.key)


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the numbers of another operand: ``first`` and ``last`` count from 1."""

    of: Operand
    first: int
    last: int

    def __str__(self) -> str:
        return f"number {self.first}{f' to {self.last}' if self.last != self.first else ''} of {self.of}"

    def read(self, world: World) -> Reading:
        """The numbers, joined by points; missing where there are fewer."""
        whole = self.of.read(world)
        if whole.value is None:
            return whole
        parts = re.findall(r"[0-9A-Za-z]+", whole.value)[self.first - 1 : self.last]
        if len(parts) < self.last - self.first + 1:
            return Reading(missing=f"{self.of}: {whole.value!r} has too few numbers", places=whole.places)
        return Reading(".".join(parts), whole.raw, places=whole.places, doubtful=whole.doubtful)


@dataclass(frozen=True, slots=True)
class BuiltFor:
    """The CUDA that a build names behind its version: ``2.28.9-1+cuda13.0`` was built for 13.0."""

    of: Operand

    def __str__(self) -> str:
        return f"CUDA that {self.of} is built for"

    def read(self, world: World) -> Reading:
        """``13.0``; missing where the text does not say."""
        whole = self.of.read(world)
        if whole.value is None:
            return whole
        match = re.search(r"cuda-?(\d+(?:\.\d+)?)", whole.raw, re.IGNORECASE)
        if match is None:
            return Reading(missing=f"{self.of}: {whole.raw.strip()!r} does not name a CUDA", places=whole.places)
        return Reading(match[1], whole.raw, places=whole.places)


@dataclass(frozen=True, slots=True)
class Packaged:
    """The release of AMD's repository that a package's version ends in: ``6.16.6.30200100-…`` is of ``30.20.1``."""

    of: Operand

    def __str__(self) -> str:
        return f"repository release of {self.of}"

    def read(self, world: World) -> Reading:
        """``30.20.1``; missing where the text names none."""
        whole = self.of.read(world)
        if whole.value is None:
            return whole
        release = normal_versions.amdgpu_release(whole.raw.strip())
        if release == whole.value or not re.fullmatch(r"\d+(\.\d+)+", release):
            return Reading(missing=f"{self.of}: {whole.raw.strip()!r} does not name its release", places=whole.places)
        return Reading(release, whole.raw, places=whole.places)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table that is looked up: the first whose ranges hold gives its text."""

    when: tuple[ordering.Range, ...]
    gives: str
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a named table says of another operand: the CUDA of a driver branch, the default mode of a toolkit."""

    name: str
    of: Operand
    rows: tuple[Row, ...]

    def __str__(self) -> str:
        return f"{self.name} of {self.of}"

    def read(self, world: World) -> Reading:
        """The text of the first row that holds; missing for a version that is in none."""
        whole = self.of.read(world)
        if whole.value is None:
            return whole
        for row in self.rows:
            if any(one.holds(whole.order, whole.value) for one in row.when):
                return Reading(row.gives, whole.raw, places=whole.places, doubtful=row.doubtful or whole.doubtful)
        return Reading(missing=f"{self.name} has no line for {whole.value}", places=whole.places)


Operand = Place | Attribute | Part | BuiltFor | Packaged | Lookup


def short(operand: Operand) -> str:
    """An operand in few words, for findings: the component, the attribute, or the table that is asked."""
    match operand:
        case Place():
            return str(operand.component)
        case Attribute():
            return operand.key
        case Lookup():
            return operand.name
        case Part() | BuiltFor() | Packaged():
            return short(operand.of)
