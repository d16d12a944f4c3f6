"""Common cause, the short texts of skew, the majority without a fleet, and equality with a predecessor."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from inventory import model
from lockstep.base import errors
from lockstep.base.names import ComponentName, DomainName, NodeName, PoolName, Slot
from pinsets import causes, compare, equality, skew
from pinsets.facts import ABSENT, Coordinate, Fact, Layer, NodeFacts, Observation, Snapshot, Unreadable, Version
from pinsets.findings import Comparison, Verdict
from pinsets.model import Activation, Lock, LockedPin

SKU = model.SkuFile(sku="sku", accelerator="A", gpus={"a": "gpu0"}, nvlink="none")
PINS = (
    LockedPin(
        component="driver",
        layers=(Layer.RUNNING, Layer.PACKAGE),
        version="580.105.08",
        activation=Activation.REBOOT,
    ),
    LockedPin(component="firmware.gpu", layers=(Layer.RUNNING,), version="97.2", accept=("97.1",), instance="gpu"),
    LockedPin(component="nccl", layers=(Layer.LIBRARY,), version="2.28.9"),
)
LOCK = Lock(
    pinset="p", os="o-1-a", sku=("sku",), pins=PINS, packages=(), made_from="0" * 64, full="f" * 64, job="e" * 64
)
BASE = {
    "driver@running": "580.105.08",
    "driver@package": "580.105.08",
    "firmware.gpu[gpu0]@running": "97.2",
    "nccl@library": "2.28.9",
}


def _seen(text: str) -> Observation:
    if text == "absent":
        return ABSENT
    return Unreadable(text.removeprefix("unreadable: ")) if text.startswith("unreadable: ") else Version(text, text)


def _node(name: str, changes: Mapping[str, str | None] | None = None, **fields: object) -> NodeFacts:
    texts = {**BASE, **(changes or {})}
    parsed = {Coordinate.parse(text): value for text, value in texts.items()}
    facts = {at: Fact(at, _seen(value), "ssh:x") for at, value in parsed.items() if value is not None}
    return NodeFacts(NodeName(name), 1.0, facts, attributes={"gpus": "gpu0"}, **fields)  # type: ignore[arg-type]


def _snapshot(*nodes: NodeFacts) -> Snapshot:
    return Snapshot(1.0, {node.node: node for node in nodes})


def _expect(snapshot: Snapshot, state: model.NodeState = model.NodeState.IN_SERVICE) -> list[compare.Expectation]:
    return [
        compare.Expectation(model.Node(name, PoolName("p"), Slot(name), name, DomainName(name), state=state), SKU, LOCK)
        for name in snapshot.nodes
    ]


def _with_causes(
    snapshot: Snapshot, before: frozenset[str] | None = frozenset(), state: model.NodeState = model.NodeState.IN_SERVICE
) -> Comparison:
    expectations = _expect(snapshot, state)
    return causes.common_cause(compare.compare(expectations, snapshot), before, expectations, snapshot)


def _fleet(odd: int, total: int, **fields: object) -> Snapshot:
    return _snapshot(*(_node(f"n{n}", {"nccl@library": "2.27.7"} if n < odd else None, **fields) for n in range(total)))


def test_the_same_value_new_on_many_nodes_is_one_finding_that_withholds_them() -> None:
    found = _with_causes(_fleet(3, 20))
    (cause,) = found.common_causes
    assert cause.id == "common-cause:nccl@library=2.27.7"
    assert cause.nodes == ("n0", "n1", "n2")
    assert causes.withheld(found) == {"n0", "n1", "n2"}
    assert causes.withheld(found, [cause.id]) == frozenset()
    assert found.nodes[NodeName("n0")].verdict is Verdict.DRIFTED


@pytest.mark.parametrize(("odd", "total"), [(2, 4), (3, 30), (2, 3)])
def test_few_nodes_or_a_small_share_are_no_common_cause(odd: int, total: int) -> None:
    assert _with_causes(_fleet(odd, total)).common_causes == ()


def test_what_was_seen_before_is_not_new() -> None:
    snapshot = _fleet(3, 10)
    before = causes.seen(compare.compare(_expect(snapshot), snapshot))
    assert before == {f"n{n} nccl@library=2.27.7" for n in range(3)}
    assert _with_causes(snapshot, before).common_causes == ()
    grown = _fleet(6, 10)
    assert _with_causes(grown, before).common_causes[0].nodes == ("n3", "n4", "n5")


def test_without_an_earlier_comparison_everything_is_new() -> None:
    assert len(_with_causes(_fleet(3, 10), None).common_causes) == 1


def test_machines_that_were_never_admitted_are_no_common_cause() -> None:
    fresh = _fleet(10, 10)
    assert _with_causes(fresh, None, model.NodeState.NEW).common_causes == ()
    admitted = _fleet(10, 10, admission={"lock": "f" * 64})
    assert len(_with_causes(admitted, None, model.NodeState.NEW).common_causes) == 1


def test_skew_holds_the_odd_ones_and_nothing_else() -> None:
    snapshot = _snapshot(
        _node("n1"),
        _node("n2", {"driver@running": "580.95.05"}),
        _node("n3", {"nccl@library": "unreadable: no answer in 8 s"}),
        NodeFacts(NodeName("n4"), 1.0, unreachable="hung: no banner in 10 s"),
        NodeFacts(NodeName("n5"), 1.0, _node("n5").facts, attributes={"gpus": ""}),
    )
    assert skew.of(compare.compare(_expect(snapshot), snapshot)) == {
        "n2": {"driver@running": "580.95.05 (pinned 580.105.08)"},
        "n3": {"nccl@library": "unreadable: no answer in 8 s (pinned 2.28.9)"},
        "n4": {"unreachable": "hung: no banner in 10 s"},
        "n5": {"gpu[gpu0]@running": "missing (expected present)"},
    }


def _majority(*nodes: NodeFacts, like: str | None = None) -> Comparison:
    return compare.compare_without_fleet(_snapshot(*nodes), NodeName(like) if like else None)


def test_the_majority_is_the_baseline_from_eighty_percent_on() -> None:
    odd = _node("odd", {"nccl@library": "2.27.7"})
    found = _majority(*(_node(f"n{n}") for n in range(4)), odd)
    assert found.nodes[NodeName("odd")].verdict is Verdict.SKEWED
    assert found.nodes[NodeName("n0")].verdict is Verdict.ADMIT
    assert [(finding.id, finding.nodes) for finding in found.findings] == [("skew.nccl", ("odd",))]
    assert found.baseline == "the majority of 5 nodes"


def test_under_eighty_percent_there_is_no_baseline_and_it_is_said() -> None:
    nodes = [_node(f"n{n}", {"nccl@library": "2.27.7"} if n < 2 else None) for n in range(5)]
    found = _majority(*nodes)
    assert {result.verdict for result in found.nodes.values()} == {Verdict.SKEWED}
    assert found.baseline.endswith("none for nccl@library, where fewer than 80% agree")
    assert Coordinate(ComponentName("nccl"), Layer.LIBRARY) not in found.common


def test_a_golden_node_is_the_baseline_whatever_the_others_have() -> None:
    found = _majority(_node("gold", {"nccl@library": "2.27.7"}), _node("n1"), _node("n2"), like="gold")
    assert {name: result.verdict for name, result in found.nodes.items()} == {
        "gold": Verdict.ADMIT,
        "n1": Verdict.SKEWED,
        "n2": Verdict.SKEWED,
    }
    assert found.baseline == "node gold"


def test_a_golden_node_must_be_among_those_read() -> None:
    with pytest.raises(errors.InputError, match="no such node"):
        _majority(_node("n1"), like="n2")
    silent = NodeFacts(NodeName("n2"), 1.0, unreachable="hung: no banner")
    with pytest.raises(errors.NotMeasuredError, match="hung"):
        _majority(_node("n1"), silent, like="n2")


def test_what_nobody_can_read_is_said_and_not_held_against_anybody() -> None:
    found = _majority(*(_node(f"n{n}", {"nccl@library": "unreadable: needs root"}) for n in range(3)))
    assert {result.verdict for result in found.nodes.values()} == {Verdict.ADMIT}
    assert "not compared, hardly readable: nccl@library" in found.baseline


def test_what_one_cannot_read_and_the_others_can_is_unreadable() -> None:
    found = _majority(*(_node(f"n{n}") for n in range(5)), _node("dumb", {"nccl@library": "unreadable: hung"}))
    assert found.nodes[NodeName("dumb")].verdict is Verdict.UNREADABLE


def test_a_gpu_that_one_node_lacks_is_named_by_its_slot() -> None:
    second = {"firmware.gpu[gpu1]@running": "97.2"}
    found = _majority(*(_node(f"n{n}", second) for n in range(5)), _node("short"))
    (finding,) = found.findings
    assert (finding.id, str(finding.coordinate)) == ("instance.missing", "firmware.gpu[gpu1]@running")
    assert finding.nodes == ("short",)


def test_an_unreachable_host_is_no_part_of_the_majority() -> None:
    silent = [NodeFacts(NodeName(f"s{n}"), 1.0, unreachable="no-route: no route") for n in range(5)]
    found = _majority(_node("n1"), _node("n2"), *silent)
    assert found.nodes[NodeName("n1")].verdict is Verdict.ADMIT
    assert found.nodes[NodeName("s0")].verdict is Verdict.UNREACHABLE
    assert found.verdict is Verdict.UNREACHABLE


def _differences(
    changes: Mapping[str, str | None] | None = None, before: Mapping[str, str] | None = None, **more: Mapping[str, str]
) -> list[tuple[str, str]]:
    current = equality.version_map(_node("n1", changes), LOCK, SKU)
    found = equality.compare(current, LOCK, before, SKU, **more)
    return [(one.coordinate, one.reason) for one in found]


def test_the_version_map_holds_every_pinned_coordinate() -> None:
    assert equality.version_map(_node("n1"), LOCK, SKU) == BASE
    holes = equality.version_map(_node("n1", {"nccl@library": None}), LOCK, SKU)
    assert holes["nccl@library"] == "unreadable: not read"


def test_equal_to_the_lock_and_to_the_predecessor_may_rejoin() -> None:
    assert _differences(None, BASE) == []
    assert _differences(None, None) == []


@pytest.mark.parametrize("value", ["580.95.05", "absent", "unreadable: hung", None])
def test_what_differs_from_the_lock_may_not(value: str | None) -> None:
    assert _differences({"driver@running": value}, BASE) == [("driver@running", "differs from the lock")]


def test_what_differs_from_the_predecessor_may_not_though_it_equals_the_lock() -> None:
    before = {**BASE, "nccl@library": "2.27.7"}
    assert _differences(None, before) == [("nccl@library", "differs from what the predecessor was admitted with")]


def test_values_that_the_lock_accepts_are_equal() -> None:
    assert _differences({"firmware.gpu[gpu0]@running": "97.1"}, BASE) == []
    assert _differences(None, {**BASE, "firmware.gpu[gpu0]@running": "97.1"}) == []
    assert _differences({"firmware.gpu[gpu0]@running": "97.0"}, BASE) == [
        ("firmware.gpu[gpu0]@running", "differs from the lock")
    ]


def test_a_predecessor_whose_value_is_not_recorded_proves_nothing() -> None:
    before = {key: value for key, value in BASE.items() if key != "nccl@library"}
    assert _differences(None, before) == [("nccl@library", "no value of the predecessor is recorded")]


def test_a_waiver_names_the_exact_value() -> None:
    changes = {"nccl@library": "2.27.7"}
    assert _differences(changes, BASE, waived={"nccl@library": "2.27.7"}) == []
    assert _differences(changes, BASE, waived={"nccl@library": "2.27.6"}) != []
