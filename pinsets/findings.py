"""Findings and verdicts: what compare says of machines (design: severities and verdicts, worst first)."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from lockstep.base.names import DomainName, NodeName
from pinsets.facts import Coordinate

__all__ = [
    "COMMON_CAUSE",
    "Comparison",
    "Finding",
    "NodeVerdict",
    "Severity",
    "Undecided",
    "Verdict",
    "by_severity",
    "worst",
]

COMMON_CAUSE: Final = "common-cause:"
"""What the id of a common-cause finding begins with; coordinate and value follow, so the whole id can be accepted."""


class Severity(enum.StrEnum):
    """What a finding asks for, worst first."""

    BLOCK = "block"
    """No jobs on the node."""
    GROUP_BLOCK = "group-block"
    """Each node is fine alone, the group is not."""
    POWER_CYCLE = "power-cycle"
    REBOOT = "reboot"
    RESET = "reset"
    RELOAD = "reload"
    """These four: in step after that act, since the disk equals the lock."""
    WARN = "warn"
    INFO = "info"


class Verdict(enum.StrEnum):
    """One per node and per domain, worst first."""

    UNREACHABLE = "unreachable"
    UNREADABLE = "unreadable"
    DRIFTED = "drifted"
    SKEWED = "skewed"
    PENDING_POWER_CYCLE = "pending-power-cycle"
    PENDING_REBOOT = "pending-reboot"
    PENDING_RESET = "pending-reset"
    PENDING_RELOAD = "pending-reload"
    PENDING_ROLLOUT = "pending-rollout"
    """In step with the lock it comes from; counts as in step."""
    ADMIT = "admit"

    @property
    def in_step(self) -> bool:
        """Whether a node with this verdict may hold or take jobs."""
        return self is Verdict.ADMIT or self is Verdict.PENDING_ROLLOUT


_ORDER = {verdict: index for index, verdict in enumerate(Verdict)}


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of them; unreadable for none at all, since unknown is never ok."""
    return min(verdicts, key=_ORDER.__getitem__, default=Verdict.UNREADABLE)


@dataclass(frozen=True, slots=True)
class Finding:
    """One deviation, of one node or of a group."""

    id: str
    """Stable kind: ``pin.driver``, ``instance.missing``, ``skew.nccl``, ``unreachable``, ``common-cause`` …"""
    severity: Severity
    coordinate: Coordinate | None
    """None for what concerns a node as a whole."""
    nodes: tuple[NodeName, ...]
    expected: str
    observed: str
    cause: str
    remedy: str
    use: str | None = None
    """Limits it to a use (``rdma``, ``mig``): then it changes no node's verdict, and holds for such jobs."""
    doubtful: bool = False
    """The value it rests on is not certain at its source: never more than a warning."""


_SEVERITY_ORDER = {severity: index for index, severity in enumerate(Severity)}


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Worst first; within one severity the most widespread first, then by kind and coordinate."""
    return sorted(
        findings,
        key=lambda finding: (
            _SEVERITY_ORDER[finding.severity],
            -len(finding.nodes),
            finding.id,
            str(finding.coordinate or ""),
            finding.observed,
        ),
    )


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """What compare decided for one node."""

    node: NodeName
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    lock: str | None = None
    """Full digest of the lock it was compared with; None without one."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """A rule that could not be judged on some nodes: neither kept nor broken."""

    rule: str
    nodes: tuple[NodeName, ...]
    missing: tuple[str, ...]
    """What would have to be read for it; the first few."""
    tried: bool = True
    """Something of it was asked for and could not be read; False: no reading here asks for it."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of compare for one pool."""

    nodes: Mapping[NodeName, NodeVerdict]
    """Nodes in service, in the order given."""
    domains: Mapping[DomainName, Verdict]
    """Worst verdict of a domain's nodes in service, skewed where they differ in a pin of scope domain."""
    findings: tuple[Finding, ...]
    """All findings, worst first: one for each distinct deviation, with every node that has it. A node's own are the
    same objects in `nodes` too; findings about groups (skew, common cause) stand here alone."""
    apart: Mapping[NodeName, NodeVerdict] = field(default_factory=dict)
    """Nodes that the fleet file declares held or in repair: shown, never counted."""
    common: Mapping[Coordinate, str] = field(default_factory=dict)
    """What most nodes have, per coordinate that was read; what a table prints once."""
    baseline: str = ""
    """With what the nodes were compared, as a sentence for people."""
    undecided: tuple[Undecided, ...] = ()
    """Rules that some reading was not enough for."""

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of nodes and domains in service; unreadable for no node at all."""
        return worst([*(node.verdict for node in self.nodes.values()), *self.domains.values()])

    @property
    def common_causes(self) -> tuple[Finding, ...]:
        """Findings that one pin, parser or image explains for many nodes at once."""
        return tuple(finding for finding in self.findings if finding.id.startswith(COMMON_CAUSE))
