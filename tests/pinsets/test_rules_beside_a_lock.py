"""What rules make of a node that a lock holds: consequences of a pin are dropped, advice stays advice, waivers show."""

from __future__ import annotations

from collections.abc import Mapping

from inventory import model
from lockstep.base.names import DomainName, NodeName, PoolName, Slot
from pinsets import canonical, compare
from pinsets.facts import Coordinate, Fact, Layer, NodeFacts, Snapshot, Version
from pinsets.findings import Comparison, Verdict
from pinsets.model import Activation, Lock, LockedPin

SKU = model.SkuFile(sku="sku", accelerator="NVIDIA H100", gpus={}, nvlink="node")


def _lock(*pins: LockedPin) -> Lock:
    full = canonical.full("p", "o-1-a", ["sku"], pins, [], [], "0" * 64)
    return Lock(
        pinset="p",
        os="o-1-a",
        sku=("sku",),
        pins=pins,
        packages=(),
        made_from="0" * 64,
        full=full,
        job=canonical.job(pins),
    )


DRIVER = LockedPin(
    component="driver", layers=(Layer.RUNNING, Layer.ONDISK), version="580.105.08", activation=Activation.REBOOT
)


def _compare(lock: Lock, facts: Mapping[str, str], waived: Mapping[str, str] | None = None) -> Comparison:
    node = model.Node(NodeName("n"), PoolName("p"), Slot("n"), "n", DomainName("n"))
    seen = {place: Fact(place, Version(text, text), "x") for place, text in _parsed(facts).items()}
    reading = NodeFacts(node.name, 1.0, seen, attributes={"gpus": ""})
    return compare.compare(
        [compare.Expectation(node, SKU, lock, waived_rules=waived or {})], Snapshot(1.0, {node.name: reading})
    )


def _parsed(facts: Mapping[str, str]) -> dict[Coordinate, str]:
    return {Coordinate.parse(text): value for text, value in facts.items()}


def _told(found: Comparison) -> list[str]:
    return sorted(f"{one.id} {one.severity.value}" for one in found.findings)


IN_STEP = {"driver@running": "580.105.08", "driver@ondisk": "580.105.08"}


def test_a_breach_at_a_pins_own_deviation_is_its_consequence() -> None:
    found = _compare(_lock(DRIVER), {**IN_STEP, "driver@running": "580.95.05", "fabricmanager@running": "580.95.05"})
    assert "rule.K1 reboot" not in _told(found)
    assert "pending.driver reboot" in _told(found)


def test_a_reboot_that_no_pin_asks_for_is_advice() -> None:
    kernels = {"kernel@running": "6.8.0-51-generic", "kernel@ondisk": "6.8.0-53-generic"}
    found = _compare(_lock(DRIVER), {**IN_STEP, **kernels})
    assert "rule.K1-kernel warn" in _told(found)
    assert found.nodes[NodeName("n")].verdict is Verdict.ADMIT


def test_a_part_of_what_is_pinned_is_pinned_with_it() -> None:
    flavours = {"driver.flavour@running": "proprietary", "driver.flavour@ondisk": "open"}
    found = _compare(_lock(DRIVER), {**IN_STEP, **flavours})
    assert "rule.K1-flavour reboot" in _told(found)
    assert found.nodes[NodeName("n")].verdict is Verdict.PENDING_REBOOT


def test_a_rule_that_the_pinset_waives_is_an_info_with_its_reason() -> None:
    facts = {**IN_STEP, "fabricmanager@ondisk": "580.95.05"}
    assert "rule.F1 block" in _told(_compare(_lock(DRIVER), facts))
    found = _compare(_lock(DRIVER), facts, {"F1": "the switches are managed by the host"})
    assert "waived.rule.F1 info" in _told(found)
    (finding,) = (one for one in found.findings if one.id == "waived.rule.F1")
    assert finding.cause.endswith("waived by the pinset: the switches are managed by the host")
    assert found.nodes[NodeName("n")].verdict is Verdict.ADMIT


def test_what_could_not_be_decided_is_listed_and_neither_kept_nor_broken() -> None:
    found = _compare(_lock(DRIVER), IN_STEP)
    listed = {one.rule: one for one in found.undecided}
    assert "K1-library" in listed
    assert listed["K1-library"].nodes == ("n",)
    assert any("driver@library" in text for text in listed["K1-library"].missing)
    assert not any(one.id == "rule.K1-library" for one in found.findings)
