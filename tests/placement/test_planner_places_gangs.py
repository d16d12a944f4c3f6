from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lockstep.base import errors
from placement import explain, headroom, requests, waiting


def test_a_gang_is_all_or_nothing_and_in_rank_order(nvl72: Any) -> None:
    fleet = nvl72(2)
    decision = fleet.place(members=[{"gpus": 4, "count": 18}], need="same-domain")
    assert len({name.split("-")[0] for name in fleet.names(decision)}) == 1
    positions = [int(name.split("-n")[1]) for name in fleet.names(decision)]
    assert positions == sorted(positions)
    fleet.place(name="small", members=[{"gpus": 4}])
    refused = fleet.place(name="second", members=[{"gpus": 4, "count": 18}], need="same-domain")
    assert not refused.placed
    assert int(fleet.view.occupancy.members.sum()) == 19


def test_every_domain_is_scored(nvl72: Any) -> None:
    fleet = nvl72(30, 2)
    decision = fleet.place(members=[{"gpus": 4}], need="same-domain")
    assert len(decision.candidates()) == 30
    assert [candidate.place for candidate in decision.candidates()] == list(range(1, 31))


def test_small_work_fills_remainders_before_it_opens_a_domain(nvl72: Any) -> None:
    fleet = nvl72(3)
    first = fleet.place(name="big", members=[{"gpus": 4, "count": 16}], need="same-domain")
    home = fleet.names(first)[0].split("-")[0]
    for number in range(2):
        small = fleet.place(name=f"s{number}", members=[{"gpus": 4}], need="same-domain")
        assert fleet.names(small)[0].split("-")[0] == home
    assert fleet.place(name="third", members=[{"gpus": 4}], need="same-domain").placed


def test_segments_stay_whole_when_a_gang_spans_domains(nvl72: Any) -> None:
    fleet = nvl72(3, 18)
    decision = fleet.place(members=[{"gpus": 4, "count": 32}], segment=16)
    per_domain = [name.split("-")[0] for name in fleet.names(decision)]
    assert sorted(per_domain.count(domain) for domain in set(per_domain)) == [16, 16]


def test_spread_puts_no_two_members_into_one_domain(nvl72: Any) -> None:
    fleet = nvl72(4, 2)
    decision = fleet.place(members=[{"gpus": 2, "count": 4}], need="spread")
    assert len({name.split("-")[0] for name in fleet.names(decision)}) == 4


