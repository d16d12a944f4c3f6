"""The audit as JUnit XML, as CI systems show it: a suite per pool, a case per node.

Drift is a failure, what could not be measured an error, a node declared held or in repair is skipped. Findings of
severity warn and info are printed with the suite and fail nothing, as the exit code does.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from bringup import audit
from lockstep.base import plaintext
from pinsets.findings import Finding, NodeVerdict, Severity, Verdict

__all__ = ["junit"]

_QUIET = (Severity.WARN, Severity.INFO)
_UNKNOWN = (Verdict.UNREACHABLE, Verdict.UNREADABLE)
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(found: audit.Audit) -> str:
    """The document, with its declaration."""
    suites = [_suite(found, pool) for pool in found.pools]
    root = ElementTree.Element("testsuites", {"name": _clean(f"lockstep audit {found.fleet or 'hosts'}")})
    # No `skipped`: the schema of Jenkins allows it on a suite alone.
    for key in ("tests", "failures", "errors"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in suites)))
    root.extend(suites)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(found: audit.Audit, pool: audit.PoolAudit) -> ElementTree.Element:
    comparison = pool.comparison
    suite = ElementTree.Element("testsuite", {"name": _clean(pool.name)})
    classname = f"{found.fleet or 'hosts'}.{pool.name}"
    cases = [_case(node, classname, audit.deviates(found, node)) for node in comparison.nodes.values()]
    cases += [_skipped(pool, node, classname) for node in comparison.apart.values()]
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("tests", str(len(cases)))
    suite.extend(cases)
    notes = [f"compared with {comparison.baseline}", found.reading.source]
    notes += [f"{found.known} known deviations of {found.known_from} are left out"] if found.known else []
    notes += [f"burnin: {pool.pool.sku.burnin}"] if pool.pool else []
    # What stands in no case: warnings, and findings about a group as a whole.
    own = {id(finding) for node in comparison.nodes.values() for finding in node.findings}
    notes += [_line(one) for one in comparison.findings if one.severity in _QUIET or id(one) not in own]
    ElementTree.SubElement(suite, "system-out").text = _clean("\n".join(notes))
    return suite


def _case(node: NodeVerdict, classname: str, deviates: bool) -> ElementTree.Element:
    case = ElementTree.Element("testcase", {"classname": _clean(classname), "name": _clean(node.node)})
    if not deviates:
        return case
    tag = "error" if node.verdict in _UNKNOWN else "failure"
    serious = [finding for finding in node.findings if finding.severity not in _QUIET]
    summary = "; ".join(f"{finding.coordinate or finding.id}: {finding.observed}" for finding in serious[:3])
    child = ElementTree.SubElement(case, tag, {"type": str(node.verdict), "message": _clean(summary or node.verdict)})
    child.text = _clean("\n".join(_line(finding) for finding in serious))
    return case


def _skipped(pool: audit.PoolAudit, node: NodeVerdict, classname: str) -> ElementTree.Element:
    case = ElementTree.Element("testcase", {"classname": _clean(classname), "name": _clean(node.node)})
    declared = next((one for one in pool.pool.nodes if one.name == node.node), None) if pool.pool else None
    holder = f" by {declared.holder}" if declared is not None and declared.holder else ""
    state = declared.state if declared is not None else "out of service"
    ElementTree.SubElement(case, "skipped", {"message": _clean(f"{state}{holder}; read as {node.verdict}")})
    return case


def _line(finding: Finding) -> str:
    place = f" {finding.coordinate}" if finding.coordinate is not None else ""
    return (
        f"{finding.severity} {finding.id}{place}: expected {finding.expected}, observed {finding.observed}; "
        f"{finding.cause}; {finding.remedy}"
    )


def _clean(text: str) -> str:
    """Characters that XML 1.0 cannot carry, and those that a terminal would act on, are written out."""
    return _NOT_XML.sub("�", plaintext.visible(text, lines=True))
