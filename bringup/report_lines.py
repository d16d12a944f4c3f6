"""The audit as JSON Lines: one object a line, for log pipelines and for programs that read while it is written.

    {"audit": 1, "fleet": …, "taken_at": …, "exit_code": …}
    {"pool": "blackwell", "verdict": …, …}
    {"node": "gpu-001", "pool": "blackwell", "verdict": …, "deviations": {…}}
    {"finding": "pin.driver", "pool": "blackwell", "severity": …, "nodes": […], …}

Every object has one of the four keys ``audit``, ``pool`` (alone), ``node``, ``finding``; further fields are those of
the JSON form (docs/schemas/audit.schema.json). Pure ASCII: what a node said never reaches a terminal as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from bringup.report import AuditReport

__all__ = ["lines"]


def lines(report: AuditReport) -> Iterator[str]:
    """The lines, each without its newline."""
    data = report.model_dump(mode="json")
    pools = data.pop("pools")
    yield _line({"audit": data.pop("version"), **data})
    for pool in pools:
        nodes, findings = pool.pop("nodes"), pool.pop("findings")
        name = pool.pop("name")
        yield _line({"pool": name, **pool})
        for node in nodes:
            yield _line({"node": node.pop("name"), "pool": name, **node})
        for finding in findings:
            yield _line({"finding": finding.pop("id"), "pool": name, **finding})


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)
