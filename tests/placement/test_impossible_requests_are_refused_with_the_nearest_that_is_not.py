from __future__ import annotations

from typing import Any

import pytest

from lockstep.base import errors
from placement import requests, topology


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (
            {"members": [{"gpus": 4, "count": 19}], "need": "same-domain"},
            "the largest domain holds 18",
            "18 members, or need: same-rack",
        ),
        ({"members": [{"gpus": 4, "count": 99}], "need": "same-domain"}, "the largest domain holds 18", "18 members"),
        ({"members": [{"gpus": 4, "count": 4}], "need": "spread"}, "holds 2", "2 members, or need: any"),
        ({"members": [{"gpus": 8}]}, "no node that may be used has more than 4", "gpus: 4 per member, more members"),
        ({"members": [{"gpus": 4}], "models": ["GB300"]}, "no node has accelerator model GB300", "nearest: GB200"),
        ({"members": [{"gpus": 4}], "regions": ["mars"]}, "no node has region mars", "this fleet has eu"),
        ({"members": [{"gpus": 4, "count": 20}], "segment": 20}, "larger than any domain", "segment: 18"),
        ({"members": [{"gpus": 1, "memory": "2TiB"}]}, "2097152 MiB", "memory: 983040 per member"),
        ({"members": [{"gpus": 4}], "security": "vm"}, "together", "security: container"),
        (
            {"members": [{"gpus": 4, "count": 18}, {"gpus": 1}], "need": "same-domain"},
            "no empty domain holds all kinds",
            "need: same-rack, or members[0]: count: 17 instead of 18",
        ),
        (
            {"members": [{"gpus": 4, "count": 36, "cpu": 50}, {"gpus": 0, "cpu": 90, "count": 36}, {"cpu": 5}]},
            "no empty fleet holds all kinds",
            "members[0]: count: 35 instead of 36, or members[1]: count: 35 instead of 36",
        ),
        ({"members": [{"gpus": 1, "share": 0.5}], "performance": "mps"}, "together", "performance: mig"),
        ({"members": [{"gpus": 1, "count": 10**30}]}, "the largest fleet holds 144", "144 members"),
        ({"members": [{"cpu": 1, "count": 10**30}]}, "the largest fleet holds 5184", "5184 members"),
        ({"members": [{"gpus": 1, "count": 4}], "segment": 10**30}, "larger than any domain", "segment: 72"),
    ],
)
def test_this_fleet_can_never_serve_it(nvl72: Any, data: dict[str, Any], message: str, hint: str) -> None:
    fleet = nvl72(2, per_rack=2, region="eu", modes=frozenset({"mig"}))
    with pytest.raises(errors.RefusedError) as caught:
        fleet.place(**data)
    assert message in caught.value.message
    assert caught.value.hint is not None
    assert hint in caught.value.hint


def test_the_nearest_request_differs_in_one_word_and_is_served(fleet_of: Any) -> None:
    nodes = [
        topology.NodeSpec("a", 8000, 8000, 4, "A", region="eu", security=2, modes=frozenset({"mps"})),
        topology.NodeSpec("b", 8000, 8000, 4, "B", region="us", security=1, modes=frozenset({"mig"})),
    ]
    asked = {"members": [{"gpus": 4}], "models": ["B"], "regions": ["us"], "security": "vm"}
    with pytest.raises(errors.RefusedError) as caught:
        fleet_of(nodes).place(**asked)
    assert caught.value.hint == "security: container"
    assert fleet_of(nodes).place(**{**asked, "security": "container"}).placed
    asked = {"members": [{"gpus": 4}], "models": ["B"], "regions": ["eu"]}
    with pytest.raises(errors.RefusedError) as caught:
        fleet_of(nodes).place(**asked)
    assert caught.value.hint == "models: [A], or regions: [us]"
    assert fleet_of(nodes).place(**{**asked, "models": ["A"]}).placed
    assert fleet_of(nodes).place(**{**asked, "regions": ["us"]}).placed


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"members": [{"gpus": 1, "memory": "64"}]}, "`memory` needs one of the units MiB, GiB, TiB, got '64'"),
        ({"members": [{"gpus": 1, "memory": 64}]}, "`memory` needs one of the units"),
        ({"members": [{"gpus": 1, "cpu": "2 cores"}]}, "`cpu` is cores (1.5) or thousandths of a core (1500m)"),
        ({"members": [{"gpus": 1, "share": 1.5}]}, "`share` is a fraction of a GPU"),
        ({"members": [{"gpus": -1}]}, "`gpus` is a whole number of GPUs"),
        ({"members": [{"gpus": 2, "share": 0.5}]}, "go with exactly one GPU"),
        ({"members": [{"gpus": 1, "profile": "9g"}]}, "unknown MIG profile"),
        ({"members": [{"gpus": 1, "share": 0.5}], "performance": "whole-gpu"}, "excludes a part of a GPU"),
        ({"members": [{"gpus": 1, "share": 0.5}], "security": "vm"}, "as a boundary"),
        ({"members": [{"gpus": 1}], "performance": "mig"}, "a MIG profile goes with performance mig"),
        ({"members": [{"gpus": 1, "count": 4}], "need": "spread", "segment": 2}, "spread"),
        ({"members": [{"gpus": 1}], "exclusive": True}, "exclusive keeps other tenants away, and no tenant is named"),
        ({"members": [{"gpus": 1}], "exclusive": True, "tenant": None}, "no tenant is named"),
        ({"members": [{"gpus": 1}], "tenant": ["a"]}, "`tenant` is a word, got ['a']"),
        (
            {"members": [{"gpus": 1, "profile": "3g"}, {"gpus": 1, "share": 0.5}]},
            "a MIG profile goes with performance mig and nothing else",
        ),
        ({"members": [{"gpus": 1}], "need": "near"}, "`need` is one of any, same-domain"),
        ({"members": [{"gpus": 1}], "colour": "red"}, "unknown field `colour`"),
        ({"members": []}, "`members` must list"),
        ({"members": [{"count": 3}]}, "this one for nothing"),
    ],
)
def test_a_wrong_field_is_named_with_its_unit(data: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InputError) as caught:
        requests.parse({"name": "job", **data})
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("memory", "mib"),
    [("512MiB", 512), ("1.5GiB", 1536), ("0.3 MiB", 1), ("2TiB", 2 * 1024 * 1024), (0, 0)],
)
def test_memory_is_rounded_up_to_whole_mib(memory: object, mib: int) -> None:
    assert requests.parse({"members": [{"gpus": 1, "memory": memory}]}).members[0].memory == mib
