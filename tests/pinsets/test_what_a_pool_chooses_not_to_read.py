"""Pins that no source of the pool reads: listed, never held against a node; what one should have read is unreadable."""

from __future__ import annotations

import pytest

from inventory import model
from lockstep.base.names import ComponentName, DomainName, NodeName, PoolName, Slot
from pinsets import canonical, compare, components
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


def _alone(component: str, sources: tuple[str, ...] | None) -> tuple[Verdict, str, Severity, str]:
    """What becomes of a node of which one pinned component was not read."""
    pins = (
        LockedPin(component=component, layers=(components.load()[ComponentName(component)].layers[0],), version="1"),
    )
    full = canonical.full("p", "o-1-a", ["sku"], pins, [], [], "0" * 64)
    lock = LOCK.model_copy(update={"pins": pins, "full": full})
    node = model.Node(NodeName("n"), PoolName("p"), Slot("n"), "n", DomainName("n"))
    sku = SKU.model_copy(update={"gpus": {"0000:01:00.0": "gpu0"}, "nics": {"0000:02:00.0": "nic0"}})
    sku = sku.model_copy(update={"instances": {kind: {"x": "x0"} for kind in ("nvswitch", "cpld", "erot", "asic")}})
    found = compare.compare(
        [compare.Expectation(node, sku, lock, sources=sources)],
        Snapshot(1.0, {node.name: NodeFacts(node.name, 1.0, {}, attributes={"gpus": "gpu0"})}),
    )
    (one,) = [one for one in found.findings if one.id.endswith(f".{component}")]
    return found.nodes[node.name].verdict, one.id, one.severity, one.cause


@pytest.mark.parametrize(
    ("component", "word", "others"),
    [
        ("firmware.nvswitch", "redfish", ("ssh", "kubernetes")),
        ("settings.bios.sriov", "redfish", ("ssh",)),
        ("dra-driver", "kubernetes", ("ssh", "redfish")),
        ("gpu-operator", "kubernetes", ("ssh",)),
        ("firmware.switch.bmc", "folder", ("ssh", "redfish", "kubernetes")),
    ],
)
def test_what_no_source_of_the_pool_reads_is_an_info_that_names_who_does(
    component: str, word: str, others: tuple[str, ...]
) -> None:
    verdict, id_, severity, cause = _alone(component, others)
    assert (verdict, id_, severity) == (Verdict.ADMIT, f"not-verified.{component}", Severity.INFO)
    assert word in cause
    assert _alone(component, (*others, word))[:2] == (Verdict.UNREADABLE, f"unreadable.{component}")


@pytest.mark.parametrize("component", ["firmware.switch.nvos", "firmware.bundle"])
def test_what_nobody_reads_is_a_warning_whatever_the_pool_names(component: str) -> None:
    for sources in (("ssh",), ("ssh", "redfish", "kubernetes")):
        verdict, id_, severity, _ = _alone(component, sources)
        assert (verdict, id_, severity) == (Verdict.ADMIT, f"not-verified.{component}", Severity.WARN)


@pytest.mark.parametrize("component", ["driver", "firmware.gpu", "settings.bios.nps", "kubelet"])
def test_what_the_node_itself_tells_is_nobodys_choice(component: str) -> None:
    for sources in (("redfish",), ("ssh",), ("kubernetes",)):
        assert _alone(component, sources)[0] is Verdict.UNREADABLE


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
