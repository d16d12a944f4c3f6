"""Waves: canary first, whole domains, never more out of service than the budget, everybody exactly once."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup import waves
from bringup.waves import Candidate, State
from lockstep.base import limits
from lockstep.base.names import DomainName, NodeName


def rack(domain: str, count: int, *, in_service: bool = True) -> list[Candidate]:
    return [Candidate(NodeName(f"{domain}-{number}"), DomainName(domain), in_service) for number in range(1, count + 1)]


def shown(found: tuple[tuple[NodeName, ...], ...]) -> list[str]:
    return [" ".join(wave) for wave in found]


def test_one_canary_then_whole_domains() -> None:
    waiting = rack("r1", 3, in_service=False) + rack("r2", 2, in_service=False)
    assert shown(waves.preview(waiting, State(budget=1))) == ["r1-1", "r1-2 r1-3 r2-1 r2-2"]


def test_no_canary_where_the_lock_is_proven() -> None:
    assert shown(waves.preview(rack("r1", 2), State(budget=2, proven=True))) == ["r1-1 r1-2"]


def test_a_new_node_is_the_canary_before_one_that_takes_jobs() -> None:
    waiting = rack("r1", 2) + rack("r2", 1, in_service=False)
    assert shown(waves.preview(waiting, State(budget=2)))[0] == "r2-1"


def test_admitted_domains_go_one_after_the_other_within_the_budget() -> None:
    waiting = rack("r1", 3) + rack("r2", 3)
    assert shown(waves.preview(waiting, State(budget=4, proven=True))) == ["r1-1 r1-2 r1-3", "r2-1 r2-2 r2-3"]


def test_a_domain_larger_than_the_budget_is_taken_in_parts_before_the_next_begins() -> None:
    waiting = rack("r1", 3) + rack("r2", 1)
    assert shown(waves.preview(waiting, State(budget=2, proven=True))) == ["r1-1 r1-2", "r1-3 r2-1"]


def test_what_is_out_of_service_already_counts_against_the_budget() -> None:
    assert [one.name for one in waves.next_wave(rack("r1", 3), State(budget=2, out=1, proven=True))] == ["r1-1"]
    assert waves.next_wave(rack("r1", 3), State(budget=2, out=2, proven=True)) == ()


def test_new_nodes_go_on_where_the_budget_is_used_up() -> None:
    waiting = rack("r1", 2) + rack("r2", 2, in_service=False)
    assert [one.name for one in waves.next_wave(waiting, State(budget=1, out=1, proven=True))] == ["r2-1", "r2-2"]


def test_fenced_nodes_are_mended_although_the_budget_is_used_up_by_others() -> None:
    """Two fenced as unmendable (out), two drifted and fenced (out of service already), one in service and drifted."""
    waiting = rack("fenced", 2, in_service=False) + rack("serving", 1)
    state = State(budget=1, out=2, proven=True)
    assert [one.name for one in waves.next_wave(waiting, state)] == ["fenced-1", "fenced-2"]
    assert waves.next_wave(rack("serving", 1), state) == ()


def test_a_wave_of_new_nodes_is_bounded() -> None:
    wave = waves.next_wave(rack("r1", limits.WAVE_NODES + 50, in_service=False), State(budget=1, proven=True))
    assert len(wave) == limits.WAVE_NODES


def test_a_failed_canary_stops_the_run() -> None:
    assert waves.stop_reason(State(budget=3, failed=1, canary_failed=True), 5)
    assert waves.stop_reason(State(budget=3, failed=1, canary_failed=True), 0) is None


def test_failures_beyond_the_budget_stop_the_run_and_fewer_do_not() -> None:
    assert waves.stop_reason(State(budget=2, failed=2, proven=True), 5) is None
    assert "more than the budget of 2" in (waves.stop_reason(State(budget=2, failed=3, proven=True), 5) or "")


@st.composite
def pools(draw: st.DrawFn) -> tuple[list[Candidate], State]:
    waiting: list[Candidate] = []
    for domain in range(draw(st.integers(1, 4))):
        kinds = draw(st.lists(st.booleans(), min_size=1, max_size=5))
        waiting += [
            Candidate(NodeName(f"n{domain}-{number}"), DomainName(f"r{domain}"), admitted)
            for number, admitted in enumerate(kinds)
        ]
    return waiting, State(draw(st.integers(1, 6)), proven=draw(st.booleans()))


@settings(deadline=None)
@given(pools())
def test_everybody_goes_exactly_once_and_never_too_many_at_once(given_: tuple[list[Candidate], State]) -> None:
    waiting, state = given_
    admitted = {one.name for one in waiting if one.in_service}
    found = waves.preview(waiting, state)
    names = [name for wave in found for name in wave]
    assert sorted(names) == sorted(one.name for one in waiting)
    assert all(len(admitted & set(wave)) <= state.budget for wave in found)
    if not state.proven:
        assert len(found[0]) == 1


@settings(deadline=None)
@given(pools())
def test_no_wave_starts_when_all_that_wait_are_in_service_and_the_budget_is_used_up(
    given_: tuple[list[Candidate], State],
) -> None:
    waiting, state = given_
    spent = dataclasses.replace(state, out=state.budget)
    assert all(not one.in_service for one in waves.next_wave(waiting, spent))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_domain_of_any_size_that_fits_is_never_split(size: int) -> None:
    found = waves.preview(rack("r1", size) + rack("r2", size), State(budget=size, proven=True))
    assert [len({name.split("-")[0] for name in wave}) for wave in found] == [1, 1]
