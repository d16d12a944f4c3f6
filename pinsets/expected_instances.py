"""Which GPUs a node should have, and which were seen. A missing one is named by its slot, never by an index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from lockstep.base.names import ComponentName
from pinsets import deviations
from pinsets.deviations import Deviation
from pinsets.facts import Coordinate, Fact, Layer
from pinsets.findings import Severity, Verdict
from pinsets.model import Lock

if TYPE_CHECKING:
    from inventory.model import Sku

__all__ = ["GPU", "judge"]

GPU: Final = ComponentName("gpu")
"""The device itself: there or not."""


def judge(
    facts: Mapping[Coordinate, Fact], seen: str | None, sku: Sku, lock: Lock
) -> tuple[tuple[Deviation, ...], dict[str, tuple[str, ...]]]:
    """(deviations, instances that are there, by kind).

    ``seen`` is the reading's ``gpus`` attribute: slot names, comma-separated; None
    when the GPUs could not be listed. That is no finding of its own while the driver
    is mute: the driver is the finding then.
    """
    expected = sku.slots("gpu")
    instances = sku.all_slots()
    if seen is None:
        # Without a pinned driver nothing else is a finding: then the list itself must be readable.
        needed = lock.pin("driver") is None or deviations.driver_answers(facts)
        return ((_unlisted(expected),) if expected and needed else ()), instances
    there = [name for name in seen.split(",") if name]
    if tuple(there) == expected:
        return (), instances
    present = set(there)
    missing = [name for name in expected if name not in present]
    strange = [name for name in there if name not in expected]
    instances["gpu"] = tuple(name for name in expected if name in present)
    return (*(_missing(name) for name in missing), *(_strange(name) for name in strange)), instances


def _at(slot: str) -> Coordinate:
    return Coordinate(GPU, Layer.RUNNING, slot)


def _missing(slot: str) -> Deviation:
    return Deviation(
        id="instance.missing",
        severity=Severity.BLOCK,
        verdict=Verdict.DRIFTED,
        coordinate=_at(slot),
        expected="present",
        observed="missing",
        cause="the GPU in this slot is not on the bus or not seen by the driver",
        remedy=f"look at {slot}: kernel log (Xid 79), reseat or replace; a reboot alone proves nothing",
    )


def _strange(name: str) -> Deviation:
    return Deviation(
        id="instance.unexpected",
        severity=Severity.WARN,
        verdict=Verdict.ADMIT,
        coordinate=_at(name),
        expected="no GPU there",
        observed="present",
        cause="the SKU's file does not name this PCI address",
        remedy="correct the SKU file, or look at the machine",
    )


def _unlisted(expected: tuple[str, ...]) -> Deviation:
    return Deviation(
        id="instance.unreadable",
        severity=Severity.BLOCK,
        verdict=Verdict.UNREADABLE,
        coordinate=Coordinate(GPU, Layer.RUNNING),
        expected=f"{len(expected)} GPUs",
        observed="unreadable: the GPUs could not be listed",
        cause="the vendor tool gave no list, though a driver runs",
        remedy="see the reading's reasons; `lockstep probe` shows the script",
    )
