"""What deviates, per node, as short texts: the one output that a preview of 10,000 nodes prints."""

from __future__ import annotations

from lockstep.base.names import NodeName
from pinsets.findings import Comparison, Finding, Severity

__all__ = ["of", "text"]

_QUIET = (Severity.WARN, Severity.INFO)


def of(comparison: Comparison, *, quiet: bool = False) -> dict[NodeName, dict[str, str]]:
    """Node → coordinate → ``580.126.20 (pinned 580.105.08)``; only nodes and coordinates that deviate.

    What concerns a node as a whole has a word in the coordinate's place
    (``unreachable``, ``no-lock``). ``quiet`` takes warnings and infos in too.
    Group findings (skew) are among each node's own.
    """
    found: dict[NodeName, dict[str, str]] = {}
    for name, result in comparison.nodes.items():
        for finding in result.findings:
            if finding.severity in _QUIET and not quiet:
                continue
            key = str(finding.coordinate) if finding.coordinate is not None else finding.id
            found.setdefault(name, {})[key] = text(finding)
    return found


def text(finding: Finding) -> str:
    """One finding's deviation in a few words."""
    if finding.coordinate is None:
        return finding.observed
    word = "pinned" if finding.id.startswith(("pin.", "pending.", "unreadable.")) else "expected"
    return f"{finding.observed} ({word} {finding.expected})"
