"""Findings and groups of an audit as rows for people: what says the same is said once. Pure; documents keep all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bringup.audit import Group
from pinsets.findings import Finding, Verdict

__all__ = ["ALIKE", "alike", "rows"]

ALIKE: Final = 3
"""So many nodes that did not answer for reasons of one kind are told one by one."""


def rows(findings: Sequence[Finding]) -> list[tuple[str, Finding]]:
    """Findings as rows for people: those that differ only in layer or instance share one, with all coordinates; so do
    all that one node could not be asked for one reason, and many nodes that did not answer for reasons of one kind."""
    merged: dict[tuple[object, ...], tuple[list[str], Finding]] = {}
    for finding in _answers(findings):
        coordinate = finding.coordinate
        same = (finding.severity, finding.nodes, finding.observed, finding.cause, finding.remedy)
        if finding.id.startswith("unreadable."):
            key: tuple[object, ...] = same
        else:
            key = (*same, finding.id, coordinate.component if coordinate is not None else None, finding.expected)
        places, first = merged.setdefault(key, ([], finding))
        places.append(str(coordinate) if coordinate is not None else finding.id)
        if first.expected != finding.expected:
            merged[key] = (places, replace(first, expected="to be read"))
    return [(" ".join(places), finding) for places, finding in merged.values()]


def alike(groups: Sequence[Group]) -> list[Group]:
    """Groups for people: where more than `ALIKE` did not answer for reasons of one kind they are one."""
    kinds = Counter(_kind(observed) for group in groups for _, observed in _silent(group))
    kept: list[Group] = []
    places: dict[str, int] = {}
    for group in groups:
        kind = next((_kind(observed) for _, observed in _silent(group)), None)
        if kind is None or kinds[kind] <= ALIKE:
            kept.append(group)
        elif kind not in places:
            places[kind] = len(kept)
            kept.append(replace(group, deviations=(("unreachable", _many(kind), "an answer"),)))
        else:
            before = kept[places[kind]]
            kept[places[kind]] = replace(before, nodes=(*before.nodes, *group.nodes))
    return kept


def _silent(group: Group) -> list[tuple[str, str]]:
    if group.verdict is not Verdict.UNREACHABLE:
        return []
    return [(word, observed) for word, observed, _ in group.deviations if word == "unreachable"]


def _answers(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, many nodes that did not answer for reasons of one kind as one."""
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.id == "unreachable":
            kinds.setdefault(_kind(finding.observed), []).append(finding)
    kept = []
    for finding in findings:
        same = kinds.get(_kind(finding.observed), []) if finding.id == "unreachable" else []
        if len(same) <= ALIKE:
            kept.append(finding)
        elif finding is same[0]:
            kept.append(_one(same))
    return kept


def _one(findings: Sequence[Finding]) -> Finding:
    first = findings[0]
    nodes = tuple(node for finding in findings for node in finding.nodes)
    differ = len({finding.remedy for finding in findings}) > 1
    remedy = f"for {first.nodes[0]}: {first.remedy}" if differ else first.remedy
    return replace(first, nodes=nodes, observed=_many(_kind(first.observed)), remedy=remedy)


def _kind(observed: str) -> str:
    return observed.partition(":")[0]


def _many(kind: str) -> str:
    return f"{kind}; each in full with --format json"
