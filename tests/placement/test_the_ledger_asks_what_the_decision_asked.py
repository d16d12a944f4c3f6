"""A planner with an old view: the ledger refuses exactly what the planner would with the newest one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.base import errors
from pinsets.findings import Verdict
from placement import occupancy, requests
from placement.health.board import Event
from placement.ledger import decisions, reservations, stores

ASKS = st.fixed_dictionaries(
    {
        "members": st.lists(
            st.one_of(
                st.fixed_dictionaries({"gpus": st.integers(0, 4), "count": st.integers(1, 2)}),
                st.fixed_dictionaries({"gpus": st.just(1), "share": st.sampled_from([0.25, 0.5])}),
                st.fixed_dictionaries({"gpus": st.just(1), "profile": st.sampled_from(["1g", "3g"])}),
                st.fixed_dictionaries({"gpus": st.just(0), "cpu": st.just(60)}),
                st.fixed_dictionaries({"gpus": st.just(1), "nics": st.just(3)}),
            ),
            min_size=1,
            max_size=2,
        ),
        "tenant": st.sampled_from(["a", "b"]),
        "exclusive": st.booleans(),
        "compute_domain": st.booleans(),
        "way": st.sampled_from(["mps", "time-slicing", "whole-node", ""]),
        "need": st.sampled_from(["any", "same-domain"]),
    }
)


def _request(name: str, asked: dict[str, Any]) -> requests.Request | None:
    part = any(member.get("share") for member in asked["members"])
    more = {"performance": asked["way"]} if asked["way"] and (part or asked["way"] == "whole-node") else {}
    try:
        return requests.parse({**{key: asked[key] for key in asked if key != "way"}, "name": name, **more})
    except errors.InputError:
        return None


@settings(max_examples=60, deadline=None)
@given(work=st.lists(st.tuples(ASKS, st.booleans()), min_size=2, max_size=10))
def test_what_an_old_view_decides_is_held_only_if_the_new_one_allows_it(nvl72: Any, work: list[Any]) -> None:
    new = nvl72(2, 2)
    ledger = reservations.Ledger(stores.Memory(), lambda: 0.0, decisions.capacities(new.topology))
    for number, (asked, stale) in enumerate(work):
        request = _request(f"j{number}", asked)
        if request is None:
            continue
        planner = nvl72(2, 2).planner if stale else new.planner
        try:
            decision = planner.plan(request, 0.0)
        except errors.RefusedError:
            continue
        if not decision.placed:
            continue
        allowed = _allowed(new, request, decision.members)
        parts = decisions.parts(new.topology, decision.members)
        if not allowed:
            with pytest.raises(reservations.NotFreeError):
                asyncio.run(ledger.reserve(request.name, parts, "p"))
            continue
        asyncio.run(ledger.reserve(request.name, parts, "p"))
        new.planner.commit(decision)


def _allowed(fleet: Any, request: requests.Request, members: tuple[occupancy.Placed, ...]) -> bool:
    """Whether gates and room of the true view take these very devices."""
    opened = fleet.planner.passes(request)
    if not all(opened[item.node].any() for item in members):
        return False
    if opened.shape[1] > 1 and not all(opened[item.node, list(item.gpus)].all() for item in members):
        return False
    taken = []
    try:
        for item in members:
            for gpu in item.gpus:
                slices = fleet.view.occupancy.slices[item.node, gpu]
                if bool(slices) != bool(item.slices) and fleet.view.occupancy.state.gpu[item.node, gpu] < 1000:
                    return False
            fleet.view.occupancy.take(item)
            taken.append(item)
    except ValueError:
        return False
    finally:
        for item in reversed(taken):
            fleet.view.occupancy.give(item)
    return True


def _reserve(fleet: Any, ledger: reservations.Ledger, decision: Any, clock: float = 0.0) -> None:
    also = decisions.conditions(fleet.planner, decision, lambda: clock)
    asyncio.run(
        ledger.reserve(decision.request.name, decisions.parts(fleet.topology, decision.members), "p", also=also)
    )


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (lambda fleet: fleet.board.report(Event(0, 2, "xid 79", 0.0)), "health.device: gpu2 xid 79"),
        (lambda fleet: fleet.board.report(Event(0, 2, "xid 74", 0.0)), "health.link: gpu2 xid 74"),
        (lambda fleet: fleet.board.report(Event(0, -1, "xid 54", 0.0)), "health.node"),
        (lambda fleet: fleet.audit(d0_n0=(Verdict.DRIFTED, "lock-a")), "audit.verdict: verdict drifted"),
        (lambda fleet: fleet.audit(d0_n0=(Verdict.ADMIT, "lock-b")), "its job digest is another one"),
        (lambda fleet: fleet.view.keep({"elder": fleet.topology.domain_nodes[0]}), "kept: kept free for elder"),
    ],
)
def test_a_gate_that_shut_since_the_decision_refuses_the_commit(nvl72: Any, happens: Any, reason: str) -> None:
    fleet, other = nvl72(1, 1), nvl72(1, 1)
    for each in (fleet, other):
        each.audit()
    ledger = reservations.Ledger(stores.Memory(), lambda: 0.0)
    request = requests.parse({"name": "job", "members": [{"gpus": 4}]})
    decision = fleet.planner.plan(request, 0.0)
    happens(fleet)
    with pytest.raises(reservations.NotFreeError) as caught:
        _reserve(fleet, ledger, decision, clock=10.0)
    assert reason in caught.value.message
    _reserve(other, ledger, other.planner.plan(request, 0.0))


def test_a_planner_that_starts_again_sees_what_the_ledger_holds(nvl72: Any) -> None:
    fleet, store = nvl72(2, 2), stores.Memory()
    ledger = reservations.Ledger(store, lambda: 0.0, decisions.capacities(fleet.topology))
    for number, asked in enumerate(
        [
            {"members": [{"gpus": 4, "count": 2, "cpu": 8}], "need": "same-domain", "compute_domain": True},
            {"members": [{"gpus": 1, "share": 0.5}, {"gpus": 1, "share": 0.25}], "performance": "mps"},
            {"members": [{"gpus": 1, "profile": "3g", "nics": 1}], "tenant": "t", "exclusive": True},
            {"members": [{"gpus": 0, "cpu": 4, "memory": "4GiB"}], "tenant": "t"},
        ]
    ):
        decision = fleet.planner.plan(requests.parse({"name": f"j{number}", **asked}), 0.0)
        _reserve(fleet, ledger, decision)
        fleet.planner.commit(decision)

    async def records() -> list[Any]:
        return [(await store.read(domain))[0] for domain in await store.domains()]

    again = occupancy.Occupancy(fleet.topology)
    for item in decisions.occupied(fleet.topology, asyncio.run(records())):
        again.take(item)
    before = fleet.view.occupancy
    for name in ("cpu", "memory", "nics", "gpu"):
        assert (getattr(again.state, name) == getattr(before.state, name)).all(), name
    for name in ("channel", "slices", "exclusive", "sole", "sharing"):
        assert (getattr(again, name) == getattr(before, name)).all(), name
    assert {way for way, count in again.ways.items() if count} == {"mps"}


def test_one_gpu_is_not_shared_in_two_ways(nvl72: Any) -> None:
    fleet = nvl72(1, 1)
    first = fleet.place(name="a", members=[{"gpus": 1, "share": 0.5}], performance="mps")
    second = fleet.place(name="b", members=[{"gpus": 1, "share": 0.5}], performance="time-slicing")
    third = fleet.place(name="c", members=[{"gpus": 1, "share": 0.5}], performance="mps")
    assert first.members[0].gpus == third.members[0].gpus != second.members[0].gpus
    for name in ("a", "c"):
        fleet.planner.release(name)
    for number in range(6):
        assert fleet.place(name=f"t{number}", members=[{"gpus": 1, "share": 0.5}], performance="time-slicing").placed
    assert fleet.place(name="last", members=[{"gpus": 1, "share": 0.5}], performance="time-slicing").placed
    assert not fleet.place(name="over", members=[{"gpus": 1, "share": 0.5}], performance="time-slicing").placed
