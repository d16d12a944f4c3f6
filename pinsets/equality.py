"""Whether a replaced machine may rejoin: every pinned coordinate equals the lock, and what its predecessor had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pinsets.facts import Coordinate, NodeFacts
from pinsets.model import Enforce, Lock, LockedPin

if TYPE_CHECKING:
    from inventory.model import Sku

__all__ = ["Difference", "compare", "version_map"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One coordinate that forbids rejoining."""

    coordinate: str
    current: str
    """A version, ``absent``, or ``unreadable: …``."""
    expected: str
    """What the lock pins, accepted values included."""
    predecessor: str | None
    """What the predecessor had when it was last admitted; None when nothing is recorded for it."""
    reason: str


def version_map(facts: NodeFacts, lock: Lock, sku: Sku) -> dict[str, str]:
    """Every pinned coordinate → what was read there, as text: what admission records.

    The map of a node that may rejoin holds versions only; ``absent`` and
    ``unreadable: …`` stand in it too, so that nothing is left out.
    """
    return {str(coordinate): str(facts.observation(coordinate)) for coordinate in sorted(_pinned(lock, sku), key=str)}


def compare(
    current: Mapping[str, str],
    lock: Lock,
    predecessor: Mapping[str, str] | None,
    sku: Sku,
    waived: Mapping[str, str] | None = None,
) -> list[Difference]:
    """Every difference that forbids rejoining; empty when the versions are equal.

    Only enforced pins count (``enforce: block``). A value that differs from the
    predecessor's is equal if the lock's ``accept:`` lists it, since a new board may
    carry newer one-way firmware, or if ``waived`` (coordinate → value) names it.
    ``predecessor`` None: none is recorded, the lock alone decides.
    """
    found: list[Difference] = []
    for coordinate, pin in sorted(_pinned(lock, sku).items(), key=lambda item: str(item[0])):
        if pin.enforce is not Enforce.BLOCK:
            continue
        text = str(coordinate)
        now = current.get(text, "unreadable: not read")
        before = predecessor.get(text) if predecessor is not None else None
        if (waived or {}).get(text) == now:
            continue
        reason = None
        if not pin.accepts(now):
            reason = "differs from the lock"
        elif predecessor is not None and before is None:
            reason = "no value of the predecessor is recorded"
        elif before is not None and before != now and not (pin.accept and pin.accepts(before)):
            # Where the lock accepts a list, both values are of that list and count as equal.
            reason = "differs from what the predecessor was admitted with"
        if reason is not None:
            found.append(Difference(text, now, " or ".join((pin.version, *pin.accept)), before, reason))
    return found


def _pinned(lock: Lock, sku: Sku) -> Mapping[Coordinate, LockedPin]:
    return lock.coordinates(sku.all_slots())
