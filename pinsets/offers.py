"""Pins that the sources of a pool cannot read: listed as not verified here, by choice, instead of held against a node.

A pool names its sources (`sources: [ssh, redfish]`), and the registry says of each component which sources read it
(`readers:`). A BMC's firmware is read by Redfish alone; where a pool does not name that, nobody looks, and every report
says so. What a named source should have read and did not is unreadable.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pinsets import components
from pinsets.deviations import Deviation
from pinsets.facts import NOT_OFFERED, Coordinate, Fact
from pinsets.findings import Severity, Verdict

__all__ = ["by_choice"]

_REMEDIES: Final = {
    "redfish": "name redfish in `sources:` of the pool, with credentials of its BMCs",
    "kubernetes": "name kubernetes in `sources:` of the pool",
    "folder": "audit with `--facts FOLDER`, with what the maker's tool printed in it",
}


def by_choice(
    found: Sequence[Deviation], facts: Mapping[Coordinate, Fact], sources: Collection[str] | None
) -> tuple[Deviation, ...]:
    """``found`` with such gaps as infos, and as warnings where no source at all reads the thing.

    ``sources`` None: everything that is pinned must be read.
    """
    if sources is None:
        return tuple(found)
    return tuple(_told(one, sources) if _is_gap(one, facts) else one for one in found)


def _is_gap(one: Deviation, facts: Mapping[Coordinate, Fact]) -> bool:
    if one.coordinate is None or not one.id.startswith("unreadable."):
        return False
    fact = facts.get(one.coordinate)
    return fact is None or fact.observation == NOT_OFFERED


def _told(one: Deviation, sources: Collection[str]) -> Deviation:
    """``one`` itself where a source of the pool reads the component, or the node does: then somebody should have."""
    entry = components.load().get(one.coordinate.component) if one.coordinate is not None else None
    if entry is None or not {"ssh", *sources}.isdisjoint(entry.readers):
        return one
    told = replace(one, id=f"not-verified.{one.coordinate.component if one.coordinate else ''}", verdict=Verdict.ADMIT)
    if not entry.readers:
        return replace(
            told,
            severity=Severity.WARN,
            observed="not verified: no source of Lockstep reads it",
            cause="it is pinned, and nobody looks whether it is so",
            remedy=f"compare it by hand: {', '.join(entry.sources)}",
        )
    by = " and ".join(dict.fromkeys(entry.readers))
    return replace(
        told,
        severity=Severity.INFO,
        observed="not verified here, by choice",
        cause=f"read by {by} alone, which the pool does not name among its `sources:`",
        remedy=" or ".join(_REMEDIES[reader] for reader in entry.readers),
    )
