"""Common cause: the same value, new on many nodes of a pool at once, is one finding about a pin, a parser or an image.

Nothing is fenced or mended for it until somebody accepts it by its id: the machines
are more likely right than the cause is harmless.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lockstep.base import limits
from lockstep.base.names import NodeName
from pinsets.facts import Coordinate, Snapshot
from pinsets.findings import COMMON_CAUSE, Comparison, Finding, Severity, by_severity

if TYPE_CHECKING:
    from pinsets.expectations import Expectation

__all__ = ["common_cause", "seen", "withheld"]

_COUNTED = frozenset(
    {Severity.BLOCK, Severity.GROUP_BLOCK, Severity.POWER_CYCLE, Severity.REBOOT, Severity.RESET, Severity.RELOAD}
)


def seen(comparison: Comparison) -> frozenset[str]:
    """Every deviation of every node as ``NODE COORDINATE=VALUE``, for the journal: what is not new next time."""
    return frozenset(
        f"{node} {_value(finding)}"
        for finding in comparison.findings
        if finding.coordinate is not None and finding.severity in _COUNTED
        for node in finding.nodes
    )


def common_cause(
    comparison: Comparison,
    before: Collection[str] | None,
    expectations: Sequence[Expectation],
    snapshot: Snapshot,
) -> Comparison:
    """``comparison`` with a finding for each common cause.

    ``before`` is what `seen` gave for the last comparison of the pool; None when
    there was none, then everything is new. Nodes that were never admitted
    (declared new, no admission file) do not count: that they all lack the same
    thing is what bring-up is for.
    """
    admitted = {
        one.node.name
        for one in expectations
        if one.node.name in comparison.nodes
        and (one.node.state.value != "new" or _has_admission(snapshot, one.node.name))
    }
    known = frozenset(before or ())
    nodes: dict[tuple[Coordinate, str], list[Finding]] = defaultdict(list)
    for finding in comparison.findings:
        if finding.coordinate is not None and finding.severity in _COUNTED:
            nodes[finding.coordinate, finding.observed].append(finding)
    added = []
    for (coordinate, observed), same in nodes.items():
        fresh = [
            name
            for finding in same
            for name in finding.nodes
            if name in admitted and f"{name} {_value(finding)}" not in known
        ]
        fresh = list(dict.fromkeys(fresh))
        if len(fresh) >= limits.COMMON_CAUSE_NODES and len(fresh) > limits.COMMON_CAUSE_SHARE * len(comparison.nodes):
            added.append(_finding(coordinate, observed, same[0].expected, fresh, len(comparison.nodes)))
    if not added:
        return comparison
    return replace(comparison, findings=tuple(by_severity([*comparison.findings, *added])))


def withheld(comparison: Comparison, accepted: Collection[str] = ()) -> frozenset[NodeName]:
    """Nodes under a common cause whose id is not among ``accepted``: not to be fenced, not to be mended."""
    return frozenset(
        name for finding in comparison.common_causes if finding.id not in accepted for name in finding.nodes
    )


def _value(finding: Finding) -> str:
    return f"{finding.coordinate}={finding.observed}"


def _has_admission(snapshot: Snapshot, name: NodeName) -> bool:
    facts = snapshot.nodes.get(name)
    return facts is not None and facts.admission is not None


def _finding(coordinate: Coordinate, observed: str, expected: str, nodes: list[NodeName], total: int) -> Finding:
    identifier = f"{COMMON_CAUSE}{coordinate}={observed}"
    return Finding(
        id=identifier,
        severity=Severity.GROUP_BLOCK,
        coordinate=coordinate,
        nodes=tuple(nodes),
        expected=expected,
        observed=observed,
        cause=f"new on {len(nodes)} of {total} nodes at once: a pin, a parser or an image, rather than machines",
        remedy=f"find what changed; then --accept '{identifier}'",
    )
