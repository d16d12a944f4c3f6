from __future__ import annotations

from typing import Any

import pytest

from pinsets.findings import Verdict
from placement import explain, requests, topology
from placement.health.board import Event
from placement.telemetry.signals import Signal


def _reasons(fleet: Any, **data: Any) -> dict[str, str]:
    """Node → ``gate: reason`` of every node that the request may not use."""
    request = requests.parse({"name": "job", "members": [{"gpus": 4}], **data})
    told = explain.explain(fleet.planner, request, 0.0)
    return {node.name: f"{node.gate}: {node.reason}" for node in told.nodes if node.gate}


def test_a_fatal_xid_takes_out_its_gpu_and_says_so(nvl72: Any) -> None:
    fleet = nvl72(1, 2)
    fleet.board.report(Event(0, 1, "xid 79", 0.0))
    assert _reasons(fleet)["d0-n0"].startswith("capacity: ")
    assert "gpu1 xid 79" in _reasons(fleet)["d0-n0"]
    one = nvl72(1, 1)
    one.board.report(Event(0, 1, "xid 79", 0.0))
    assert one.place(members=[{"gpus": 3}], need="same-domain").members[0].gpus == (0, 2, 3)


def test_a_node_level_xid_takes_out_the_node(nvl72: Any) -> None:
    fleet = nvl72(1, 2)
    fleet.board.report(Event(0, 0, "xid 54", 0.0))
    assert _reasons(fleet) == {
        "d0-n0": "health.node: xid 54: auxiliary power is not connected; check the power connectors"
    }


def test_an_nvlink_error_gates_gangs_and_lets_single_gpus_in(nvl72: Any) -> None:
    fleet = nvl72(1, 1)
    fleet.board.report(Event(0, 0, "xid 74", 0.0))
    assert "xid 74" in _reasons(fleet)["d0-n0"]
    assert fleet.place(members=[{"gpus": 1}]).placed


def test_a_node_out_of_step_takes_nothing(nvl72: Any) -> None:
    fleet = nvl72(1, 2)
    fleet.audit(d0_n1=(Verdict.DRIFTED, "lock-a"))
    assert _reasons(fleet) == {"d0-n1": "audit.verdict: verdict drifted"}


def test_a_gang_never_mixes_two_job_digests(nvl72: Any) -> None:
    fleet = nvl72(1, 6)
    fleet.audit(d0_n0=(Verdict.ADMIT, "lock-b"), d0_n1=(Verdict.ADMIT, "lock-b"))
    decision = fleet.place(members=[{"gpus": 4, "count": 4}], need="same-domain")
    assert fleet.names(decision) == ["d0-n2", "d0-n3", "d0-n4", "d0-n5"]
    assert decision.digest == "lock-a"
    assert not fleet.place(name="more", members=[{"gpus": 4, "count": 3}], need="same-domain").placed


def test_stale_telemetry_shuts_a_node(nvl72: Any) -> None:
    fleet = nvl72(1, 10, telemetry=True)
    for now in range(0, 200, 10):
        for node in range(10):
            for gpu in range(4):
                for signal in (Signal.HEALTH, Signal.CORE_TEMPERATURE, Signal.POWER):
                    if node or now <= 100:
                        fleet.samples.push(node, gpu, signal, 50.0, float(now), float(now))
    request = requests.parse({"name": "job", "members": [{"gpus": 4}]})
    told = explain.explain(fleet.planner, request, 195.0)
    shut = {node.name: node.gate for node in told.nodes if node.gate}
    assert shut == {"d0-n0": "telemetry.freshness"}


def test_a_dead_collector_is_an_alarm_in_every_answer_and_refuses_all_only_at_the_hard_limit(nvl72: Any) -> None:
    fleet = nvl72(1, 10, telemetry=True)
    request = requests.parse({"members": [{"gpus": 4}]})
    unheard = explain.explain(fleet.planner, request, 0.0)
    assert not unheard.decision.placed
    assert unheard.alarms == ("no node reports telemetry, or none for 60 s yet, so none takes work",)
    for now in range(0, 101, 10):
        for node in range(10):
            for gpu in range(4):
                for signal in (Signal.HEALTH, Signal.CORE_TEMPERATURE, Signal.POWER):
                    fleet.samples.push(node, gpu, signal, 50.0, float(now), float(now))
    assert explain.explain(fleet.planner, request, 110.0).alarms == ()
    for now, placed in ((200.0, True), (279.0, True), (281.0, False)):
        told = explain.explain(fleet.planner, request, now)
        assert told.decision.placed is placed
        assert told.alarms == ("telemetry of 10 of 10 nodes is stale at once: look at the collector",)


@pytest.mark.parametrize(
    ("node", "data", "gate"),
    [
        ({"model": "H100"}, {"models": ["GB200", "H100"]}, None),
        ({"region": "eu"}, {"regions": ["eu"]}, None),
        ({"security": 2}, {"security": "vm"}, None),
        ({"modes": frozenset({"mps"})}, {"performance": "mps", "members": [{"gpus": 1, "share": 0.5}]}, None),
    ],
)
def test_isolation_and_residency(nvl72: Any, node: dict[str, Any], data: dict[str, Any], gate: str | None) -> None:
    found = _reasons(nvl72(1, 1, **node), **data)
    assert found.get("d0-n0", "None").split(":")[0] == str(gate)


