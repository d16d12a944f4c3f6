"""Component, pin, pinset and lock: the files' form and the values the rest works with."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from lockstep.base.documents import Model
from lockstep.base.names import ComponentName, InstanceKind
from pinsets.facts import Coordinate, Layer

__all__ = [
    "Activation",
    "Component",
    "ComponentsFile",
    "Enforce",
    "Lock",
    "LockedPackage",
    "LockedPin",
    "Pin",
    "Pinset",
    "Scope",
]


class Enforce(enum.StrEnum):
    """What a deviation from a pin is."""

    BLOCK = "block"
    WARN = "warn"
    INFO = "info"


class Scope(enum.StrEnum):
    """Who must agree on a pin: the ``job`` digest is over the pins of scope job and domain."""

    NODE = "node"
    JOB = "job"
    DOMAIN = "domain"


class Activation(enum.StrEnum):
    """The act after which what is on disk runs."""

    NONE = "none"
    RELOAD = "reload"
    RESET = "reset"
    REBOOT = "reboot"
    POWER_CYCLE = "power-cycle"


class Component(Model):
    """One entry of ``components.yaml``, the one registry of versioned things and settings."""

    layers: Annotated[
        tuple[Layer, ...], Field(description="Layers a pin means when it names none; worst first in reports.")
    ]
    further: Annotated[
        tuple[Layer, ...],
        Field(description="Layers that can be read and pinned too, and are not meant by a pin that names none."),
    ] = ()
    instance: Annotated[
        InstanceKind | None, Field(description="One per such instance of the SKU; None: one per node.")
    ] = None
    alike: Annotated[
        bool, Field(description="Instances of one node must hold one value; false: each slot has its own right value.")
    ] = False
    normaliser: Annotated[str, Field(description="Name of a function in `pinsets.normalisers`.")] = "plain"
    activation: Annotated[Activation, Field(description="Act after which the version on disk runs.")] = Activation.NONE
    owner: Annotated[
        Literal["lockstep", "gpu-operator", "network-operator", "image", "vendor", "tenant"],
        Field(description="Who changes it on a node."),
    ] = "lockstep"
    packages: Annotated[
        dict[str, tuple[str, ...]],
        Field(description="OS family (`debian`, `rhel`) → packages that carry it, the first one names the version."),
    ] = {}
    readers: Annotated[
        tuple[Literal["ssh", "redfish", "kubernetes", "folder"], ...],
        Field(description="Sources of facts that read it; none: nobody does, a pin of it is not verified."),
    ] = ("ssh",)
    sources: Annotated[tuple[str, ...], Field(description="What it is read from, for `pin show`.")] = ()
    why: Annotated[str, Field(description="What breaks when it is skewed.")] = ""


class ComponentsFile(Model):
    """``components.yaml``."""

    components: dict[str, Component]


class Pin(Model):
    """One line of a pinset: a component and its exact version."""

    version: Annotated[str | None, Field(description="Exact version; ranges are refused.")] = None
    accept: Annotated[
        tuple[str, ...], Field(description="Further exact versions that count as equal; needs `source`.")
    ] = ()
    instances: Annotated[
        dict[str, str],
        Field(description="Slot name → exact version, where slots of one machine have right versions of their own."),
    ] = {}
    layers: Annotated[tuple[Layer, ...] | None, Field(description="None: the component's default layers.")] = None
    package: Annotated[
        str | None, Field(description="Exact package version where it differs from `version` (epoch, suffix).")
    ] = None
    enforce: Annotated[Enforce, Field(description="What a deviation is.")] = Enforce.BLOCK
    scope: Annotated[Scope, Field(description="Who must agree: node, job or domain.")] = Scope.NODE
    why: Annotated[str, Field(description="Why this version.")] = ""
    source: Annotated[str, Field(description="Where the value was published.")] = ""

    @model_validator(mode="after")
    def _has_a_version(self) -> Pin:
        if self.version is None and not self.accept and not self.instances:
            raise ValueError("give `version` (exact), `accept` with a short list, or `instances` by slot")
        if self.accept and not self.source:
            raise ValueError("`accept` needs `source`: who says that these are equal")
        return self


class Pinset(Model):
    """A coherent set of pins for one SKU: a file of ``catalog/``."""

    pinset: Annotated[str, Field(description="Name, equal to the file's.")]
    sku: Annotated[tuple[str, ...], Field(description="SKUs that it is made for.")]
    base: Annotated[str | None, Field(description="Pinset whose pins hold where this one names none.")] = None
    source: Annotated[str, Field(description="Where the set was published.")] = ""
    supported: Annotated[str, Field(description="Support dates, `2026-09 – 2027-09`.")] = ""
    pins: Annotated[dict[str, Pin], Field(description="Component → pin.")]
    rules: Annotated[dict[str, str], Field(description="Rule id waived → reason.")] = {}


class LockedPin(Model):
    """A pin with layers filled in and values normalised."""

    component: str
    layers: tuple[Layer, ...]
    version: str
    """Normalised; the first accepted value when the pin only accepts a list."""
    accept: tuple[str, ...] = ()
    """Further normalised values that count as equal."""
    instances: dict[str, str] = {}
    """Slot name → normalised version, for slots that have one of their own; `at` gives the pin of one slot."""
    instance: InstanceKind | None = None
    activation: Activation = Activation.NONE
    enforce: Enforce = Enforce.BLOCK
    scope: Scope = Scope.NODE

    def at(self, slot: str | None) -> LockedPin:
        """The pin as it holds for one slot: what `accepts` is asked of."""
        if slot is None or slot not in self.instances:
            return self
        return self.model_copy(update={"version": self.instances[slot], "accept": (), "instances": {}})

    def accepts(self, value: str) -> bool:
        """Whether a normalised value equals the pin."""
        return value == self.version or value in self.accept


class LockedPackage(Model):
    """One package file, exact."""

    name: str
    version: str
    filename: str
    """Path below the repository's root."""
    sha256: str
    size: int
    """Bytes."""
    pinned: bool
    """Carries a pin; False: only part of the closure."""


class Lock(Model):
    """A pinset resolved to artifacts for one OS: ``locks/PINSET@OS.json``."""

    pinset: str
    os: str
    sku: tuple[str, ...]
    pins: tuple[LockedPin, ...]
    """Sorted by component."""
    packages: tuple[LockedPackage, ...]
    """Sorted by name."""
    external: tuple[str, ...] = ()
    """Dependencies that no repository of the fleet holds, as `name (relation)`: the OS image brings them."""
    made_from: str
    """sha256 of what the pinset asked for; differs from the pinset's own now: the lock is stale."""
    full: str
    """sha256 (64 hex) over everything above, canonical JSON."""
    job: str
    """sha256 over the pins whose scope is job or domain."""

    def pin(self, component: str) -> LockedPin | None:
        """The pin of a component, None where the lock has none."""
        return next((pin for pin in self.pins if pin.component == component), None)

    def coordinates(self, instances: Mapping[str, tuple[str, ...]]) -> dict[Coordinate, LockedPin]:
        """Every coordinate the lock pins; ``instances`` maps a kind to the SKU's slot names."""
        found: dict[Coordinate, LockedPin] = {}
        for pin in self.pins:
            names: tuple[str | None, ...] = (None,) if pin.instance is None else instances.get(pin.instance, ())
            for layer in pin.layers:
                for name in names:
                    found[Coordinate(ComponentName(pin.component), layer, name)] = pin.at(name)
        return found
