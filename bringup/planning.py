"""What is to be done with each node: (verdict, standing, policy, words) → a plan. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bringup import needs
from bringup.consent import Judged, Standing
from bringup.stages import Stage
from inventory.model import Kind, Node
from lockstep.base.names import ComponentName, NodeName
from pinsets.findings import Finding, NodeVerdict, Severity, Verdict
from pinsets.model import Component, Lock

__all__ = ["Action", "NodePlan", "Situation", "fence_candidates", "plan_node", "to_fence"]

_DRIVERS: Final = frozenset({"driver", "amdgpu"})
_FABRIC: Final = frozenset({"nvlink.domain"})


class Action(enum.StrEnum):
    """What will be done with a node."""

    NOTHING = "nothing"
    """In step and known: never touched."""
    ADOPT = "adopt"
    """In step and new to the journal: recorded, not touched."""
    WORK = "work"
    """Stages to run."""
    FORBIDDEN = "forbidden"
    """Could be mended, but its kinds of disruption are not allowed."""
    UNMENDED = "unmended"
    """Deviates in something that no stage mends."""
    COMMON_CAUSE = "common-cause"
    """Withheld until a person accepts the finding."""
    HELD = "held"
    """Declared in repair or held."""
    UNREACHABLE = "unreachable"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything the plan of one node depends on."""

    node: Node
    verdict: NodeVerdict
    judged: Judged
    target: Lock
    """The pool's lock."""
    before: Lock | None
    """The lock that its verdict counts for: during a roll-out the one it comes from; None when it is not kept here."""
    allowed: frozenset[Kind] = frozenset()
    """What policy and words allow where the node is not ours."""
    withheld: tuple[str, ...] = ()
    """Common-cause findings that nobody accepted and that name this node."""
    joins: bool = False
    """A cluster is used in this run, and the node is no spare."""
    unfinished: str | None = None
    """Why an admission is half done although nothing deviates; None when none is."""
    staged: bool = False
    """A spare that was verified on the target lock before."""
    known: bool = True
    """The journal knows this machine."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What will be done with one node, and why."""

    node: Node
    action: Action
    stages: tuple[Stage, ...] = ()
    kinds: frozenset[Kind] = frozenset()
    """Disruptions that the stages may need."""
    vacate: bool = False
    """Not ours: it is emptied first, by waiting."""
    reasons: tuple[str, ...] = ()
    rollout: bool = False
    """In step with the lock it comes from."""
    adopt: bool = field(default=False)
    """The journal does not know the machine, and it is not ours: its lock is recorded first."""


def plan_node(situation: Situation, components: Mapping[ComponentName, Component]) -> NodePlan:
    """The plan of one node. In-step nodes are never touched."""
    node, verdict = situation.node, situation.verdict.verdict
    if situation.judged.standing is Standing.OUT_OF_SERVICE:
        return NodePlan(node, Action.HELD, reasons=(situation.judged.why,))
    if verdict is Verdict.UNREACHABLE:
        return NodePlan(node, Action.UNREACHABLE, reasons=_said(situation))
    ours = situation.judged.standing is Standing.OURS
    adopt = not situation.known and not ours
    if verdict is Verdict.ADMIT:
        return _in_step(situation, ours, adopt)
    if verdict is Verdict.PENDING_ROLLOUT:
        asked = needs.between(situation.before, situation.target, components)
    else:
        asked = needs.of(_mendable(situation, ours, components), situation.target, components)
    if situation.withheld and verdict is not Verdict.PENDING_ROLLOUT:
        return NodePlan(node, Action.COMMON_CAUSE, reasons=situation.withheld, adopt=adopt)
    if verdict is Verdict.UNREADABLE and not (asked.kinds and (ours or not _blind(situation, components))):
        return NodePlan(node, Action.UNREADABLE, reasons=_said(situation), adopt=adopt)
    return _mend(situation, asked, ours=ours, adopt=adopt)


def _in_step(situation: Situation, ours: bool, adopt: bool) -> NodePlan:
    node = situation.node
    if ours and node.spare:
        if situation.staged:
            return NodePlan(node, Action.NOTHING, reasons=("staged",))
        return NodePlan(node, Action.WORK, (Stage.VERIFY,))
    if ours:
        return NodePlan(node, Action.WORK, _after_driver(situation))
    if situation.unfinished is not None:
        return NodePlan(node, Action.WORK, _after_driver(situation), reasons=(situation.unfinished,), adopt=adopt)
    if adopt:
        return NodePlan(node, Action.ADOPT, reasons=(situation.judged.why,), adopt=True)
    return NodePlan(node, Action.NOTHING)


