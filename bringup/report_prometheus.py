r"""The audit as Prometheus text (exposition format 0.0.4), for a node exporter's textfile collector.

Only what deviates has a series of its own: a fleet of 10,000 nodes in step is a dozen lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from bringup import audit
from lockstep.base import errors
from lockstep.base.plaintext import visible
from pinsets.findings import Verdict

__all__ = ["CONTENT_TYPE", "prometheus"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[tuple[tuple[str, str], ...], float]


def prometheus(found: audit.Audit, code: errors.ExitCode) -> str:
    """The text. Every family appears, also empty, so that an alert can tell "none" from "no audit"."""
    fleet = ("fleet", found.fleet or "hosts")
    return "".join(
        [
            _family("audit_timestamp_seconds", "When the reading began, Unix time.", [((fleet,), _taken(found))]),
            _family("audit_exit_code", "Exit code of the audit (docs/cli.md).", [((fleet,), float(code))]),
            _family("audit_nodes", "Nodes in service by verdict.", _nodes(found, fleet)),
            _family("audit_nodes_apart", "Nodes declared held or in repair.", _apart(found, fleet)),
            _family("audit_node_deviates", "1 for each node that is not in step.", _odd(found, fleet)),
            _family("audit_domain_deviates", "1 for each NVLink domain that is not in step.", _domains(found, fleet)),
            _family("audit_finding_nodes", "Nodes that a finding names.", _findings(found, fleet)),
            _family("audit_second_pass_nodes", "Nodes that answered only when tried again.", _second(found, fleet)),
        ]
    )


def _family(name: str, text: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP lockstep_{name} {text}", f"# TYPE lockstep_{name} gauge"]
    for labels, value in samples:
        inner = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels)
        lines.append(f"lockstep_{name}{{{inner}}} {value:.17g}")
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    """Backslash first: what `visible` writes out holds some."""
    return visible(label).replace("\\", r"\\").replace('"', r"\"")


def _taken(found: audit.Audit) -> float:
    return found.reading.snapshot.taken_at


def _nodes(found: audit.Audit, fleet: tuple[str, str]) -> Iterator[Sample]:
    for pool in found.pools:
        counts = pool.verdicts
        for verdict in Verdict:
            yield (fleet, ("pool", pool.name), ("verdict", verdict.value)), counts.get(verdict, 0)


def _apart(found: audit.Audit, fleet: tuple[str, str]) -> Iterator[Sample]:
    for pool in found.pools:
        yield (fleet, ("pool", pool.name)), len(pool.comparison.apart)


def _odd(found: audit.Audit, fleet: tuple[str, str]) -> Iterator[Sample]:
    for pool in found.pools:
        for node in pool.comparison.nodes.values():
            if not node.verdict.in_step:
                yield (fleet, ("pool", pool.name), ("node", node.node), ("verdict", node.verdict.value)), 1


def _domains(found: audit.Audit, fleet: tuple[str, str]) -> Iterator[Sample]:
    for pool in found.pools:
        for domain, verdict in pool.comparison.domains.items():
            if not verdict.in_step:
                yield (fleet, ("pool", pool.name), ("domain", domain), ("verdict", verdict.value)), 1


def _findings(found: audit.Audit, fleet: tuple[str, str]) -> Iterator[Sample]:
    """One series per kind, severity and coordinate: values would make new series with every version."""
    for pool in found.pools:
        counts: Counter[tuple[str, str, str]] = Counter()
        for finding in pool.comparison.findings:
            kind = "common-cause" if finding.id.startswith("common-cause:") else finding.id
            counts[kind, finding.severity.value, str(finding.coordinate or "")] += len(finding.nodes)
        for (kind, severity, coordinate), count in sorted(counts.items()):
            labels = (fleet, ("pool", pool.name), ("id", kind), ("severity", severity), ("coordinate", coordinate))
            yield labels, count


def _second(found: audit.Audit, fleet: tuple[str, str]) -> Iterator[Sample]:
    yield (fleet,), len(found.reading.second_pass)
