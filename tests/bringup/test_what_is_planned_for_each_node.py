"""tests/data/plans: one file per rule of consent and planning, its name the rule as a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from bringup import planning
from lockstep.base import journal
from tests.bringup import plan_cases

_KEYS = {"action", "stages", "kinds", "vacate", "rollout", "adopt"}


@pytest.mark.parametrize("name", plan_cases.names())
def test_the_plan_is_as_the_case_says(name: str, tmp_path: Path) -> None:
    case = plan_cases.read(name)
    with journal.Journal(tmp_path / "journal.db", "lab") as book:
        plans, picture = plan_cases.plans_of(case, book)
    assert set(case["expect"]) == set(plans), "every node has an expectation"
    for node, expected in case["expect"].items():
        plan = plans[node]
        seen = {
            "action": str(plan.action),
            "stages": [str(stage) for stage in plan.stages],
            "kinds": sorted(str(kind) for kind in plan.kinds),
            "vacate": plan.vacate,
            "rollout": plan.rollout,
            "adopt": plan.adopt,
        }
        said = " / ".join(plan.reasons)
        for key, value in expected.items():
            if key == "says":
                assert value in said, f"{node}: {said}"
            else:
                assert key in _KEYS
                assert seen[key] == value, f"{node}: {key} is {seen[key]}; {said}"
    if "fenced" in case:
        assert [node.name for node in planning.fence_candidates(picture.situations)] == case["fenced"]
