"""Pins that only a BMC tells, in a pool that names no Redfish: listed, never held against a node."""

from __future__ import annotations

import pytest

from inventory import model
from lockstep.base.names import DomainName, NodeName, PoolName, Slot
from pinsets import canonical, compare
from pinsets.facts import NOT_OFFERED, Coordinate, Fact, Layer, NodeFacts, Observation, Snapshot, Unreadable, Version
from pinsets.findings import Severity, Verdict
from pinsets.model import Lock, LockedPin

PLACE = Coordinate.parse("firmware.bmc@running")
PINS = (LockedPin(component="firmware.bmc", layers=(Layer.RUNNING,), version="25.08-9"),)
LOCK = Lock(
    pinset="p",
    os="o-1-a",
    sku=("sku",),
    pins=PINS,
    packages=(),
    made_from="0" * 64,
    full=canonical.full("p", "o-1-a", ["sku"], PINS, [], [], "0" * 64),
    job=canonical.job(PINS),
)
SKU = model.SkuFile(sku="sku", accelerator="A", gpus={}, nvlink="none")


def _judged(seen: Observation | None, sources: tuple[str, ...] | None) -> tuple[Verdict, list[tuple[str, Severity]]]:
    facts = {PLACE: Fact(PLACE, seen, "x")} if seen is not None else {}
    node = model.Node(NodeName("n"), PoolName("p"), Slot("n"), "n", DomainName("n"))
    found = compare.compare(
        [compare.Expectation(node, SKU, LOCK, sources=sources)],
        Snapshot(1.0, {node.name: NodeFacts(node.name, 1.0, facts, attributes={"gpus": ""})}),
    )
    return found.nodes[node.name].verdict, [(one.id, one.severity) for one in found.findings]


@pytest.mark.parametrize("seen", [None, NOT_OFFERED])
def test_a_gap_by_choice_is_an_info(seen: Observation | None) -> None:
    assert _judged(seen, ("ssh",)) == (Verdict.ADMIT, [("not-verified.firmware.bmc", Severity.INFO)])


@pytest.mark.parametrize("sources", [None, ("ssh", "redfish")])
def test_a_gap_that_nobody_chose_is_unreadable(sources: tuple[str, ...] | None) -> None:
    assert _judged(None, sources) == (Verdict.UNREADABLE, [("unreadable.firmware.bmc", Severity.BLOCK)])


def test_what_was_tried_and_failed_is_unreadable_whatever_the_pool_names() -> None:
    assert _judged(Unreadable("no answer in 8 s"), ("ssh",))[0] is Verdict.UNREADABLE


def test_what_was_read_is_compared_whatever_the_pool_names() -> None:
    assert _judged(Version("25.08-9", "25.08-9"), ("ssh",)) == (Verdict.ADMIT, [])
    assert _judged(Version("25.06-A", "25.06-A"), ("ssh",))[0] is Verdict.DRIFTED
