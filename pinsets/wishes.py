"""What a pinset asks for on an OS: pins with layers filled in and values normalised, and the packages that carry them.

Both `pinsets.locking`, which resolves it, and `pinsets.load`, which tells a stale lock, start from here.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.base.names import ComponentName
from pinsets import canonical, components, normalisers
from pinsets.facts import Layer
from pinsets.model import LockedPin, Pin, Pinset

__all__ = ["Carrier", "carriers", "digest", "pins", "written"]


@dataclass(frozen=True, slots=True)
class Carrier:
    """The packages that must bring one pin."""

    component: str
    version: str
    """Normalised."""
    packages: tuple[str, ...]
    """The first one names the version."""
    exact: str | None
    """Exact version of the first package; None: the one whose normal form is `version`."""
    named: bool
    """The first package's name holds the version (kernels): its own version is another number."""


def pins(pinset: Pinset) -> tuple[LockedPin, ...]:
    """The pins of a pinset (bases merged), sorted by component. Components must be registered: lint comes first."""
    return tuple(_locked(component, pin) for component, pin in sorted(pinset.pins.items()))


def _locked(name: str, pin: Pin) -> LockedPin:
    component = components.load()[ComponentName(name)]
    values = list(
        dict.fromkeys(
            normalisers.normalise(name, raw) for raw in (*([pin.version] if pin.version else ()), *pin.accept)
        )
    )
    return LockedPin(
        component=name,
        layers=pin.layers or component.layers,
        version=values[0] if values else "",
        accept=tuple(values[1:]),
        instances={slot: normalisers.normalise(name, raw) for slot, raw in pin.instances.items()},
        instance=component.instance,
        activation=component.activation,
        enforce=pin.enforce,
        scope=pin.scope,
    )


def written(pin: LockedPin) -> str:
    """What a pin asks for, for people: ``A or B``, and slots that have a version of their own."""
    values = " or ".join(one for one in (pin.version, *pin.accept) if one)
    slots = ", ".join(f"{slot} {value}" for slot, value in pin.instances.items())
    return f"{values}; {slots}" if values and slots else values or slots


def carriers(pinset: Pinset, os: str) -> tuple[Carrier, ...]:
    """The packages that bring the pins.

    Left out are components that no package brings (firmware, the OS itself), and pins
    that do not name the layer ``package``: a driver that an operator's container
    brings must not be installed on the host as well.
    """
    found = []
    wanted = pins(pinset)
    cuda = next((pin.version for pin in wanted if pin.component == "cuda"), None)
    for pin in wanted:
        component = components.load()[ComponentName(pin.component)]
        packages = components.carriers(component, os, pin.version, cuda)
        if packages and Layer.PACKAGE in pin.layers:
            found.append(
                Carrier(
                    pin.component,
                    pin.version,
                    packages,
                    pinset.pins[pin.component].package,
                    components.named_by_version(component, os),
                )
            )
    return tuple(found)


def without_carrier(pinset: Pinset, os: str) -> tuple[str, ...]:
    """Components pinned in layer ``package`` for which the registry names no package on that OS."""
    carried = {carrier.component for carrier in carriers(pinset, os)}
    return tuple(pin.component for pin in pins(pinset) if Layer.PACKAGE in pin.layers and pin.component not in carried)


def digest(pinset: Pinset, os: str) -> str:
    """sha256 of the wish: a lock made from another one is stale."""
    listed = {
        carrier.component: [*carrier.packages, f"={carrier.exact}"] if carrier.exact else list(carrier.packages)
        for carrier in carriers(pinset, os)
    }
    return canonical.wish(os, pinset.sku, pins(pinset), listed)
