"""Single members go where a packing policy wants them: only among nodes and GPUs that every gate leaves."""

from __future__ import annotations

from typing import Any

import numpy as np

from pinsets.findings import Verdict
from placement import requests
from placement.health.board import Event
from placement.policies import rivals


def _packed(fleet: Any) -> Any:
    rank = np.arange(len(fleet.topology.names))
    fleet.planner.policy = rivals.RIVALS["best-fit"](fleet.view.occupancy.state, rank, np.random.default_rng(0))
    return fleet


def test_a_demoted_link_is_not_used_by_a_member_with_two_gpus(nvl72: Any) -> None:
    fleet = _packed(nvl72(1, 1))
    fleet.board.report(Event(0, 0, "xid 74", 0.0))
    assert fleet.place(members=[{"gpus": 2}]).members[0].gpus == (2, 3)
    assert fleet.place(name="one", members=[{"gpus": 1}]).placed


def test_a_gpu_in_mig_mode_is_not_time_sliced(nvl72: Any) -> None:
    fleet = _packed(nvl72(1, 1))
    first = fleet.place(members=[{"gpus": 1, "profile": "1g"}])
    second = fleet.place(name="part", members=[{"gpus": 1, "share": 0.2}])
    assert second.members[0].gpus != first.members[0].gpus


def test_work_without_a_gpu_keeps_away_from_shut_nodes(nvl72: Any) -> None:
    for policy in (True, False):
        fleet = nvl72(1, 3)
        if policy:
            _packed(fleet)
        fleet.board.report(Event(0, 0, "xid 54", 0.0))
        fleet.audit(d0_n1=(Verdict.DRIFTED, "lock-a"))
        for number in range(3):
            assert fleet.names(fleet.place(name=f"c{number}", members=[{"gpus": 0, "cpu": 8}])) == ["d0-n2"]


def test_headroom_comes_before_packing(nvl72: Any) -> None:
    fleet = _packed(nvl72(1, 2))
    fleet.place(name="there", members=[{"gpus": 1}])
    hot = np.ones(fleet.topology.numa.shape)
    hot[fleet.view.occupancy.members.argmax(), 1:] = 0.05
    fleet.planner.refresh(0.0, hot)
    decision = fleet.place(name="next", members=[{"gpus": 1}])
    assert fleet.view.occupancy.members.tolist() == [1, 1]
    assert decision.placed
    for number in range(3):
        fleet.place(name=f"more{number}", members=[{"gpus": 1}])
    assert fleet.place(name="last", members=[{"gpus": 1}]).placed, "a hot GPU is last, never out"


def test_the_lot_of_a_single_member_is_the_same_with_and_without_scores(nvl72: Any) -> None:
    fleet = _packed(nvl72(3, 4))
    for number in range(20):
        request = {"name": f"j{number}", "members": [{"gpus": 1 + number % 3}]}
        parsed = requests.parse(request)
        scored = fleet.planner.plan(parsed, 0.0, scores=True)
        assert scored.members == fleet.planner.plan(parsed, 0.0).members
        assert scored.candidates()
        fleet.planner.commit(scored)
