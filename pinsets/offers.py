"""Pins that the sources of a pool cannot read: listed as not verified here, by choice, instead of held against a node.

A pool names its sources (`sources: [ssh, redfish]`). A BMC's firmware is read by Redfish alone; where a pool does not
name that, nobody looks, and every report says so. What a named source should have read and did not is unreadable.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from lockstep.base.names import ComponentName
from pinsets import components
from pinsets.deviations import Deviation
from pinsets.facts import NOT_OFFERED, Coordinate, Fact
from pinsets.findings import Severity, Verdict

__all__ = ["by_choice"]

_BEYOND_SSH: Final = ("Redfish", "nvfwupd", "nv show", "the maker's")
"""How the registry's `sources` of a component begin where nothing on the node itself tells it."""


@functools.cache
def _only_redfish(component: ComponentName) -> bool:
    entry = components.load().get(component)
    return entry is not None and bool(entry.sources) and all(one.startswith(_BEYOND_SSH) for one in entry.sources)


def by_choice(
    found: Sequence[Deviation], facts: Mapping[Coordinate, Fact], sources: Collection[str] | None
) -> tuple[Deviation, ...]:
    """``found`` with such gaps as infos. ``sources`` None: everything that is pinned must be read."""
    if sources is None or "redfish" in sources:
        return tuple(found)
    return tuple(_told(one) if _is_gap(one, facts) else one for one in found)


def _is_gap(one: Deviation, facts: Mapping[Coordinate, Fact]) -> bool:
    if one.coordinate is None or not one.id.startswith("unreadable.") or not _only_redfish(one.coordinate.component):
        return False
    fact = facts.get(one.coordinate)
    return fact is None or fact.observation == NOT_OFFERED


def _told(one: Deviation) -> Deviation:
    component = one.coordinate.component if one.coordinate is not None else ""
    return replace(
        one,
        id=f"not-verified.{component}",
        severity=Severity.INFO,
        verdict=Verdict.ADMIT,
        observed="not verified here, by choice",
        cause="only Redfish tells it, and the pool does not name that among its `sources:`",
        remedy="name redfish in `sources:` of the pool, with credentials of its BMCs",
    )
