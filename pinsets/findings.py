"""Findings and verdicts: what compare says of machines (design: severities and verdicts, worst first)."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lockstep.base.names import DomainName, NodeName
from pinsets.facts import Coordinate

__all__ = ["Comparison", "Finding", "NodeVerdict", "Severity", "Verdict", "worst"]


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
        return self in (Verdict.ADMIT, Verdict.PENDING_ROLLOUT)


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


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """What compare decided for one node."""

    node: NodeName
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    lock: str | None = None
    """Full digest of the lock it was compared with; None without one."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of compare for one pool."""

    nodes: Mapping[NodeName, NodeVerdict]
    domains: Mapping[DomainName, Verdict]
    findings: tuple[Finding, ...]
    """All findings, group findings (skew, common cause) included; each node's own are in `nodes` too."""
