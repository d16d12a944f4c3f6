"""The audit as JSON: a documented, stable form. Its schema (docs/schemas/audit.schema.json) is made from these models.

Fields are added, never renamed or removed, within one ``version``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from bringup import audit
from lockstep.base import errors, hostranges
from pinsets.findings import Finding, NodeVerdict, Severity, Undecided, Verdict

__all__ = [
    "AuditReport",
    "FindingReport",
    "NodeReport",
    "PoolReport",
    "UndecidedReport",
    "WaiverReport",
    "report",
    "text",
]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FindingReport(_Part):
    """One deviation, of one node or of a group."""

    id: Annotated[str, Field(description="Stable kind: `pin.driver`, `instance.missing`, `unreachable` …")]
    severity: Severity
    coordinate: Annotated[str | None, Field(description="`component[instance]@layer`; null: the node as a whole.")]
    nodes: tuple[str, ...]
    expected: str
    observed: str
    cause: str
    remedy: str
    use: Annotated[str | None, Field(description="The one use that it forbids (`rdma`); null: every use.")] = None
    doubtful: Annotated[bool, Field(description="Rests on a value that is not certain at its source.")] = False


class WaiverReport(_Part):
    """A deviation that the fleet file puts up with for a while."""

    node: str
    coordinate: str
    value: str
    reason: str
    expires: Annotated[str, Field(description="Last day on which it holds, YYYY-MM-DD in UTC.")]


class UndecidedReport(_Part):
    """A rule that some reading was not enough for: neither kept nor broken there."""

    rule: str
    nodes: Annotated[str, Field(description="A host range: `gpu-[001-512]`.")]
    missing: Annotated[tuple[str, ...], Field(description="What would have to be read; the first few.")]
    tried: Annotated[bool, Field(description="It was asked for and could not be read; false: no reading asks for it.")]


class NodeReport(_Part):
    """One node."""

    name: str
    verdict: Verdict
    in_service: Annotated[bool, Field(description="False: declared held or in repair; it changes no exit code.")]
    lock: Annotated[str | None, Field(description="Digest of the lock that it was compared with.")]
    unreachable: Annotated[str | None, Field(description="Class and reason when it gave no answer.")]
    observed_at: Annotated[str | None, Field(description="When it was read, RFC 3339 in UTC; null: not read.")]
    boot_id: str | None
    serial: Annotated[str | None, Field(description="Chassis serial; null: not readable.")]
    admitted: Annotated[bool | None, Field(description="Whether it has an admission file; null: not read.")]
    deviations: Annotated[
        dict[str, str], Field(description="Coordinate (or a word for the node as a whole) → observed.")
    ]


class PoolReport(_Part):
    """One pool, or the hosts of an audit without a fleet file."""

    name: str
    sku: str | None
    os: str | None
    pinset: str | None
    lock: Annotated[str | None, Field(description="Digest of the pool's lock.")]
    burnin: Annotated[str | None, Field(description="`none`: admission proves versions only, no burn-in was run.")]
    baseline: Annotated[str, Field(description="With what the nodes were compared.")]
    verdict: Verdict
    verdicts: Annotated[dict[str, int], Field(description="Nodes in service per verdict.")]
    domains: Annotated[dict[str, Verdict], Field(description="NVLink domain → verdict.")]
    common: Annotated[dict[str, str], Field(description="Coordinate → what most nodes have.")]
    nodes: tuple[NodeReport, ...]
    findings: tuple[FindingReport, ...]
    waivers: tuple[WaiverReport, ...] = ()
    undecided: Annotated[
        tuple[UndecidedReport, ...], Field(description="Rules that could not be judged on every node.")
    ] = ()


class AuditReport(_Part):
    """One audit."""

    version: Literal[1] = 1
    fleet: Annotated[str | None, Field(description="Name of the fleet; null: `--hosts`.")]
    taken_at: Annotated[str, Field(description="When the reading began, RFC 3339 in UTC.")]
    live: Annotated[bool, Field(description="False: from a stored snapshot.")]
    source: str
    interrupted: bool
    second_pass: Annotated[tuple[str, ...], Field(description="Nodes that answered only when tried again.")]
    known: Annotated[
        int, Field(description="Deviations left out because they were known (`--baseline`, `--since`).")
    ] = 0
    exit_code: Annotated[int, Field(description="What the command leaves with.")]
    pools: tuple[PoolReport, ...]


def report(found: audit.Audit, code: errors.ExitCode) -> AuditReport:
    """The whole audit."""
    return AuditReport(
        fleet=found.fleet,
        taken_at=audit.moment(found.reading.snapshot.taken_at),
        live=found.reading.live,
        source=found.reading.source,
        interrupted=found.reading.interrupted,
        second_pass=found.reading.second_pass,
        known=found.known,
        exit_code=int(code),
        pools=tuple(_pool(pool) for pool in found.pools),
    )


def text(found: AuditReport) -> str:
    """As JSON, pure ASCII: what a node said is in it, escape sequences too, and reaches no terminal as it is."""
    return json.dumps(found.model_dump(mode="json"), indent=2, ensure_ascii=True)


def _pool(pool: audit.PoolAudit) -> PoolReport:
    comparison = pool.comparison
    nodes = [_node(pool, node, in_service=True) for node in comparison.nodes.values()]
    nodes += [_node(pool, node, in_service=False) for node in comparison.apart.values()]
    return PoolReport(
        name=pool.name,
        sku=pool.pool.sku.sku if pool.pool else None,
        os=pool.pool.os if pool.pool else None,
        pinset=pool.pool.pinset if pool.pool else None,
        lock=pool.lock,
        burnin=pool.pool.sku.burnin if pool.pool else None,
        baseline=comparison.baseline,
        verdict=comparison.verdict,
        verdicts={str(verdict): count for verdict, count in pool.verdicts.items()},
        domains=dict(comparison.domains),
        common={str(coordinate): value for coordinate, value in sorted(comparison.common.items())},
        nodes=tuple(nodes),
        findings=tuple(_finding(finding) for finding in comparison.findings),
        waivers=tuple(
            WaiverReport(
                node=name,
                coordinate=waiver.coordinate,
                value=waiver.value,
                reason=waiver.reason,
                expires=waiver.expires.isoformat(),
            )
            for name, waiver in audit.waivers(pool)
        ),
        undecided=_undecided(comparison.undecided),
    )


def _undecided(found: Sequence[Undecided]) -> tuple[UndecidedReport, ...]:
    """Dozens of rules are open on the same nodes: their range is folded once."""
    ranges: dict[tuple[str, ...], str] = {}
    result = []
    for one in found:
        if one.nodes not in ranges:
            ranges[one.nodes] = hostranges.fold(one.nodes)
        result.append(UndecidedReport(rule=one.rule, nodes=ranges[one.nodes], missing=one.missing, tried=one.tried))
    return tuple(result)


def _node(pool: audit.PoolAudit, node: NodeVerdict, *, in_service: bool) -> NodeReport:
    facts = pool.facts.get(node.node)
    answered = facts is not None and facts.unreachable is None
    return NodeReport(
        name=node.node,
        verdict=node.verdict,
        in_service=in_service,
        lock=node.lock,
        unreachable=facts.unreachable if facts else None,
        observed_at=audit.moment(facts.observed_at) if facts else None,
        boot_id=facts.boot_id if facts else None,
        serial=facts.serial if facts else None,
        admitted=(facts.admission is not None) if facts is not None and answered else None,
        deviations={word: observed for word, observed, _ in audit.deviations(node)},
    )


def _finding(finding: Finding) -> FindingReport:
    return FindingReport(
        id=finding.id,
        severity=finding.severity,
        coordinate=str(finding.coordinate) if finding.coordinate is not None else None,
        nodes=finding.nodes,
        expected=finding.expected,
        observed=finding.observed,
        cause=finding.cause,
        remedy=finding.remedy,
        use=finding.use,
        doubtful=finding.doubtful,
    )
