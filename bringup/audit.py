"""What an audit says: per pool the common set once, nodes grouped by how they deviate from it, findings, exit code.

Pure: from a `reading.Reading` to values that the reports (`report`, `report_junit`, `lockstep.cli.audit_table`) print.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bringup.reading import Reading
from inventory.model import Fleet, Pool, Waiver
from lockstep.base import errors, hostranges
from lockstep.base.names import NodeName
from pinsets.facts import Coordinate, NodeFacts
from pinsets.findings import Comparison, Finding, NodeVerdict, Severity, Verdict

__all__ = [
    "MEANINGS",
    "Audit",
    "FailOn",
    "Group",
    "PoolAudit",
    "common_set",
    "deviates",
    "deviations",
    "exit_code",
    "folded",
    "moment",
    "of_fleet",
    "of_hosts",
    "unmeasured",
    "waivers",
]

FailOn = frozenset[Severity]
"""Severities that count as drift besides those that always do."""

MEANINGS: Final = {
    errors.ExitCode.IN_STEP: "in step",
    errors.ExitCode.DRIFT: "drift or skew found",
    errors.ExitCode.NOT_MEASURED: "not everything could be measured",
    errors.ExitCode.REFUSED: "refused or busy",
    errors.ExitCode.INTERRUPTED: "interrupted",
}
"""What the exit code of an audit says, for people."""

_ALWAYS = frozenset(Severity) - {Severity.WARN, Severity.INFO}
_UNKNOWN = (Verdict.UNREACHABLE, Verdict.UNREADABLE)
_UNKNOWN_WORDS = frozenset({"unreachable", "unreadable", "not-read", "no-lock", "sources"})
"""Parts of a finding's id that say that something was not measured: ``unreadable.driver``, ``instance.unreadable``."""


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that deviate in the same way; in step when `deviations` is empty and the verdict says so."""

    nodes: tuple[NodeName, ...]
    verdict: Verdict
    deviations: tuple[tuple[str, str, str], ...]
    """(coordinate or word, observed, expected), sorted."""


@dataclass(frozen=True, slots=True)
class PoolAudit:
    """One pool, or the hosts of an audit without a fleet file."""

    name: str
    pool: Pool | None
    """None without a fleet file."""
    lock: str | None
    """Full digest of the pool's lock."""
    comparison: Comparison
    facts: Mapping[NodeName, NodeFacts]
    """Facts of its nodes; a node that was not read is not among them."""

    @property
    def groups(self) -> tuple[Group, ...]:
        """Nodes in service grouped by verdict and deviations: the largest group in step first, then the worst."""
        return _grouped(self.comparison.nodes)

    @property
    def apart(self) -> tuple[Group, ...]:
        """Nodes declared held or in repair, grouped likewise; they change no exit code."""
        return _grouped(self.comparison.apart)

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """Number of nodes in service per verdict, worst first."""
        counts = Counter(node.verdict for node in self.comparison.nodes.values())
        return {verdict: counts[verdict] for verdict in Verdict if counts[verdict]}


@dataclass(frozen=True, slots=True)
class Audit:
    """All pools of one reading."""

    fleet: str | None
    pools: tuple[PoolAudit, ...]
    reading: Reading
    path: Path | None = None
    """The fleet file; None without one."""
    known: int = 0
    """Deviations left out because they were known (`bringup.known`)."""
    known_from: str = ""
    """Where they are known from."""


def of_fleet(fleet: Fleet, reading: Reading) -> Audit:
    """The audit of a fleet."""
    pools = []
    for pool in fleet.pools:
        if (comparison := reading.comparisons.get(pool.name)) is None:
            continue
        members = {**comparison.nodes, **comparison.apart}
        facts = {name: reading.snapshot.nodes[name] for name in members if name in reading.snapshot.nodes}
        told = _with_remedies(comparison, reading)
        pools.append(PoolAudit(pool.name, pool, reading.locks[pool.name].full, told, facts))
    return Audit(fleet.name, tuple(pools), reading, fleet.path)


def of_hosts(reading: Reading) -> Audit:
    """The audit of hosts without a fleet file."""
    pools = tuple(
        PoolAudit(name, None, None, _with_remedies(comparison, reading), reading.snapshot.nodes)
        for name, comparison in reading.comparisons.items()
    )
    return Audit(None, pools, reading)


def exit_code(
    audit: Audit, *, strict: bool = False, fail_on: FailOn = frozenset(), tolerated: int = 0
) -> errors.ExitCode:
    """The one exit code. Nodes declared held or in repair count nowhere; zero nodes in service were not measured.

    ``tolerated``: so many nodes may be unreachable.
    """
    codes = [errors.ExitCode.INTERRUPTED] if audit.reading.interrupted else []
    nodes = [node for pool in audit.pools for node in pool.comparison.nodes.values()]
    silent = sum(node.verdict is Verdict.UNREACHABLE for node in nodes)
    mute = any(node.verdict is Verdict.UNREADABLE for node in nodes)
    if silent == len(nodes) or silent > tolerated or mute:
        codes.append(errors.ExitCode.NOT_MEASURED)
    drifted = any(deviates(audit, node) and node.verdict not in _UNKNOWN for node in nodes)
    if drifted or any(_counts(finding, pool, fail_on) for pool in audit.pools for finding in pool.comparison.findings):
        codes.append(errors.ExitCode.DRIFT)
    return errors.combine(codes, strict=strict)