def _mend(situation: Situation, asked: needs.Needs, *, ours: bool, adopt: bool) -> NodePlan:
    node = situation.node
    rollout = situation.verdict.verdict is Verdict.PENDING_ROLLOUT
    if asked.cannot and not (ours and asked.kinds):
        return NodePlan(node, Action.UNMENDED, reasons=asked.cannot, adopt=adopt)
    if not ours and not asked.kinds:
        return NodePlan(node, Action.UNMENDED, reasons=_said(situation) or ("no stage mends this",), adopt=adopt)
    # To empty a Node of a cluster takes it out of service: that is a disruption of its own.
    kinds = asked.kinds | ({Kind.DRAIN} if situation.joins and not ours else set())
    if not ours and (missing := sorted(kinds - situation.allowed)):
        words = ", ".join(missing)
        allow = " ".join(f"--allow {kind}" for kind in missing)
        why = f"{situation.judged.why}; needs {words}, which neither the pool's policy nor this run allows ({allow})"
        return NodePlan(node, Action.FORBIDDEN, kinds=kinds, reasons=(why, *_said(situation)), adopt=adopt)
    stages = (Stage.DRIVER, *((Stage.VERIFY,) if node.spare else _after_driver(situation)))
    return NodePlan(
        node,
        Action.WORK,
        stages,
        kinds,
        vacate=not ours,
        reasons=_said(situation),
        rollout=rollout,
        adopt=adopt,
    )


def _after_driver(situation: Situation) -> tuple[Stage, ...]:
    return (*((Stage.JOIN,) if situation.joins else ()), Stage.VERIFY, Stage.ADMIT)


def _mendable(situation: Situation, ours: bool, components: Mapping[ComponentName, Component]) -> NodeVerdict:
    """The verdict whose findings count: what only a wrong driver hides is readable after it is mended.

    On a node of ours nothing that cannot be read yet stands in the way.
    """
    hidden = _behind_driver(situation, components)
    kept = tuple(
        finding
        for finding in situation.verdict.findings
        if not _is_unreadable(finding) or not (ours or finding in hidden)
    )
    return NodeVerdict(situation.node.name, situation.verdict.verdict, kept, situation.verdict.lock)


def _blind(situation: Situation, components: Mapping[ComponentName, Component]) -> bool:
    """Whether something could not be read that a wrong driver does not explain."""
    hidden = _behind_driver(situation, components)
    return any(_is_unreadable(finding) and finding not in hidden for finding in situation.verdict.findings)


def _behind_driver(situation: Situation, components: Mapping[ComponentName, Component]) -> list[Finding]:
    """Unreadable findings about what is read through the driver, where the driver itself deviates.

    After an upgrade without a reboot, library and module differ and no vendor tool answers.
    """
    findings = situation.verdict.findings
    deviates = any(
        finding.coordinate is not None and finding.coordinate.component in _DRIVERS and not _is_unreadable(finding)
        for finding in findings
    )
    if not deviates:
        return []
    return [finding for finding in findings if _is_unreadable(finding) and _through_driver(finding, components)]


def _through_driver(finding: Finding, components: Mapping[ComponentName, Component]) -> bool:
    if finding.coordinate is None:
        return False
    component = components.get(finding.coordinate.component)
    return finding.coordinate.component in _FABRIC or (component is not None and component.instance == "gpu")


def _is_unreadable(finding: Finding) -> bool:
    return finding.id.startswith(("unreadable.", "sources.")) or finding.id.endswith(".unreadable")


def _said(situation: Situation) -> tuple[str, ...]:
    findings = [f for f in situation.verdict.findings if f.severity not in (Severity.WARN, Severity.INFO)]
    return tuple(dict.fromkeys(_sentence(finding) for finding in findings))


def _sentence(finding: Finding) -> str:
    if finding.coordinate is None:
        return finding.observed
    return f"{finding.coordinate}: {finding.observed} (expected {finding.expected})"


def fence_candidates(situations: Mapping[NodeName, Situation]) -> list[Node]:
    """Nodes that were read, deviate, and may hold jobs: what one run may fence, within `consent.fence_limit`."""
    return [
        situation.node
        for situation in situations.values()
        if situation.judged.standing is Standing.ADMITTED
        and not situation.withheld
        and not situation.verdict.verdict.in_step
        and situation.verdict.verdict not in (Verdict.UNREACHABLE, Verdict.UNREADABLE)
    ]


def to_fence(candidates: list[Node], limit: int) -> tuple[list[Node], list[Node]]:
    """(fence, leave alone): at most ``limit``, whole domains first in the order given."""
    by_domain: dict[str, list[Node]] = {}
    for node in candidates:
        by_domain.setdefault(node.domain, []).append(node)
    ordered = [node for nodes in by_domain.values() for node in nodes]
    return ordered[:limit], ordered[limit:]
