from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from lockstep.base import errors
from placement import explain, requests, topology, waiting
from tests.placement import conftest


def _ask(name: str, count: int, **more: Any) -> requests.Request:
    return requests.parse({"name": name, "members": [{"gpus": 4, "count": count}], "need": "same-domain", **more})


def _names(started: list[tuple[Any, float]]) -> list[str]:
    return [decision.request.name for decision, _ in started]


def test_what_ends_makes_room_for_its_like_and_not_for_older_small_work(nvl72: Any) -> None:
    fleet = nvl72(1)
    line = waiting.Line(fleet.planner)
    assert line.add(_ask("big", 16), 0.0) is not None
    assert line.add(_ask("two", 2), 0.0) is not None
    assert line.add(_ask("small", 1), 1.0) is None
    assert line.add(_ask("next", 16), 2.0) is None
    fleet.planner.release("big")
    assert _names(line.freed(3.0)) == ["next"]
    fleet.planner.release("two")
    assert _names(line.freed(4.0)) == ["small"]


def test_blocks_are_kept_for_a_gang_that_has_waited_long_and_explain_says_so(nvl72: Any) -> None:
    fleet = nvl72(1, 4)
    line = waiting.Line(fleet.planner, patience=10.0, budget=1.0)
    for number in range(4):
        line.add(_ask(f"s{number}", 1), 0.0)
    assert line.add(_ask("gang", 4), 0.0) is None
    fleet.planner.release("s0")
    assert line.freed(20.0) == []
    assert line.add(_ask("late", 1), 21.0) is None, "the freed node is kept"
    told = explain.explain(fleet.planner, _ask("other", 1), 21.0)
    kept = [node for node in told.nodes if node.gate == "kept"]
    assert {node.reason for node in kept} == {"kept free for gang, which waits"}
    for number in (1, 2, 3):
        fleet.planner.release(f"s{number}")
    assert _names(line.freed(30.0)) == ["gang"]


def test_before_its_patience_ends_a_gang_turns_nobody_away(nvl72: Any) -> None:
    fleet = nvl72(1, 2)
    line = waiting.Line(fleet.planner, patience=1000.0)
    line.add(_ask("a", 1), 0.0)
    line.add(_ask("b", 1), 0.0)
    assert line.add(_ask("gang", 2), 0.0) is None
    fleet.planner.release("a")
    assert line.freed(10.0) == []
    assert line.add(_ask("late", 1), 11.0) is not None


def test_a_name_waits_or_runs_once(nvl72: Any) -> None:
    line = waiting.Line(nvl72(1, 1).planner)
    assert line.add(_ask("a", 1), 0.0) is not None
    assert line.add(_ask("b", 1), 0.0) is None
    for name in ("a", "b"):
        with pytest.raises(errors.RefusedError, match="already"):
            line.add(_ask(name, 1), 1.0)
    assert len(line.waiting) == 1


def test_what_keeping_may_cost_is_bounded(nvl72: Any) -> None:
    fleet = nvl72(1, 2)
    line = waiting.Line(fleet.planner, patience=0.0, budget=0.1)
    line.add(_ask("a", 1), 0.0)
    line.add(_ask("b", 1), 0.0)
    assert line.add(_ask("gang", 2), 0.0) is None
    fleet.planner.release("a")
    line.freed(10.0)
    assert line.add(_ask("late", 1), 10.0) is None
    assert _names(line.freed(1000.0)) == ["late"], "the budget is spent, so the node goes to who can use it"


def test_who_may_stand_elsewhere_is_tried_although_its_like_did_not_fit() -> None:
    specs = [
        topology.NodeSpec(f"n{number}", 8000, 8000, 1, "A", domain=f"d{number}", region=region)
        for number, region in enumerate(("eu", "us"))
    ]
    fleet = conftest.Fleet(specs)
    line = waiting.Line(fleet.planner)
    for name, region in (("a", "eu"), ("b", "us")):
        request = requests.parse({"name": name, "members": [{"gpus": 1}], "regions": [region]})
        assert line.add(request, 0.0) is not None
        assert line.add(dataclasses.replace(request, name=f"{name}-next"), 1.0) is None
    fleet.planner.release("b")
    assert _names(line.freed(2.0)) == ["b-next"]


def test_work_larger_than_what_is_free_costs_no_decision(nvl72: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = nvl72(2, 4)
    line = waiting.Line(fleet.planner)
    for number in range(2):
        line.add(_ask(f"full{number}", 4), 0.0)
    line.add(_ask("gang", 4), 0.0)
    asked: list[str] = []
    plan = type(fleet.planner).plan
    monkeypatch.setattr(
        type(fleet.planner), "plan", lambda self, request, now: asked.append(request.name) or plan(self, request, now)
    )
    assert line.freed(1.0) == []
    assert asked == []
