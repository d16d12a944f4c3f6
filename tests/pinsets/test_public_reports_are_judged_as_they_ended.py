"""Public reports of skew and of half upgrades: facts in, the verdict that each one ended with out.

A file of tests/data/reports is one report, ``B01`` to ``B61``, or one moment of it (``a`` before, ``b`` after): its
``report`` says where it was told, ``what`` what happened there, in our words. With ``pins`` the nodes are compared with
a lock of these, without with the majority. Findings read ``ID SEVERITY NODES`` and ``for USE``; all of them are named.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from inventory import model
from lockstep.base import documents, hostranges, issues
from lockstep.base.names import ComponentName, DomainName, NodeName, PoolName, Slot
from pinsets import canonical, compare, components, normalisers, rules
from pinsets.facts import ABSENT, Coordinate, Fact, NodeFacts, Observation, Snapshot, Unreadable, Version
from pinsets.findings import Comparison, Finding
from pinsets.model import Lock, LockedPin

FOLDER = Path(__file__).parents[1] / "data" / "reports"
CASES = sorted(FOLDER.glob("*.yaml"))
NAME = re.compile(r"B(\d\d)([a-z]?)_[a-z0-9_]+")


def _load(path: Path) -> dict[str, Any]:
    report = issues.Report()
    document = documents.load(path, report)
    report.raise_if_errors(path.stem)
    assert document is not None
    found: dict[str, Any] = document.data
    return found


def _lock(pins: dict[str, dict[str, Any]]) -> Lock:
    made = []
    for name, given in sorted(pins.items()):
        entry = components.load()[ComponentName(name)]
        fields = {
            "component": name,
            "instance": entry.instance,
            "activation": entry.activation,
            "layers": entry.layers,
            **given,
            "version": normalisers.normalise(name, str(given["version"])),
        }
        made.append(LockedPin.model_validate(fields))
    full = canonical.full("report", "any-1-amd64", ["sku"], made, [], [], "0" * 64)
    return Lock(
        pinset="report",
        os="any-1-amd64",
        sku=("sku",),
        pins=tuple(made),
        packages=(),
        made_from="0" * 64,
        full=full,
        job=canonical.job(made),
    )


def _observation(component: str, value: object) -> Observation:
    text = str(value)
    if text == "absent":
        return ABSENT
    if text.startswith("unreadable: "):
        return Unreadable(text.removeprefix("unreadable: "))
    return Version(normalisers.normalise(component, text), text)


def _node(name: str, entry: dict[str, Any]) -> NodeFacts:
    facts = {}
    for text, value in entry["facts"].items():
        place = Coordinate.parse(text)
        facts[place] = Fact(place, _observation(place.component, value), "case")
    attributes = {key: str(value) for key, value in entry.get("attributes", {}).items()}
    return NodeFacts(NodeName(name), 1.0, facts, attributes=attributes)


def _sku(case: dict[str, Any]) -> model.Sku:
    given = case.get("sku", {})
    count = given.get("gpus", 0)
    return model.SkuFile(
        sku="sku",
        accelerator=given.get("accelerator", "any"),
        gpus={f"0000:{number:02x}:00.0": f"gpu{number}" for number in range(count)},
        nvlink=given.get("nvlink", "none"),
    )


def _compare(case: dict[str, Any]) -> Comparison:
    entries = {name: entry for pattern, entry in case["nodes"].items() for name in hostranges.unfold(pattern)}
    snapshot = Snapshot(1.0, {NodeName(name): _node(name, entry) for name, entry in entries.items()})
    if "pins" not in case:
        return compare.compare_without_fleet(snapshot)
    lock, sku = _lock(case["pins"]), _sku(case)
    return compare.compare(
        [
            compare.Expectation(
                model.Node(NodeName(name), PoolName("p"), Slot(name), name, DomainName(entry.get("domain", name))),
                sku,
                lock,
            )
            for name, entry in entries.items()
        ],
        snapshot,
    )


def _text(finding: Finding) -> str:
    use = f" for {finding.use}" if finding.use is not None else ""
    return f"{finding.id} {finding.severity.value} {hostranges.fold(finding.nodes)}{use}"


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem.replace("_", " ")) for path in CASES])
def test_a_public_report_is_judged_as_it_ended(path: Path) -> None:
    case = _load(path)
    found = _compare(case)
    assert {name: result.verdict.value for name, result in found.nodes.items()} == case["verdicts"]
    assert sorted({_text(finding) for finding in found.findings}) == sorted(case["findings"])


def test_every_report_from_b01_to_b61_is_a_case_with_a_sentence_for_a_name() -> None:
    names = [NAME.fullmatch(path.stem) for path in CASES]
    assert all(names), [path.stem for path, name in zip(CASES, names, strict=True) if name is None]
    numbers = {int(name[1]) for name in names if name is not None}
    assert numbers == set(range(1, 62))
    letters: dict[str, list[str]] = {}
    for name in names:
        assert name is not None
        letters.setdefault(name[1], []).append(name[2])
    assert all(found == [""] or found == list("abcdef"[: len(found)]) for found in letters.values()), letters


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem[:4])
def test_a_case_says_where_it_was_told_and_names_registered_layers_and_known_rules(path: Path) -> None:
    case = _load(path)
    assert len(case["report"]) > 10
    assert len(case["what"]) > 10
    known = {rule.id for rule in rules.load()}
    for text in case["findings"]:
        kind, _, rule = text.split(" ")[0].partition(".")
        assert kind != "rule" or rule in known
    for entry in case["nodes"].values():
        for text in entry["facts"]:
            place = Coordinate.parse(text)
            component = components.load()[place.component]
            assert place.layer in (*component.layers, *component.further), f"{place} can be read nowhere"
