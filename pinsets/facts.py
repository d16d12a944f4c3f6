"""What was observed: coordinates, facts, one node's facts, a snapshot of many.

Plain slotted dataclasses, not pydantic: a sweep of 10,000 nodes makes half a million facts.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lockstep.base.names import ComponentName, NodeName

__all__ = [
    "ABSENT",
    "NOT_OFFERED",
    "Absent",
    "Coordinate",
    "Fact",
    "Layer",
    "NodeFacts",
    "Observation",
    "Snapshot",
    "Unreadable",
    "Version",
]


class Layer(enum.StrEnum):
    """Where a version lives."""

    RUNNING = "running"
    ONDISK = "ondisk"
    """What runs after the next reload or reboot."""
    PACKAGE = "package"
    LIBRARY = "library"
    """What the loader path finds."""
    CONTAINER = "container"
    FLASHED = "flashed"
    """Written in firmware, not active yet."""


@dataclass(frozen=True, slots=True, order=True)
class Coordinate:
    """`component[instance]@layer`, the one way a place of a version is written."""

    component: ComponentName
    layer: Layer
    instance: str | None = None
    """The SKU's slot name (``gpu3``); None for what a node has once."""

    def __hash__(self) -> int:
        # Half a million of these are hashed in a sweep, and an enum's own hash is Python code.
        return hash((self.component, self.instance, self.layer._value_))

    def __str__(self) -> str:
        inner = f"[{self.instance}]" if self.instance is not None else ""
        return f"{self.component}{inner}@{self.layer.value}"

    @classmethod
    def parse(cls, text: str) -> Coordinate:
        """The inverse of ``str``. Raises ValueError."""
        head, at, layer = text.rpartition("@")
        if not at:
            raise ValueError(f"{text!r} is not component[instance]@layer")
        component, bracket, instance = head.partition("[")
        if not component or (bracket and (not instance.endswith("]") or len(instance) < 2)):
            raise ValueError(f"{text!r} is not component[instance]@layer")
        return cls(ComponentName(component), Layer(layer), instance[:-1] if bracket else None)


@dataclass(frozen=True, slots=True)
class Version:
    """A version or setting that was read."""

    value: str
    """Normalised by the component's normaliser; what is compared."""
    raw: str
    """As the source printed it; what is shown where it differs."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Absent:
    """Looked for and not there: a result of its own."""

    def __str__(self) -> str:
        return "absent"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Could not be read; never counts as a version nor as absent."""

    reason: str
    """For people: ``no answer in 8 s``, ``needs root``, ``not offered``."""

    @classmethod
    def silent(cls, seconds: float) -> Unreadable:
        """Of a command that did not end."""
        return cls(f"{_NO_ANSWER}{seconds:.0f} s")

    @property
    def is_silent(self) -> bool:
        """Whether a command did not end: a fault of the node, unlike a tool that is not offered or needs root."""
        return self.reason.startswith(_NO_ANSWER)

    def __str__(self) -> str:
        return f"unreadable: {self.reason}"


_NO_ANSWER: Final = "no answer in "

ABSENT: Final = Absent()
NOT_OFFERED: Final = Unreadable("not offered")
"""What a source has no word for: never absent, and no fault of the node."""
Observation = Version | Absent | Unreadable


@dataclass(frozen=True, slots=True)
class Fact:
    """One observation in one place at one time."""

    coordinate: Coordinate
    observation: Observation
    source: str
    """Command or file it was read from: ``ssh:/sys/module/nvidia/version``."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Everything one reading of one node gave."""

    node: NodeName
    observed_at: float
    """Unix time in seconds, of the reader's clock."""
    facts: Mapping[Coordinate, Fact] = field(default_factory=dict)
    unreachable: str | None = None
    """Class and reason when the node did not answer (``host key changed: …``); then `facts` is empty."""
    boot_id: str | None = None
    serial: str | None = None
    """Chassis serial; None when it could not be read."""
    busy: tuple[str, ...] | None = None
    """Processes that hold a GPU device, as ``pid command``; None: not known, which counts as busy."""
    admission: Mapping[str, object] | None = None
    """/var/lib/lockstep/admission.json of the node; None: there is none."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Further readings that are not versions: gpu uuid and serial by slot, cluster uuid, os name …"""
    others: tuple[Fact, ...] = ()
    """What further sources say where they disagree with `facts` (`pinsets.sources`); empty where all agree."""

    def observation(self, coordinate: Coordinate) -> Observation:
        """The observation there; Unreadable("not read") where the reading has none."""
        fact = self.facts.get(coordinate)
        return fact.observation if fact is not None else Unreadable("not read")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The facts of many nodes from one sweep."""

    taken_at: float
    """Unix time in seconds."""
    nodes: Mapping[NodeName, NodeFacts]