def test_a_rack_holds_a_gang_that_no_domain_holds(nvl72: Any) -> None:
    fleet = nvl72(6, 4, per_rack=2)
    decision = fleet.place(members=[{"gpus": 4, "count": 7}], need="same-rack")
    assert len({int(name[1]) // 2 for name in fleet.names(decision)}) == 1
    assert len(decision.candidates()) == 3


def test_members_of_different_kinds_come_together(nvl72: Any) -> None:
    fleet = nvl72(2, 3)
    members = [{"gpus": 4, "count": 2}, {"gpus": 1, "count": 3, "cpu": 2}, {"gpus": 0, "cpu": 8}]
    decision = fleet.place(members=members, need="same-domain")
    assert [len(item.gpus) for item in decision.members].count(4) == 2
    assert len(decision.members) == 6


def test_gpus_of_one_member_share_a_pcie_root_where_they_can(nvl72: Any) -> None:
    fleet = nvl72(1, 1)
    assert fleet.place(members=[{"gpus": 1}]).members[0].gpus in ((0,), (2,))
    assert fleet.place(name="pair", members=[{"gpus": 2}]).members[0].gpus in ((0, 1), (2, 3))


def test_gpus_that_must_share_a_root_do_or_are_refused(nvl72: Any) -> None:
    fleet = nvl72(1, 2, gpus=6, numa=(0, 0, 0, 1, 1, 1))
    found = [fleet.place(name=f"p{number}", members=[{"gpus": 2, "one_root": True}]) for number in range(5)]
    gpus = [decision.members[0].gpus for decision in found if decision.placed]
    assert len(gpus) == 4, "of three GPUs under a root the third is nobody's partner"
    assert all(pair[0] // 3 == pair[1] // 3 for pair in gpus)
    assert fleet.place(name="wish", members=[{"gpus": 2}]).placed
    with pytest.raises(errors.RefusedError, match="under one root"):
        fleet.place(name="four", members=[{"gpus": 4, "one_root": True}])


def test_mig_instances_share_a_gpu(nvl72: Any) -> None:
    fleet = nvl72(1, 1)
    found = [
        fleet.place(name=profile + str(number), members=[{"gpus": 1, "profile": profile}])
        for number, profile in enumerate(("3g", "3g", "2g", "1g"))
    ]
    assert all(decision.placed for decision in found)
    gpus = [decision.members[0].gpus for decision in found]
    assert gpus[0] == gpus[1]
    assert gpus[2] == gpus[3] != gpus[0]
    assert fleet.place(name="whole", members=[{"gpus": 3}]).placed is False
    assert fleet.place(name="two", members=[{"gpus": 2}]).placed


def test_headroom_is_the_worst_dimension_and_comes_before_packing(nvl72: Any) -> None:
    fleet = nvl72(2, 2)
    fleet.place(name="there", members=[{"gpus": 4}], need="same-domain")
    hot = np.ones(fleet.topology.numa.shape)
    hot[fleet.view.occupancy.members.nonzero()[0][0] ^ 1] = 0.05
    fleet.planner.refresh(0.0, hot)
    decision = fleet.place(name="next", members=[{"gpus": 4}], need="same-domain")
    assert decision.candidates()[0].level == headroom.AMPLE
    assert decision.candidates()[1].level == 0


def test_the_same_seed_decides_the_same(nvl72: Any) -> None:
    def play() -> list[list[str]]:
        fleet = nvl72(5, 6)
        return [
            fleet.names(fleet.place(name=f"j{size}-{turn}", members=[{"gpus": 4, "count": size}], need="same-domain"))
            for turn in range(3)
            for size in (1, 3, 2)
        ]

    assert play() == play()


def test_preemption_is_advice_and_names_the_least(nvl72: Any) -> None:
    fleet = nvl72(1, 4)
    for number, priority in enumerate((0, 5, 0, 0)):
        fleet.place(name=f"low{number}", members=[{"gpus": 4}], priority=priority)
    refused = fleet.place(name="urgent", members=[{"gpus": 4, "count": 2}], need="same-domain", priority=3)
    assert not refused.placed
    assert set(refused.preempt) <= {"low0", "low2", "low3"}
    assert len(refused.preempt) == 2
    assert int(fleet.view.occupancy.members.sum()) == 4


def test_what_ends_makes_room(nvl72: Any) -> None:
    fleet = nvl72(1, 1)
    fleet.place(name="a", members=[{"gpus": 4}])
    assert not fleet.place(name="b", members=[{"gpus": 1}]).placed
    fleet.planner.release("a")
    assert fleet.place(name="b", members=[{"gpus": 1}]).placed
    with pytest.raises(errors.InputError):
        fleet.planner.release("a")


def test_a_mixed_gang_passes_over_who_cannot_hold_all_kinds_and_explain_says_so(nvl72: Any) -> None:
    fleet = nvl72(2, 3)
    fleet.place(name="there", members=[{"gpus": 1}], need="same-domain")
    members = [{"gpus": 4, "count": 2}, {"gpus": 1, "count": 4}]
    request = requests.parse({"name": "mix", "members": members, "need": "same-domain"})
    told = explain.explain(fleet.planner, request, 0.0)
    taken = {name.split("-")[0] for _, name, _ in told.placed}
    assert len(told.placed) == 6
    assert len(taken) == 1
    verdicts = {scope.candidate.name: scope.verdict for scope in told.scopes}
    assert verdicts[taken.pop()] == "chosen"
    assert sorted(verdicts.values()) == ["chosen", "passed over"]


def test_a_mixed_gang_that_does_not_fit_now_is_refused_for_every_candidate(nvl72: Any) -> None:
    fleet = nvl72(2, 3)
    for number in range(2):
        fleet.place(name=f"there{number}", members=[{"gpus": 1}, {"gpus": 3}], need="same-domain", tenant=str(number))
        fleet.place(name=f"more{number}", members=[{"gpus": 1}], need="same-domain", tenant=str(number))
    members = [{"gpus": 4, "count": 2}, {"gpus": 1, "count": 4}]
    told = explain.explain(fleet.planner, requests.parse({"members": members, "need": "same-domain"}), 0.0)
    assert told.placed == ()
    assert [scope.verdict for scope in told.scopes] == ["refused", "refused"]
    assert all("of 6 members" in scope.reason or "not for all kinds" in scope.reason for scope in told.scopes)


@pytest.mark.parametrize("alone", [{"compute_domain": True}, {"performance": "whole-node"}])
def test_who_takes_a_node_each_has_no_room_for_two_on_one(nvl72: Any, alone: dict[str, Any]) -> None:
    fleet = nvl72(2, 3)
    fleet.place(name="there", members=[{"gpus": 1}], **alone)
    told = explain.explain(
        fleet.planner,
        requests.parse({"members": [{"gpus": 1, "count": 3}], "need": "same-domain", **alone}),
        0.0,
    )
    assert sorted(scope.candidate.room for scope in told.scopes) == [2, 3]
    assert [scope.verdict for scope in told.scopes] == ["chosen", "refused"]


def test_every_gpu_of_a_gang_has_the_headroom_that_it_is_ranked_by(nvl72: Any) -> None:
    fleet = nvl72(1, 2)
    left = np.ones(fleet.topology.numa.shape)
    left[0, 1:] = 0.05
    fleet.planner.refresh(0.0, left)
    decision = fleet.place(members=[{"gpus": 1, "count": 4}], need="same-domain")
    assert decision.candidates()[0].level == headroom.AMPLE
    assert min(left[item.node, gpu] for item in decision.members for gpu in item.gpus) == 1.0
    rest = fleet.place(name="rest", members=[{"gpus": 1, "count": 4}], need="same-domain")
    assert rest.candidates()[0].level == 0


def test_a_name_runs_once_and_a_gang_that_fits_no_more_leaves_nothing_behind(nvl72: Any) -> None:
    fleet = nvl72(1, 2)
    fleet.place(name="a", members=[{"gpus": 1}])
    with pytest.raises(errors.RefusedError, match="runs already"):
        fleet.place(name="a", members=[{"gpus": 1}])
    old = fleet.planner.plan(requests.parse({"name": "gang", "members": [{"gpus": 3, "count": 2}]}), 0.0)
    fleet.place(name="b", members=[{"gpus": 4}])
    before = fleet.view.occupancy.state.gpu.copy()
    with pytest.raises(ValueError, match="are not free"):
        fleet.planner.commit(old)
    assert (fleet.view.occupancy.state.gpu == before).all()
    assert fleet.view.occupancy.members.sum() == 2
    assert set(fleet.planner.running) == {"a", "b"}


def test_advice_names_nobody_who_may_stay_and_leaves_everything_as_it_was(nvl72: Any) -> None:
    fleet = nvl72(6, 4)
    for number in range(24):
        fleet.place(name=f"j{number * 7 % 24:02d}", members=[{"gpus": 4}], priority=number % 3)
    before = fleet.view.occupancy.state.gpu.copy()
    asked = requests.parse({"name": "big", "members": [{"gpus": 4, "count": 3}], "need": "same-domain", "priority": 3})
    ended = fleet.planner.plan(asked, 0.0).preempt
    assert len(ended) == 3
    assert (fleet.view.occupancy.state.gpu == before).all()
    for name in ended:
        fleet.planner.release(name)
    assert fleet.planner.plan(asked, 0.0).placed
    nobody = requests.parse({"name": "big", "members": [{"gpus": 4, "count": 4}], "need": "same-domain", "priority": 0})
    assert fleet.planner.plan(nobody, 0.0).preempt == ()


def test_advice_for_a_mixed_gang_is_enough_for_all_its_kinds(nvl72: Any) -> None:
    fleet = nvl72(1, 3)
    for number in range(6):
        fleet.place(name=f"j{number}", members=[{"gpus": 2}])
    members = [{"gpus": 4}, {"gpus": 1, "count": 2}]
    asked = requests.parse({"name": "mix", "members": members, "need": "same-domain", "priority": 1})
    ended = fleet.planner.plan(asked, 0.0).preempt
    assert len(ended) == 3
    for name in ended:
        fleet.planner.release(name)
    assert fleet.planner.plan(asked, 0.0).placed


def test_the_kinds_of_a_gang_are_not_bounded_by_one_that_is_large_elsewhere(nvl72: Any) -> None:
    members = [{"gpus": 4, "count": 4, "cpu": 1}, {"gpus": 0, "count": 4, "cpu": 100}]
    fleet = nvl72(2, 4)
    line = waiting.Line(fleet.planner)
    first, second, third = (
        requests.parse({"name": name, "members": members, "need": "same-domain"}) for name in ("a", "b", "c")
    )
    assert line.add(first, 0.0) is not None
    assert line.add(second, 0.0) is not None
    assert line.add(third, 0.0) is None
    fleet.planner.release("a")
    assert [decision.request.name for decision, _ in line.freed(1.0)] == ["c"]
