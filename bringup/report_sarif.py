"""The audit as SARIF 2.1.0, as code hosts and security dashboards show it: a result per finding.

A result points at the fleet file's line of each node, so that a code host can place it, and at the node as a logical
location. What is waived is a suppressed result; its fingerprint is the finding's kind, place and value, not its nodes,
so that one deviation stays one alert while it spreads or shrinks.
"""

from __future__ import annotations

import hashlib
import json
import urllib.parse
from pathlib import Path
from typing import Any, Final

import lockstep
from bringup import audit
from lockstep.base import errors
from lockstep.base.plaintext import visible
from pinsets.findings import Finding, Severity

__all__ = ["sarif"]

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_NODES_PLACED: Final = 100
"""Locations of one result; code hosts show few, and the message names all nodes."""
_LEVELS: Final = {Severity.WARN: "warning", Severity.INFO: "note"}


def sarif(found: audit.Audit, code: errors.ExitCode) -> str:
    """The document. Pure ASCII, so that nothing a node said reaches a terminal as it is."""
    results: list[dict[str, Any]] = []
    rules: dict[str, dict[str, Any]] = {}
    for pool in found.pools:
        lines = {node.name: node.line for node in pool.pool.nodes} if pool.pool else {}
        for finding in pool.comparison.findings:
            kind = _kind(finding)
            rules.setdefault(kind, _rule(kind, finding))
            results.append(_result(found, pool, finding, list(rules).index(kind), lines))
    run = {
        "tool": {"driver": {"name": "lockstep", "version": lockstep.__version__, "rules": list(rules.values())}},
        "automationDetails": {"id": f"lockstep-audit/{visible(found.fleet or 'hosts')}/"},
        "invocations": [{"executionSuccessful": code is not errors.ExitCode.INTERRUPTED, "exitCode": int(code)}],
        "results": results,
        "columnKind": "unicodeCodePoints",
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, ensure_ascii=True) + "\n"


def _kind(finding: Finding) -> str:
    """A common cause's id holds its value; the kind is what all of them share."""
    return "common-cause" if finding.id.startswith("common-cause:") else finding.id


def _rule(kind: str, finding: Finding) -> dict[str, Any]:
    return {
        "id": kind,
        "name": kind.replace(".", "/"),
        "shortDescription": {"text": visible(finding.cause) or kind},
        "help": {"text": visible(finding.remedy) or kind},
        "defaultConfiguration": {"level": _LEVELS.get(finding.severity, "error")},
    }


def _result(
    found: audit.Audit, pool: audit.PoolAudit, finding: Finding, rule: int, lines: dict[Any, int | None]
) -> dict[str, Any]:
    place = str(finding.coordinate) if finding.coordinate is not None else finding.id
    key = "\0".join((found.fleet or "", pool.name, finding.id, place, finding.observed))
    result: dict[str, Any] = {
        "ruleId": _kind(finding),
        "ruleIndex": rule,
        "level": _LEVELS.get(finding.severity, "error"),
        "message": {
            "text": visible(
                f"{audit.folded(finding.nodes)}: {place} is {finding.observed}, expected {finding.expected}. "
                f"{finding.cause}. Remedy: {finding.remedy}"
            )
        },
        "locations": [_location(found, pool, node, lines.get(node)) for node in finding.nodes[:_NODES_PLACED]],
        "partialFingerprints": {"lockstep/v1": hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()},
        "properties": {
            "severity": finding.severity.value,
            "coordinate": visible(place),
            "nodes": [visible(node) for node in finding.nodes],
            **({"use": finding.use} if finding.use is not None else {}),
        },
    }
    if finding.id.startswith("waived."):
        result["suppressions"] = [{"kind": "external", "justification": visible(finding.cause)}]
    return result


def _location(found: audit.Audit, pool: audit.PoolAudit, node: str, line: int | None) -> dict[str, Any]:
    name = visible(node)
    where = "/".join((visible(found.fleet or "hosts"), visible(pool.name), name))
    location: dict[str, Any] = {"logicalLocations": [{"name": name, "fullyQualifiedName": where, "kind": "resource"}]}
    if found.path is not None:
        location["physicalLocation"] = {
            "artifactLocation": {"uri": _uri(found.path)},
            "region": {"startLine": line or 1},
        }
    return location


def _uri(path: Path) -> str:
    """Relative to the current folder where the file lies below it, as code hosts want it."""
    try:
        return urllib.parse.quote(path.resolve().relative_to(Path.cwd()).as_posix())
    except ValueError:
        return path.resolve().as_uri()
