"""Facts in, verdicts and findings out: each file of tests/data/compare is a case, and its name what it shows.

A case names nodes (host ranges), what differs from facts equal to the lock, and what differs from the common lock;
``null`` as a fact means that it was not read. Findings read ``ID SEVERITY COORDINATE NODES OBSERVED for EXPECTED``.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from inventory import model
from lockstep.base import documents, hostranges, issues
from lockstep.base.names import ComponentName, DomainName, NodeName, PoolName, Slot
from pinsets import canonical, compare, components, normalisers
from pinsets.facts import ABSENT, Coordinate, Fact, NodeFacts, Observation, Snapshot, Unreadable, Version
from pinsets.findings import Finding
from pinsets.model import Lock, LockedPin

CASES = sorted((Path(__file__).parents[1] / "data" / "compare").glob("*.yaml"))
PINS = {
    "driver": "580.105.08",
    "firmware.gpu": "97.00.B9.00.69",
    "imex": "580.105.08",
    "kernel": "6.1.0-41-amd64",
    "nccl": "2.28.9",
}
LAYERS = {"imex": ("package",)}


def _lock(name: str, changes: dict[str, dict[str, Any]]) -> Lock:
    pins = []
    for component, version in PINS.items():
        entry = components.load()[ComponentName(component)]
        given = {"version": version, "layers": LAYERS.get(component, entry.layers), **changes.get(component, {})}
        pins.append(LockedPin(component=component, instance=entry.instance, activation=entry.activation, **given))
    made = canonical.full(name, "debian-12-amd64", ["sku"], pins, [], [], "0" * 64)
    return Lock(
        pinset=name,
        os="debian-12-amd64",
        sku=("sku",),
        pins=tuple(pins),
        packages=(),
        made_from="0" * 64,
        full=made,
        job=canonical.job(pins),
    )


def _observation(value: str) -> Observation:
    if value == "absent":
        return ABSENT
    return Unreadable(value.removeprefix("unreadable: ")) if value.startswith("unreadable: ") else Version(value, value)


def _facts(entry: dict[str, Any], sku: model.Sku) -> dict[Coordinate, Fact]:
    base = _lock("base", {})
    texts: dict[str, str | None] = {
        str(coordinate): pin.version for coordinate, pin in base.coordinates({"gpu": sku.slots("gpu")}).items()
    }
    texts.update(entry.get("facts", {}))
    parsed = {Coordinate.parse(text): value for text, value in texts.items()}
    return {at: Fact(at, _observation(value), "ssh:case") for at, value in parsed.items() if value is not None}


def _node(name: str, entry: dict[str, Any], sku: model.Sku) -> NodeFacts:
    if "unreachable" in entry:
        return NodeFacts(NodeName(name), 1.0, unreachable=entry["unreachable"])
    given = {
        "gpus": entry.get("gpus", "gpu0,gpu1"),
        "fabric.cluster-uuid": entry.get("uuid", "u1"),
        "fabric.clique": entry.get("clique", "32766"),
    }
    attributes = {key: value for key, value in given.items() if value is not None}
    if "fabric.cluster-uuid" not in attributes:
        del attributes["fabric.clique"]
    attributes |= entry.get("attributes", {})
    others = []
    for text, value in entry.get("others", {}).items():
        place = Coordinate.parse(text)
        seen = Version(normalisers.normalise(place.component, value), value)
        others.append(Fact(place, seen, "redfish:case"))
    return NodeFacts(NodeName(name), 1.0, _facts(entry, sku), attributes=attributes, others=tuple(others))


def _text(finding: Finding) -> str:
    where = finding.coordinate or "–"
    nodes = hostranges.fold(finding.nodes)
    return f"{finding.id} {finding.severity.value} {where} {nodes} {finding.observed} for {finding.expected}"


def _load(path: Path) -> dict[str, Any]:
    report = issues.Report()
    document = documents.load(path, report)
    report.raise_if_errors(path.stem)
    assert document is not None
    found: dict[str, Any] = document.data
    return found


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem.replace("_", " ")) for path in CASES])
def test_a_case_of_facts_gives_its_verdicts(path: Path) -> None:
    case = _load(path)
    sku = model.SkuFile(sku="sku", accelerator="A", gpus={"a": "gpu0", "b": "gpu1"}, nvlink=case.get("nvlink", "rack"))
    lock = _lock("new", case.get("lock") or {}) if "lock" not in case or case["lock"] is not None else None
    previous = _lock("old", case["previous"]) if "previous" in case else None
    expectations, facts = [], {}
    for pattern, entry in case["nodes"].items():
        for name in hostranges.unfold(pattern):
            node = model.Node(
                NodeName(name),
                PoolName("p"),
                Slot(name),
                name,
                DomainName(entry.get("domain", "r1")),
                state=model.NodeState(entry.get("state", "in-service")),
                waivers=tuple(model.Waiver.model_validate(waiver) for waiver in entry.get("waivers", ())),
            )
            expectations.append(compare.Expectation(node, sku, lock, previous))
            if not entry.get("missing"):
                facts[NodeName(name)] = _node(name, entry, sku)
    taken = datetime.datetime.fromisoformat(f"{case.get('taken', '2026-01-01')}T12:00:00+00:00").timestamp()
    found = compare.compare(expectations, Snapshot(taken, facts))
    assert {name: result.verdict.value for name, result in found.nodes.items()} == case["verdicts"]
    assert sorted(map(_text, found.findings)) == sorted(case["findings"])
    assert {name: result.verdict.value for name, result in found.apart.items()} == case.get("apart", {})
    if "domains" in case:
        assert {name: verdict.value for name, verdict in found.domains.items()} == case["domains"]
    for coordinate, remedy in case.get("remedies", {}).items():
        assert {one.remedy for one in found.findings if str(one.coordinate) == coordinate} == {remedy}
    for name, result in found.nodes.items():
        assert all(name in finding.nodes for finding in result.findings)
