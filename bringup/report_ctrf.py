"""The audit in the Common Test Report Format (ctrf.io, specification 0.1.0): a test per node.

In step is passed, a deviation failed, what could not be measured ``other``, a node declared held or in repair skipped.
"""

from __future__ import annotations

import json
from typing import Any, Final

import lockstep
from bringup import audit
from lockstep.base.plaintext import visible
from pinsets.findings import Finding, NodeVerdict, Severity, Verdict

__all__ = ["ctrf"]

SPECIFICATION: Final = "0.1.0"
_QUIET = (Severity.WARN, Severity.INFO)
_UNKNOWN = (Verdict.UNREACHABLE, Verdict.UNREADABLE)


def ctrf(found: audit.Audit) -> str:
    """The document, pure ASCII. Times are those at which nodes were read; a test has no duration of its own."""
    tests = [
        _test(found, pool, node, serving)
        for pool in found.pools
        for nodes, serving in ((pool.comparison.nodes, True), (pool.comparison.apart, False))
        for node in nodes.values()
    ]
    moments = [facts.observed_at for pool in found.pools for facts in pool.facts.values()]
    start = found.reading.snapshot.taken_at
    counts = {status: sum(test["status"] == status for test in tests) for status in _STATUSES}
    document = {
        "reportFormat": "CTRF",
        "specVersion": SPECIFICATION,
        "generatedBy": f"lockstep {lockstep.__version__}",
        "results": {
            "tool": {"name": "lockstep", "version": lockstep.__version__},
            "summary": {
                "tests": len(tests),
                **counts,
                "start": round(start * 1000),
                "stop": round(max([start, *moments]) * 1000),
            },
            "tests": tests,
        },
    }
    return json.dumps(document, indent=1, ensure_ascii=True) + "\n"


_STATUSES = ("passed", "failed", "pending", "skipped", "other")


def _test(found: audit.Audit, pool: audit.PoolAudit, node: NodeVerdict, serving: bool) -> dict[str, Any]:
    serious = [finding for finding in node.findings if finding.severity not in _QUIET]
    if not serving:
        status = "skipped"
    elif not audit.deviates(found, node):
        status = "passed"
    else:
        status = "other" if node.verdict in _UNKNOWN else "failed"
    test: dict[str, Any] = {
        "name": visible(node.node),
        "status": status,
        "duration": 0,
        "rawStatus": node.verdict.value,
        "suite": [visible(found.fleet or "hosts"), visible(pool.name)],
        "type": "audit",
    }
    waived = [one for one in node.findings if one.id.startswith("waived.")]
    if waived and not serious:
        test["message"] = visible("; ".join(f"{one.coordinate}: {one.observed}, {one.cause}" for one in waived))
    if serious:
        test["message"] = visible("; ".join(f"{one.coordinate or one.id}: {one.observed}" for one in serious[:3]))
        test["trace"] = "\n".join(_line(one) for one in node.findings)
    return test


def _line(finding: Finding) -> str:
    return visible(
        f"{finding.severity} {finding.id} {finding.coordinate or ''}: expected {finding.expected}, "
        f"observed {finding.observed}; {finding.cause}; {finding.remedy}"
    )