def _counts(finding: Finding, pool: PoolAudit, fail_on: FailOn) -> bool:
    """Whether a finding is drift: severe enough, about what was measured, and about a node in service."""
    if finding.severity not in _ALWAYS | fail_on or unmeasured(finding):
        return False
    serving = pool.comparison.nodes
    # In step with the lock it comes from: what differs from the new one is the roll-out's work, not drift.
    return any(node in serving and serving[node].verdict is not Verdict.PENDING_ROLLOUT for node in finding.nodes)


def unmeasured(finding: Finding) -> bool:
    """Whether it says that something was not measured, rather than that it deviates."""
    return finding.severity in _ALWAYS and not _UNKNOWN_WORDS.isdisjoint(finding.id.split("."))


def deviates(audit: Audit, node: NodeVerdict) -> bool:
    """Whether a node is out of step by more than what is known of it."""
    if node.verdict.in_step:
        return False
    return not audit.known or node.verdict in _UNKNOWN or any(one.severity in _ALWAYS for one in node.findings)


def deviations(node: NodeVerdict) -> Iterator[tuple[str, str, str]]:
    """(coordinate or word, observed, expected) of every finding of a node, warnings and infos left out."""
    for finding in node.findings:
        if finding.severity in _ALWAYS:
            word = str(finding.coordinate) if finding.coordinate is not None else finding.id
            yield word, finding.observed, finding.expected


def _grouped(nodes: Mapping[NodeName, NodeVerdict]) -> tuple[Group, ...]:
    found: dict[tuple[Verdict, tuple[tuple[str, str, str], ...]], list[NodeName]] = {}
    for name, node in nodes.items():
        found.setdefault((node.verdict, tuple(sorted(deviations(node)))), []).append(name)
    order = {verdict: index for index, verdict in enumerate(Verdict)}
    groups = [Group(tuple(names), verdict, told) for (verdict, told), names in found.items()]
    return tuple(
        sorted(
            groups,
            key=lambda group: (not group.verdict.in_step, order[group.verdict], -len(group.nodes), group.nodes[0]),
        )
    )


def _with_remedies(comparison: Comparison, reading: Reading) -> Comparison:
    """``comparison`` in which an unreachable node's finding carries the remedy of its own failure."""
    swapped: dict[int, Finding] = {}
    for finding in comparison.findings:
        remedies = {failure.remedy for node in finding.nodes if (failure := reading.failures.get(node)) is not None}
        if finding.id == "unreachable" and len(remedies) == 1 and (remedy := remedies.pop()):
            swapped[id(finding)] = replace(finding, remedy=remedy)
    if not swapped:
        return comparison
    return replace(
        comparison,
        findings=tuple(swapped.get(id(finding), finding) for finding in comparison.findings),
        nodes=_swap(comparison.nodes, swapped),
        apart=_swap(comparison.apart, swapped),
    )


def _swap(nodes: Mapping[NodeName, NodeVerdict], swapped: Mapping[int, Finding]) -> dict[NodeName, NodeVerdict]:
    return {
        name: replace(node, findings=tuple(swapped.get(id(finding), finding) for finding in node.findings))
        if any(id(finding) in swapped for finding in node.findings)
        else node
        for name, node in nodes.items()
    }


def folded(names: Sequence[str], most: int = 200) -> str:
    """Host names as a range for people, at most ``most`` characters long."""
    text = hostranges.fold(names)
    return text if len(text) <= most else text[: most - 1] + "…"


def moment(seconds: float) -> str:
    """Unix time as RFC 3339 in UTC, to the second."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def waivers(pool: PoolAudit) -> Iterator[tuple[NodeName, Waiver]]:
    """Every waiver of the nodes that were compared, in file order: shown in every report, held or expired."""
    compared = {*pool.comparison.nodes, *pool.comparison.apart}
    for node in pool.pool.nodes if pool.pool is not None else ():
        if node.name in compared:
            yield from ((node.name, waiver) for waiver in node.waivers)


def common_set(comparison: Comparison) -> list[tuple[str, str, tuple[str, ...]]]:
    """What most nodes have, one row per component and value: (component, value, places), absent ones left out.

    Places are layers, for instances ``layer of gpu0,gpu1``.
    """
    rows: dict[tuple[str, str], dict[str, list[str]]] = {}
    for coordinate, value in sorted(comparison.common.items()):
        if value != "absent":
            places = rows.setdefault((coordinate.component, value), {})
            places.setdefault(coordinate.layer, []).extend(_instance(coordinate))
    return [
        (
            component,
            value,
            tuple(layer + (f" of {','.join(names)}" if names else "") for layer, names in places.items()),
        )
        for (component, value), places in rows.items()
    ]


def _instance(coordinate: Coordinate) -> list[str]:
    return [coordinate.instance] if coordinate.instance is not None else []
