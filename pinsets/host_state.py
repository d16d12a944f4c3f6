"""What makes a node unfit besides versions: packages not held, a library that shadows the installed one, a full disk.

Attributes of the reading say it (`bringup.parsers`); a reading without them says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from lockstep.base import limits
from lockstep.base.names import ComponentName
from pinsets import components
from pinsets.deviations import Deviation
from pinsets.facts import Coordinate, Fact, Layer, Version
from pinsets.findings import Severity, Verdict
from pinsets.model import Component, Enforce, Lock

__all__ = ["disks", "holds", "reads", "shadowed"]

_HOLD: Final = "hold."
_COPIES: Final = {"nccl": ("nccl.file", "nccl.copies"), "rccl": ("rccl.file", "rccl.copies")}
"""Component → (attribute with the file that the loader takes, attribute with all it could take, first one first)."""
_FILES: Final = frozenset(name for names in _COPIES.values() for name in names)
_MOUNTS: Final = ("/", "/var", "/tmp")  # noqa: S108 - names of file systems to look at
_SHARES: Final = (("used", "%"), ("inodes", "% of inodes"))


def reads(attribute: str) -> bool:
    """Whether `holds` or `shadowed` looks at it: part of what makes two nodes alike."""
    return attribute.startswith(_HOLD) or attribute in _FILES


def holds(
    facts: Mapping[Coordinate, Fact], attributes: Mapping[str, str], lock: Lock, found: Sequence[Deviation]
) -> Iterator[Deviation]:
    """A deviation for each pinned component whose installed packages are not held: the next upgrade moves them.

    Only where the pinned version is installed, and only what is ours to hold.
    """
    known = components.load()
    deviating = {one.coordinate for one in found}
    for pin in lock.pins:
        held = attributes.get(_HOLD + pin.component)
        place = Coordinate(ComponentName(pin.component), Layer.PACKAGE)
        entry = known.get(ComponentName(pin.component))
        if held not in ("no", "partial") or place in deviating or entry is None or entry.owner != "lockstep":
            continue
        if held == "partial" and _side_by_side(entry):
            continue
        fact = facts.get(place)
        if fact is None or not isinstance(fact.observation, Version) or not pin.accepts(fact.observation.value):
            continue
        # Held in part: what carries the version may be held all the same.
        quiet = pin.enforce is not Enforce.BLOCK or held == "partial"
        yield Deviation(
            id=f"pin.{pin.component}",
            severity=Severity.WARN if quiet else Severity.BLOCK,
            verdict=Verdict.ADMIT if quiet else Verdict.DRIFTED,
            coordinate=place,
            expected=f"{fact.observation.value}, held",
            observed="not held" if held == "no" else "held in part",
            cause="the package manager is free to replace it at the next upgrade",
            remedy=f"install {pin.component} {pin.version} again, which holds it",
        )


def _side_by_side(entry: Component) -> bool:
    """Whether a package's name holds its version (kernels): an older one beside the pinned one need not be held."""
    return any("{version}" in name for names in entry.packages.values() for name in names)


def shadowed(
    facts: Mapping[Coordinate, Fact], attributes: Mapping[str, str], found: Sequence[Deviation]
) -> tuple[Deviation, ...]:
    """``found`` in which a library that stands before the installed one is called so: no reinstall mends that."""
    return tuple(_shadow(facts, attributes, one) or one for one in found)


def _shadow(facts: Mapping[Coordinate, Fact], attributes: Mapping[str, str], one: Deviation) -> Deviation | None:
    place = one.coordinate
    if place is None or place.layer is not Layer.LIBRARY or not one.id.startswith("pin."):
        return None
    names = _COPIES.get(place.component)
    installed = facts.get(Coordinate(place.component, Layer.PACKAGE))
    if names is None or installed is None or not isinstance(installed.observation, Version):
        return None
    copies = [copy for copy in attributes.get(names[1], "").split(",") if copy]
    if len(copies) < 2 or installed.observation.value not in one.expected.split(" or "):
        return None
    first = attributes.get(names[0]) or copies[0]
    return replace(
        one,
        id=f"shadow.{place.component}",
        cause=f"the loader finds {first} before the installed {place.component}; it knows {', '.join(copies)}",
        remedy=f"remove {first}, or its folder from the loader's path; installing the package again changes nothing",
    )


def disks(attributes: Mapping[str, str]) -> tuple[Deviation, ...]:
    """One deviation for all of /, /var and /tmp that are full, in blocks or in inodes."""
    full = []
    for mount in _MOUNTS:
        for word, unit in _SHARES:
            share = attributes.get(f"disk.{mount}.{word}", "")
            if share.isdecimal() and int(share) >= limits.DISK_FULL_PERCENT:
                full.append((mount, f"{mount} {share} {unit}"))
    if not full:
        return ()
    return (
        Deviation(
            id="host.disk",
            severity=Severity.BLOCK,
            verdict=Verdict.DRIFTED,
            coordinate=None,
            expected=f"below {limits.DISK_FULL_PERCENT} %",
            observed=", ".join(text for _, text in full),
            cause="a full file system fails containers, logs and installs",
            remedy=f"make room on {', '.join(dict.fromkeys(mount for mount, _ in full))}",
        ),
    )
