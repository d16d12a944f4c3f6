"""A rule that something unreadable leaves open is listed with its nodes: of a node, of a pool, of an NVLink domain."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from inventory import model
from lockstep.base.names import DomainName, NodeName, PoolName, Slot
from pinsets import compare
from pinsets.facts import Coordinate, Fact, NodeFacts, Observation, Snapshot, Unreadable, Version
from pinsets.findings import Comparison, Undecided

from .test_rules_beside_a_lock import DRIVER, _lock

SKU = model.SkuFile(sku="sku", accelerator="NVIDIA GB200", gpus={}, nvlink="rack")
LOST = "lost"
PLACES = {
    "driver@running": "580.105.08",
    "driver@ondisk": "580.105.08",
    "nccl@library": "2.28.9",
    "imex@running": "580.105.08",
}


def _seen(value: str) -> Observation:
    return Unreadable("no answer in 8 s") if value == LOST else Version(value, value)


def _snapshot(nodes: Mapping[str, Mapping[str, str]]) -> Snapshot:
    read = {}
    for name, changes in nodes.items():
        facts = {place: Fact(place, _seen(value), "x") for place, value in _places({**PLACES, **changes})}
        read[NodeName(name)] = NodeFacts(NodeName(name), 1.0, facts, attributes={"gpus": ""})
    return Snapshot(1.0, read)


def _places(facts: Mapping[str, str]) -> list[tuple[Coordinate, str]]:
    return [(Coordinate.parse(text), value) for text, value in facts.items()]


def _beside_a_lock(nodes: Mapping[str, Mapping[str, str]]) -> Comparison:
    """Two nodes a domain."""
    lock = _lock(DRIVER)
    expected = [
        compare.Expectation(
            model.Node(NodeName(name), PoolName("p"), Slot(name), name, DomainName(f"d{number // 2}")), SKU, lock
        )
        for number, name in enumerate(nodes)
    ]
    return compare.compare(expected, _snapshot(nodes))


def _open(found: Comparison, rule: str) -> Undecided | None:
    return next((one for one in found.undecided if one.rule == rule), None)


@pytest.mark.parametrize("judged", [_beside_a_lock, lambda nodes: compare.compare_without_fleet(_snapshot(nodes))])
def test_a_rule_of_the_pool_is_open_on_all_of_it_for_one_node_that_cannot_be_read(judged: object) -> None:
    found = judged({"a": {}, "b": {"nccl@library": LOST}, "c": {}})  # type: ignore[operator]
    one = _open(found, "N1")
    assert one is not None
    assert (one.nodes, one.tried) == (("a", "b", "c"), True)
    assert one.missing == ("b nccl@library: no answer in 8 s",)
    assert [finding.id for finding in found.findings if finding.id == "rule.N1"] == []


def test_a_rule_that_what_was_read_breaks_already_is_broken_and_not_open() -> None:
    found = _beside_a_lock({"a": {}, "b": {"nccl@library": "2.30.7"}, "c": {"nccl@library": LOST}})
    assert _open(found, "N1") is None
    assert "rule.N1" in [one.id for one in found.findings]


def test_a_rule_of_a_domain_is_open_on_the_nodes_of_that_domain_alone() -> None:
    found = _beside_a_lock({"a": {}, "b": {}, "c": {}, "d": {"imex@running": LOST}, "e": {}, "f": {}})
    one = _open(found, "F2-domain")
    assert one is not None
    assert one.nodes == ("c", "d")
    assert "rule.F2-domain" not in [one.id for one in found.findings], "open is neither kept nor broken"


def test_domains_that_read_alike_are_all_listed_though_one_of_them_is_judged() -> None:
    found = _beside_a_lock({name: {"imex@running": LOST} for name in "abcd"})
    one = _open(found, "F2-domain")
    assert one is not None
    assert one.nodes == ("a", "b", "c", "d")


def test_a_group_of_one_has_no_rules_of_groups() -> None:
    assert _open(_beside_a_lock({"a": {"nccl@library": LOST}}), "N1") is None