def test_a_node_that_does_not_share_that_way_takes_no_such_part(fleet_of: Any) -> None:
    fleet = fleet_of(
        [
            topology.NodeSpec(way, 8000, 8000, 1, "A", security=security, region=region, modes=frozenset({way}))
            for way, security, region in (("mps", 1, "eu"), ("time-slicing", 2, "us"))
        ]
    )
    part = {"performance": "time-slicing", "members": [{"gpus": 1, "share": 0.5}]}
    assert _reasons(fleet, **part) == {"mps": "isolation.performance: no time-slicing there"}
    whole = {"members": [{"gpus": 1}]}
    assert _reasons(fleet, **whole, security="vm") == {
        "mps": "isolation.security: offers container at most, asked is vm"
    }
    assert _reasons(fleet, **whole, regions=["us"]) == {"mps": "residency: region eu"}


def test_an_exclusive_tenant_is_alone_and_stays_alone(nvl72: Any) -> None:
    fleet = nvl72(1, 1)
    fleet.place(members=[{"gpus": 1}], tenant="a", exclusive=True)
    assert _reasons(fleet, tenant="b", members=[{"gpus": 1}])["d0-n0"].startswith("tenancy: ")
    assert fleet.place(name="two", members=[{"gpus": 1}], tenant="a").placed


def test_a_whole_node_is_nobody_elses(nvl72: Any) -> None:
    fleet = nvl72(1, 2)
    fleet.place(members=[{"gpus": 1}], performance="whole-node")
    assert _reasons(fleet, members=[{"gpus": 1}])["d0-n0"].startswith("isolation.performance")


def test_a_node_serves_one_compute_domain(nvl72: Any) -> None:
    fleet = nvl72(1, 2)
    fleet.place(members=[{"gpus": 1}], compute_domain=True)
    assert _reasons(fleet, members=[{"gpus": 1}], compute_domain=True)["d0-n0"].startswith("compute-domain: ")
    assert fleet.place(name="two", members=[{"gpus": 1}]).placed


def test_a_node_without_gpus_is_behind_the_same_gates(nvl72: Any) -> None:
    def fleet() -> Any:
        return nvl72(1, 3, gpus=0, numa=())

    drifted, sick, abroad = fleet(), fleet(), nvl72(1, 2, gpus=0, numa=(), region="eu")
    drifted.audit(d0_n0=(Verdict.DRIFTED, "lock-a"), d0_n2=(Verdict.DRIFTED, "lock-a"))
    sick.board.report(Event(0, -1, "xid 54", 0.0))
    sick.board.report(Event(1, -1, "xid 54", 0.0))
    work = [{"gpus": 0, "cpu": 8}]
    assert drifted.names(drifted.place(members=work)) == ["d0-n1"]
    assert sick.names(sick.place(members=work)) == ["d0-n2"]
    assert abroad.place(members=work, regions=["eu"]).placed
    abroad.audit(d0_n0=(Verdict.DRIFTED, "lock-a"), d0_n1=(Verdict.DRIFTED, "lock-a"))
    assert not abroad.place(name="two", members=work, regions=["eu"], now=10.0).placed, "a new audit is seen"


def test_a_gpu_with_a_failing_link_is_the_last_that_single_gpu_work_gets(nvl72: Any) -> None:
    fleet = nvl72(1, 1)
    fleet.board.report(Event(0, 0, "xid 74", 0.0))
    taken = [fleet.place(name=f"j{number}", members=[{"gpus": 1}]).members[0].gpus for number in range(4)]
    assert taken[-1] == (0,)
    shared = nvl72(1, 1)
    shared.board.report(Event(0, 0, "xid 74", 0.0))
    assert shared.place(members=[{"gpus": 1, "share": 0.5}]).members[0].gpus != (0,)


def test_a_link_report_about_a_whole_node_counts_for_each_of_its_gpus(nvl72: Any) -> None:
    fleet = nvl72(1, 2)
    fleet.board.report(Event(0, -1, "dcgm NVLINK_DOWN", 0.0))
    assert _reasons(fleet)["d0-n0"].startswith("health.link: gpu0 dcgm NVLINK_DOWN")
    assert fleet.names(fleet.place(members=[{"gpus": 4}])) == ["d0-n1"]


def test_a_code_that_nobody_explains_shuts_nothing_and_is_told(nvl72: Any) -> None:
    fleet = nvl72(1, 2)
    for node in (0, 1, 1):
        fleet.board.report(Event(node, 0, "xid 9999", 0.0))
    told = explain.explain(fleet.planner, requests.parse({"members": [{"gpus": 4}]}), 0.0)
    assert told.decision.placed
    assert told.warnings == (
        "xid 9999 is not in the policy and came without a recovery action; nodes that reported it: 2",
    )
    assert told.to_json()["warnings"] == list(told.warnings)
