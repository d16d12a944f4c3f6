"""The audit as one HTML page that needs nothing else: heat map rack × node, findings that can be filtered.

Works without a network and without a script (then nothing filters). Everything that comes from a file or a machine is
escaped, and the page's own policy forbids every script but the one whose hash it names.
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.resources
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from bringup import audit, racks
from lockstep.base import errors
from lockstep.base.names import NodeName
from lockstep.base.plaintext import visible
from pinsets.findings import Finding, Severity, Verdict

__all__ = ["page"]

_CLASS: Final = {
    Verdict.ADMIT: "ok",
    Verdict.PENDING_ROLLOUT: "ok",
    Verdict.UNREACHABLE: "dark",
    Verdict.UNREADABLE: "dark",
    Verdict.DRIFTED: "bad",
    Verdict.SKEWED: "bad",
}
_LETTER: Final = {
    Verdict.ADMIT: "",
    Verdict.PENDING_ROLLOUT: "→",
    Verdict.UNREACHABLE: "✕",
    Verdict.UNREADABLE: "?",
    Verdict.DRIFTED: "D",
    Verdict.SKEWED: "S",
}
"""Beside the colour, for who sees none; pending ones show P."""


def page(found: audit.Audit, code: errors.ExitCode) -> str:
    """The whole document."""
    style, script = _part("css"), _part("js")
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    title = f"lockstep audit · {found.fleet or 'hosts'}"
    numbers = {id(finding): number for number, finding in enumerate(_all(found))}
    body = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="note">{_text(_summary(found, code))}</p>',
        _legend(),
        *(_pool(pool, numbers) for pool in found.pools),
        _findings(found, numbers),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{_text(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + f"\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _part(kind: str) -> str:
    return importlib.resources.files("bringup").joinpath(f"report_html.{kind}").read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _text(value: object) -> str:
    return html.escape(visible(str(value)), quote=True)


def _all(found: audit.Audit) -> Iterator[Finding]:
    for pool in found.pools:
        yield from pool.comparison.findings


def _summary(found: audit.Audit, code: errors.ExitCode) -> str:
    words = [audit.MEANINGS.get(code, code.name.lower()) + f" (exit {int(code)})", found.reading.source]
    words.append(f"read {audit.moment(found.reading.snapshot.taken_at)}")
    if found.reading.second_pass:
        words.append(f"answered only when tried again: {audit.folded(found.reading.second_pass)}")
    if found.reading.interrupted:
        words.append("interrupted: what was read until then")
    return " · ".join(words)


def _legend() -> str:
    entries = (
        ("ok", "in step"),
        ("wait", "P pending"),
        ("bad", "D drifted · S skewed"),
        ("dark", "✕ unreachable · ? unreadable"),
        ("apart", "held or in repair"),
    )
    return '<p class="legend">' + "".join(f'<span class="{kind}">{word}</span>' for kind, word in entries) + "</p>"


def _pool(pool: audit.PoolAudit, numbers: Mapping[int, int]) -> str:
    comparison = pool.comparison
    counts = ", ".join(f"{count} {verdict}" for verdict, count in pool.verdicts.items())
    about = f"{len(comparison.nodes)} nodes: {counts} · compared with {comparison.baseline}"
    if pool.pool is not None:
        about += f" · {pool.pool.sku.sku} · {pool.pool.os} · burnin: {pool.pool.sku.burnin}"
    rows = []
    for rack, members in racks.of(pool):
        cells = "".join(f"<td>{_cell(pool, name, place, numbers)}</td>" for name, place in members)
        rows.append(f'<tr><th scope="row">{_text(rack)}</th>{cells}</tr>')
    parts = [
        f"<h2>{_text(pool.name)}</h2>",
        f'<p class="note">{_text(about)}</p>',
        f'<table class="map"><caption>rack × node</caption><tbody>{"".join(rows)}</tbody></table>',
    ]
    odd = [f"{name}: {verdict}" for name, verdict in comparison.domains.items() if not verdict.in_step]
    if odd:
        parts.append(f"<p>NVLink domains not in step: {_text('; '.join(odd))}</p>")
    waived = [
        f"<li>{_text(name)}: <code>{_text(waiver.coordinate)}</code> = {_text(waiver.value)} until "
        f"{_text(waiver.expires.isoformat())}: {_text(waiver.reason)}</li>"
        for name, waiver in audit.waivers(pool)
    ]
    if waived:
        parts.append(f"<p>Waivers:</p><ul>{''.join(waived)}</ul>")
    parts.append(_common(pool))
    return "\n".join(parts)


def _common(pool: audit.PoolAudit) -> str:
    rows = [
        f"<tr><td><code>{_text(component)}</code></td><td>{_text(value)}</td><td>{_text('; '.join(places))}</td></tr>"
        for component, value, places in audit.common_set(pool.comparison)
    ]
    if not rows:
        return ""
    return f"<details><summary>common set</summary><table><tbody>{''.join(rows)}</tbody></table></details>"


def _cell(pool: audit.PoolAudit, name: NodeName, place: str, numbers: Mapping[int, int]) -> str:
    serving = pool.comparison.nodes.get(name)
    node = serving or pool.comparison.apart[name]
    kind = _CLASS.get(node.verdict, "wait") if serving is not None else "apart"
    named = " ".join(str(numbers[id(one)]) for one in node.findings if id(one) in numbers)
    told = [f"{word}: {seen} (expected {wanted})" for word, seen, wanted in audit.deviations(node)]
    title = "\n".join([f"{visible(name)} ({visible(place)}): {node.verdict}", *(visible(line) for line in told[:12])])
    return (
        f'<button class="cell {kind}" data-f="{named}" data-node="{_text(name)}" aria-pressed="false" '
        f'title="{html.escape(title, quote=True)}" aria-label="{_text(name)} {_text(node.verdict)}">'
        f"{_LETTER.get(node.verdict, 'P')}</button>"
    )


def _findings(found: audit.Audit, numbers: Mapping[int, int]) -> str:
    rows = [
        f'<tr data-n="{numbers[id(one)]}" data-severity="{_text(one.severity)}" data-pool="{_text(pool.name)}">'
        f"<td>{_text(one.severity)}{_marks(one)}</td><td><code>{_text(one.coordinate or one.id)}</code><br>"
        f"{_text(_kind(one))}</td><td>{_text(audit.folded(one.nodes, 2000))}</td><td>{_text(one.expected)}</td>"
        f"<td>{_text(one.observed)}</td><td>{_text(one.cause)}</td><td>{_text(one.remedy)}</td></tr>"
        for pool in found.pools
        for one in pool.comparison.findings
    ]
    heads = ("severity", "coordinate", "nodes", "expected", "observed", "cause", "remedy")
    return (
        f"<h2>findings</h2>\n{_bar(found)}\n"
        f'<table class="findings" id="findings"><thead><tr>{"".join(f"<th>{head}</th>" for head in heads)}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _marks(finding: Finding) -> str:
    marks = ([f"for {finding.use}"] if finding.use is not None else []) + (["doubtful"] if finding.doubtful else [])
    return f"<br>{_text(', '.join(marks))}" if marks else ""


def _kind(finding: Finding) -> str:
    return finding.id if finding.coordinate is not None else ""


def _bar(found: audit.Audit) -> str:
    severities = _options("every severity", (severity.value for severity in Severity))
    pools = _options("every pool", (pool.name for pool in found.pools))
    return (
        '<div class="bar" hidden><input id="text" type="search" placeholder="words in a finding, all must occur" '
        f'aria-label="words"><select id="severity" aria-label="severity">{severities}</select>'
        f'<select id="pool" aria-label="pool">{pools}</select><button id="all" type="button">all</button>'
        '<span id="count" role="status"></span></div>'
    )


def _options(first: str, values: Iterable[str]) -> str:
    return f'<option value="">{first}</option>' + "".join(f"<option>{_text(value)}</option>" for value in values)
