"""Waivers of one node against its deviations: what is put up with, what has expired, what waives nothing any more.

A waiver names one coordinate and one value. It never hides: the deviation stays in every
report as an info with the reason, and counts in full from the day after its last one.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pinsets import normalisers
from pinsets.deviations import Deviation
from pinsets.facts import Absent, Coordinate, Fact, Version
from pinsets.findings import Severity, Verdict

if TYPE_CHECKING:
    from inventory.model import Waiver

__all__ = ["applied", "current"]

_WAIVABLE: Final = ("pin.", "pending.", "instance.missing", "layer.")
"""What a value can be put up with for. Nothing waives what could not be read: it has no value."""


def current(waivers: Iterable[Waiver], day: datetime.date) -> dict[str, str]:
    """Coordinate → normal value, of the waivers that hold on ``day``: as `pinsets.equality` takes them."""
    return {waiver.coordinate: _value(waiver) for waiver in waivers if day <= waiver.expires}


def applied(
    found: Sequence[Deviation], waivers: Sequence[Waiver], facts: Mapping[Coordinate, Fact], day: datetime.date
) -> tuple[Deviation, ...]:
    """``found`` with the waived deviations as infos, and a finding for each waiver that has expired or waives nothing.

    ``day`` is the one on which the facts were read, in UTC.
    """
    if not waivers:
        return tuple(found)
    at = {waiver.coordinate: waiver for waiver in waivers}
    used: set[str] = set()
    result = []
    for deviation in found:
        waiver = at.get(str(deviation.coordinate)) if deviation.coordinate is not None else None
        if waiver is None or not deviation.id.startswith(_WAIVABLE) or not _covers(waiver, deviation, facts):
            result.append(deviation)
            continue
        used.add(waiver.coordinate)
        result.append(deviation if day > waiver.expires else _waived(deviation, waiver))
    for waiver in waivers:
        if day > waiver.expires:
            result.append(_expired(waiver, waiver.coordinate in used))
        elif waiver.coordinate not in used:
            result.append(_unused(waiver, facts))
    return tuple(result)


def _value(waiver: Waiver) -> str:
    coordinate = Coordinate.parse(waiver.coordinate)
    return waiver.value if waiver.value == "absent" else normalisers.normalise(coordinate.component, waiver.value)


def _covers(waiver: Waiver, deviation: Deviation, facts: Mapping[Coordinate, Fact]) -> bool:
    """Whether what was seen is exactly what is put up with."""
    if deviation.id == "instance.missing":
        return waiver.value == "absent"
    fact = facts.get(deviation.coordinate) if deviation.coordinate is not None else None
    seen = fact.observation if fact is not None else None
    if isinstance(seen, Absent):
        return waiver.value == "absent"
    return isinstance(seen, Version) and seen.value == _value(waiver)


def _waived(deviation: Deviation, waiver: Waiver) -> Deviation:
    return replace(
        deviation,
        id=f"waived.{deviation.id}",
        severity=Severity.INFO,
        verdict=Verdict.ADMIT,
        cause=f"waived until {waiver.expires.isoformat()}: {waiver.reason}",
        remedy=f"before then: {deviation.remedy}",
    )


def _expired(waiver: Waiver, deviates: bool) -> Deviation:
    return Deviation(
        id="waiver.expired",
        severity=Severity.WARN,
        verdict=Verdict.ADMIT,
        coordinate=Coordinate.parse(waiver.coordinate),
        expected=f"a waiver that holds, or {'no deviation' if deviates else 'none'}",
        observed=f"expired on {waiver.expires.isoformat()}",
        cause=f"{waiver.value} was put up with until then: {waiver.reason}",
        remedy="mend the node, or decide anew and give another date" if deviates else "remove it from the fleet file",
    )


def _unused(waiver: Waiver, facts: Mapping[Coordinate, Fact]) -> Deviation:
    coordinate = Coordinate.parse(waiver.coordinate)
    fact = facts.get(coordinate)
    return Deviation(
        id="waiver.unused",
        severity=Severity.INFO,
        verdict=Verdict.ADMIT,
        coordinate=coordinate,
        expected=waiver.value,
        observed=str(fact.observation) if fact is not None else "not read",
        cause=f"the value that is put up with is not there: {waiver.reason}",
        remedy="remove it from the fleet file, or correct its value",
    )
