"""An audit as a table for people: the common set once, the odd nodes as a diff from it, then the findings."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bringup import audit, rows
from lockstep.base import errors, hostranges, replacing
from lockstep.base.plaintext import visible
from pinsets.findings import Finding, Severity, Verdict

__all__ = ["show"]

_WIDTH_UNSEEN = 160
"""Columns when no terminal says how many it has: CI logs scroll."""
_WIDTH_OF_FINDINGS = 120
"""Seven columns in less than that would leave some with no room at all."""
_NODES_SHOWN = 60
"""Characters of a folded node list in the table of findings."""

_COLOURS = {
    Verdict.ADMIT: "green",
    Verdict.PENDING_ROLLOUT: "green",
    Verdict.UNREACHABLE: "magenta",
    Verdict.UNREADABLE: "magenta",
    Verdict.DRIFTED: "red",
    Verdict.SKEWED: "red",
}


def _text(said: object, style: str = "") -> Text:
    """What a node said cannot move the cursor or turn the reading direction."""
    return Text(visible(str(said), lines=True), style=style)


def show(found: audit.Audit, code: errors.ExitCode, output: Path | None = None) -> None:
    """Print it on standard output, or write it to ``output`` as plain text."""
    held = io.StringIO() if output is not None else None
    seen = held is None and sys.stdout.isatty()
    console = Console(width=None if seen else _WIDTH_UNSEEN, highlight=False, soft_wrap=False, file=held)
    for pool in found.pools:
        _pool(console, found, pool)
    _end(console, found, code)
    if output is not None and held is not None:
        replacing.write(output, held.getvalue())


def _pool(console: Console, found: audit.Audit, pool: audit.PoolAudit) -> None:
    comparison = pool.comparison
    title = _text(f"{found.fleet} · {pool.name}" if found.fleet else pool.name, style="bold")
    if pool.pool is not None:
        title.append(f" · {pool.pool.sku.sku} · {pool.pool.os} · burnin: {pool.pool.sku.burnin}", style="not bold")
    console.print(title)
    total = len(comparison.nodes)
    counts = [_text(f"{count} {verdict}", style=_colour(verdict)) for verdict, count in pool.verdicts.items()]
    console.print(_text("  ").append(f"{total} node{'s' if total != 1 else ''}: ").append(_text(", ").join(counts)))
    console.print(_text(f"  compared with {comparison.baseline}"))
    odd = [group for group in rows.alike(pool.groups) if group.deviations or not group.verdict.in_step]
    _common(console, pool, odd)
    for group in odd:
        _group(console, group)
    _domains(console, pool)
    _apart(console, pool)
    _waivers(console, pool)
    _findings(console, comparison.findings)
    console.print()


def _common(console: Console, pool: audit.PoolAudit, odd: Sequence[audit.Group]) -> None:
    common = audit.common_set(pool.comparison)
    if not common:
        return
    strange = {name for group in odd for name in group.nodes}
    names = [name for name in pool.comparison.nodes if name not in strange]
    head = f"common set ({hostranges.fold(names)})" if names else "common set"
    console.print(_text(f"  {head}", style="bold"))
    table = _table()
    for component, value, places in common:
        table.add_row(_text(component), _text(value), _text("; ".join(places), style="dim"))
    console.print(Padding(table, (0, 0, 0, 4)))


def _group(console: Console, group: audit.Group) -> None:
    line = _text("  ").append(_text(hostranges.fold(group.nodes), style="bold")).append(" ")
    console.print(line.append(str(group.verdict), style=_colour(group.verdict)))
    table = _table()
    for word, observed, expected in group.deviations:
        table.add_row(_text(word), _text(observed, style="red"), _text(f"expected {expected}", style="dim"))
    if group.deviations:
        console.print(Padding(table, (0, 0, 0, 4)))


def _domains(console: Console, pool: audit.PoolAudit) -> None:
    odd = {name: verdict for name, verdict in pool.comparison.domains.items() if not verdict.in_step}
    for name, verdict in odd.items():
        console.print(_text(f"  NVLink domain {name}: ").append(str(verdict), style=_colour(verdict)))


def _apart(console: Console, pool: audit.PoolAudit) -> None:
    declared = {node.name: node for node in pool.pool.nodes} if pool.pool else {}
    for name, result in pool.comparison.apart.items():
        node = declared.get(name)
        state = node.state if node is not None else "out of service"
        holder = f" by {node.holder}" if node is not None and node.holder else ""
        console.print(_text(f"  apart: {name} ({state}{holder}) ").append(str(result.verdict), style="dim"))


def _waivers(console: Console, pool: audit.PoolAudit) -> None:
    for name, waiver in audit.waivers(pool):
        told = (
            f"  waived until {waiver.expires.isoformat()}: {name} {waiver.coordinate} = {waiver.value}: {waiver.reason}"
        )
        console.print(_text(told, style="dim"))


def _findings(console: Console, findings: Sequence[Finding]) -> None:
    if not findings:
        return
    console.print(_text("  findings", style="bold"))
    if console.width < _WIDTH_OF_FINDINGS:
        _under_each_other(console, findings)
        return
    table = _table("severity", "coordinate", "nodes", "expected", "observed", "cause", "remedy")
    for places, finding in rows.rows(findings):
        table.add_row(
            _text(_severity(finding), style=_weight(finding)),
            _text(places.replace(" ", "\n")),
            _text(_short(hostranges.fold(finding.nodes))),
            _text(finding.expected),
            _text(finding.observed),
            _text(finding.cause),
            _text(finding.remedy),
        )
    console.print(Padding(table, (0, 0, 0, 4)))


def _under_each_other(console: Console, findings: Sequence[Finding]) -> None:
    for places, finding in rows.rows(findings):
        words = _text(_severity(finding).replace("\n", ", "), style=_weight(finding))
        console.print(Padding(words.append(_text(f" {_short(hostranges.fold(finding.nodes))}")), (0, 0, 0, 4)))
        console.print(Padding(_text(places), (0, 0, 0, 6)))
        for word in ("expected", "observed", "cause", "remedy"):
            console.print(Padding(_text(f"{word}: {getattr(finding, word)}"), (0, 0, 0, 6)))


def _weight(finding: Finding) -> str:
    return "red" if finding.severity in _SERIOUS else "yellow"


def _severity(finding: Finding) -> str:
    use = f"\nfor {finding.use}" if finding.use is not None else ""
    return finding.severity.value + use + ("\ndoubtful" if finding.doubtful else "")


_SERIOUS = (Severity.BLOCK, Severity.GROUP_BLOCK)


def _end(console: Console, found: audit.Audit, code: errors.ExitCode) -> None:
    reading = found.reading
    notes = [reading.source]
    if reading.second_pass:
        notes.append(f"answered only when tried again: {hostranges.fold(reading.second_pass)}")
    if found.known:
        notes.append(f"{found.known} known deviations of {found.known_from} are left out")
    notes += _undecided(found)
    if reading.interrupted:
        notes.append("interrupted: what was read until then")
    console.print(_text(" · ".join(notes), style="dim"))
    colour = "green" if code is errors.ExitCode.IN_STEP else "red"
    console.print(_text(f"{audit.MEANINGS.get(code, code.name.lower())} (exit {int(code)})", style=f"bold {colour}"))


def _undecided(found: audit.Audit) -> list[str]:
    """Rules that were neither kept nor broken: those whose facts could not be read by name, the others as a number."""
    told = [one for pool in found.pools for one in pool.comparison.undecided]
    tried = sorted({one.rule for one in told if one.tried})
    rest = len({one.rule for one in told} - set(tried))
    notes = [f"rules not decided, since something could not be read: {', '.join(tried)}"] if tried else []
    if rest:
        notes.append(f"{rest} rules ask for what this reading does not, or no table holds yet (--format json)")
    return notes


def _table(*heads: str) -> Table:
    table = Table(box=None, show_header=bool(heads), pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in heads or ("", "", ""):
        # A coordinate cut in two cannot be copied.
        table.add_column(head, overflow="fold", no_wrap=head in ("severity", "coordinate"))
    return table


def _short(text: str) -> str:
    return text if len(text) <= _NODES_SHOWN else text[: _NODES_SHOWN - 1] + "…"


def _colour(verdict: Verdict) -> str:
    return _COLOURS.get(verdict, "yellow")
