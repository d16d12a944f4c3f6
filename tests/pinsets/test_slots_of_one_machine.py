"""Slots of one machine have right versions of their own: each is compared with itself on the other nodes."""

from __future__ import annotations

from typing import Any

from inventory import model
from lockstep.base.names import DomainName, NodeName, PoolName, Slot
from pinsets import canonical, compare
from pinsets.facts import Coordinate, Fact, Layer, NodeFacts, Snapshot, Version
from pinsets.findings import Comparison
from pinsets.model import Lock, LockedPin, Scope

SKU = model.SkuFile(
    sku="sku",
    accelerator="NVIDIA H100 80GB HBM3",
    gpus={},
    instances={"pcieswitch": {"PCIeSwitch_0": "pcieswitch0", "PCIeSwitch_1": "pcieswitch1"}},
)
DOMAIN = DomainName("d")


def _lock(**pin: Any) -> Lock:
    pins = (LockedPin(component="firmware.pcieswitch", layers=(Layer.RUNNING,), instance="pcieswitch", **pin),)
    full = canonical.full("p", "any", ["sku"], pins, [], [], "0" * 64)
    return Lock(
        pinset="p",
        os="any",
        sku=("sku",),
        pins=pins,
        packages=(),
        made_from="0" * 64,
        full=full,
        job=canonical.job(pins),
    )


def _compare(lock: Lock, *nodes: tuple[str, str]) -> Comparison:
    """``nodes``: what each has in its two slots."""
    facts, expected = {}, []
    for index, values in enumerate(nodes):
        name = NodeName(f"n{index}")
        places = [Coordinate.parse(f"firmware.pcieswitch[pcieswitch{slot}]@running") for slot in (0, 1)]
        read = {place: Fact(place, Version(value, value), "case") for place, value in zip(places, values, strict=True)}
        facts[name] = NodeFacts(name, 1.0, read, attributes={"gpus": ""})
        node = model.Node(name, PoolName("p"), Slot(name), name, DOMAIN)
        expected.append(compare.Expectation(node, SKU, lock))
    return compare.compare(expected, Snapshot(1.0, facts))


def test_each_slot_is_held_against_its_own_version() -> None:
    lock = _lock(version="", instances={"pcieswitch0": "0.0.7", "pcieswitch1": "1.0.7"})
    right = _compare(lock, ("0.0.7", "1.0.7"))
    assert [verdict.verdict.value for verdict in right.nodes.values()] == ["admit"]
    swapped = _compare(lock, ("1.0.7", "0.0.7"))
    assert {(str(one.coordinate), one.expected, one.observed) for one in swapped.findings} == {
        ("firmware.pcieswitch[pcieswitch0]@running", "0.0.7", "1.0.7"),
        ("firmware.pcieswitch[pcieswitch1]@running", "1.0.7", "0.0.7"),
    }


def test_accepted_values_are_compared_slot_by_slot_between_nodes() -> None:
    lock = _lock(version="0.0.7", accept=("1.0.7",), scope=Scope.JOB)
    assert _compare(lock, ("0.0.7", "1.0.7"), ("0.0.7", "1.0.7")).findings == ()
    (finding,) = _compare(lock, ("0.0.7", "1.0.7"), ("0.0.7", "1.0.7"), ("0.0.7", "0.0.7")).findings
    assert finding.id == "skew.firmware.pcieswitch"
    assert str(finding.coordinate) == "firmware.pcieswitch[pcieswitch1]@running"
    assert finding.nodes == ("n2",)
