"""Deviations that are known already: those of an earlier report (``--baseline``) or of an earlier time (``--since``).

They are counted and not shown again. What could not be measured is never known: a node that does not answer today
may hide anything.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pydantic

from bringup import audit, report, stored
from lockstep.base import errors, quantities
from lockstep.base.names import NodeName
from lockstep.base.settings import Settings
from pinsets import snapshots
from pinsets.facts import Snapshot
from pinsets.findings import Comparison, Finding, NodeVerdict

__all__ = ["Keys", "before", "moment", "of_comparisons", "of_report", "without"]

Keys = frozenset[tuple[str, str, str, str]]
"""(node, kind of finding, coordinate, observed)."""


def of_report(path: Path) -> Keys:
    """From a report that ``--format json`` wrote. Raises `errors.InputError` when it is none."""
    try:
        given = report.AuditReport.model_validate_json(path.read_bytes())
    except OSError as error:
        raise errors.InputError(f"cannot be read: {error.strerror}", place=str(path)) from error
    except pydantic.ValidationError as error:
        raise errors.InputError(
            f"this is no audit report: {error.errors()[0]['msg']}",
            place=str(path),
            hint="write one with `lockstep audit … --format json --output FILE`",
        ) from error
    return frozenset(
        (node, one.id, one.coordinate or "", one.observed)
        for pool in given.pools
        for one in pool.findings
        for node in one.nodes
    )


def of_comparisons(comparisons: Iterable[Comparison]) -> Keys:
    """From comparisons of an earlier snapshot."""
    return frozenset(
        _key(node, finding) for found in comparisons for finding in found.findings for node in finding.nodes
    )


def moment(text: str, now: float) -> float:
    """``24h``, ``7d`` before ``now``, or a date or time in ISO form (UTC unless it says otherwise), as Unix time.

    Raises `errors.InputError` for anything else.
    """
    if re.fullmatch(r"[\ddhms ]+", text):
        try:
            return now - quantities.parse_duration_seconds(text)
        except ValueError as error:
            raise errors.InputError(str(error), place="--since") from error
    try:
        given = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise errors.InputError(
            f"{text!r} is no time", place="--since", hint="write 24h, 7d, 2026-11-30 or 2026-11-30T08:00"
        ) from error
    return (given if given.tzinfo is not None else given.replace(tzinfo=datetime.UTC)).timestamp()


def before(settings: Settings, fleet: str, when: float) -> tuple[Snapshot, Path]:
    """The newest stored snapshot that is not younger. Raises `errors.NotMeasuredError` when none is that old."""
    path = stored.before(settings, fleet, when)
    if path is None:
        raise errors.NotMeasuredError(
            f"no stored snapshot of fleet {fleet} is that old", place="--since", hint="name a later time"
        )
    return snapshots.read(path), path


def _key(node: str, finding: Finding) -> tuple[str, str, str, str]:
    return node, finding.id, str(finding.coordinate or ""), finding.observed


def without(found: audit.Audit, known: Keys, source: str) -> audit.Audit:
    """The audit without what is known; how much that was, and from where, is kept in it."""
    hidden = 0
    pools = []
    for pool in found.pools:
        reduced: dict[int, Finding | None] = {}
        for finding in pool.comparison.findings:
            fresh = tuple(node for node in finding.nodes if not _hides(known, node, finding))
            hidden += len(finding.nodes) - len(fresh)
            if len(fresh) < len(finding.nodes):
                reduced[id(finding)] = dataclasses.replace(finding, nodes=fresh) if fresh else None
        pools.append(dataclasses.replace(pool, comparison=_reduced(pool.comparison, reduced)))
    return dataclasses.replace(found, pools=tuple(pools), known=hidden, known_from=source)


def _hides(known: Keys, node: NodeName, finding: Finding) -> bool:
    return not audit.unmeasured(finding) and _key(node, finding) in known


def _reduced(comparison: Comparison, reduced: Mapping[int, Finding | None]) -> Comparison:
    def kept(findings: Iterable[Finding], node: NodeName | None) -> tuple[Finding, ...]:
        result = []
        for finding in findings:
            now = reduced.get(id(finding), finding)
            if now is not None and (node is None or node in now.nodes):
                result.append(now)
        return tuple(result)

    def nodes(of: Mapping[NodeName, NodeVerdict]) -> dict[NodeName, NodeVerdict]:
        return {name: dataclasses.replace(one, findings=kept(one.findings, name)) for name, one in of.items()}

    return dataclasses.replace(
        comparison,
        findings=kept(comparison.findings, None),
        nodes=nodes(comparison.nodes),
        apart=nodes(comparison.apart),
    )
