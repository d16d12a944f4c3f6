from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.base import errors
from placement import topology
from placement.plans import jobs
from placement.policies import base, beside, expecting, fgd, planned
from placement.state import State
from placement.tasks import Task, Workload

HALF, THIRD, WHOLE, CPU = (
    Task(4000, 8000, 1, 500),
    Task(2000, 4000, 1, 330),
    Task(8000, 16000, 1, 1000),
    Task(8000, 4000, 0, 0),
)
MIX = Workload.counted({HALF: 6, THIRD: 9, WHOLE: 4, CPU: 3})


class Later(futures.Executor):
    """Runs what was submitted when told to: the background, held by the hand."""

    def __init__(self) -> None:
        self.waiting: list[tuple[futures.Future[Any], Callable[[], Any]]] = []

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        future: futures.Future[Any] = futures.Future()
        self.waiting.append((future, lambda: work(*args, **kwargs)))
        return future

    def run(self, error: Exception | None = None) -> None:
        for future, work in self.waiting:
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(work())
        self.waiting = []


def _state(nodes: int = 12) -> State:
    return State(topology.build([topology.NodeSpec(f"n{number:02d}", 48000, 96000, 4, "A") for number in range(nodes)]))


def _draw(number: int, seed: int = 0) -> list[Task]:
    kinds = list(MIX.frequencies)
    return [
        kinds[pick] for pick in np.random.default_rng(seed).choice(len(kinds), number, p=list(MIX.frequencies.values()))
    ]


def _play(state: State, policy: base.Policy, tasks: list[Task]) -> list[base.Choice | None]:
    choices = []
    for task in tasks:
        choice = policy.choose(task)
        choices.append(choice)
        if choice is not None:
            state.take(choice.node, choice.gpus, task.share, task.cpu, task.memory)
    return choices


def test_without_a_plan_it_is_fgd() -> None:
    rank, tasks = np.random.default_rng(1).permutation(12), _draw(200)
    ours, theirs = _state(), _state()
    unplanned = planned.Planned(ours, MIX, rank)
    assert _play(ours, unplanned, tasks) == _play(theirs, fgd.Fgd(theirs, MIX, rank), tasks)
    assert unplanned.counts.slot == 0


def test_a_decision_never_waits_for_a_plan_and_is_fgd_until_there_is_one() -> None:
    rank, tasks, later = np.random.default_rng(1).permutation(12), _draw(40), Later()
    ours, theirs = _state(), _state()
    policy = beside.Background(planned.Planned(ours, MIX, rank), later)
    assert _play(ours, policy, tasks[:20]) == _play(theirs, fgd.Fgd(theirs, MIX, rank), tasks[:20])
    assert len(later.waiting) == 1
    later.run()
    _play(ours, policy, tasks[20:])
    assert len(policy.counts.plans) == 1
    assert policy.counts.slot > 5


def test_a_plan_that_cannot_be_made_leaves_the_planner_working() -> None:
    rank, tasks, later = np.arange(12), _draw(40), Later()
    ours, theirs = _state(), _state()
    policy = beside.Background(planned.Planned(ours, MIX, rank), later)
    first = _play(ours, policy, tasks[:1])
    later.run(errors.EngineError("no plan", place="HiGHS"))
    assert first + _play(ours, policy, tasks[1:]) == _play(theirs, fgd.Fgd(theirs, MIX, rank), tasks)
    assert policy.counts.plans == []


def test_a_fault_in_the_making_is_not_swallowed() -> None:
    state, later = _state(), Later()
    policy = beside.Background(planned.Planned(state, MIX, np.arange(12)), later)
    _play(state, policy, _draw(1))
    later.run(TypeError("a defect"))
    with pytest.raises(TypeError):
        policy.choose(HALF)


def test_a_process_pool_makes_the_same_plan() -> None:
    state = _state()
    job = planned.Planned(state, MIX, np.arange(12)).due()
    assert job is not None
    with futures.ProcessPoolExecutor(1) as pool:
        far = pool.submit(job.make).result()
    near = jobs.Cache().get(job)
    assert (far.contents, far.chosen) == (near.contents, near.chosen)


def test_other_frequencies_make_a_plan_due() -> None:
    state = _state()
    policy = beside.Between(planned.Planned(state, MIX, np.arange(12)))
    _play(state, policy, _draw(20))
    assert len(policy.counts.plans) == 1
    policy.policy.inform(Workload.counted({HALF: 1, WHOLE: 1}))
    _play(state, policy, _draw(5))
    assert len(policy.counts.plans) == 2


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), late=st.integers(0, 80))
def test_a_plan_that_comes_late_never_overfills_a_node(seed: int, late: int) -> None:
    state, later = _state(6), Later()
    policy = beside.Background(planned.Planned(state, MIX, np.arange(6)), later)
    everywhere = np.arange(6)
    for number, task in enumerate(_draw(120, seed)):
        if number == late:
            later.run()
        fits = base.batch_fits(state, task, everywhere, task.allowed(state.topology)).any()
        choice = policy.choose(task)
        assert (choice is not None) == fits
        if choice is not None:
            state.take(choice.node, choice.gpus, task.share, task.cpu, task.memory)


def test_a_plan_for_other_work_than_comes_is_dropped_for_fgd() -> None:
    state = _state(60)
    policy = beside.Between(planned.Planned(state, Workload.counted({THIRD: 30, WHOLE: 1}), np.arange(60)))
    _play(state, policy, [HALF, CPU] * 260)
    assert policy.counts.dropped == 1
    slots = policy.counts.slot
    _play(state, policy, [HALF] * 5)
    assert policy.counts.slot == slots


def test_when_work_leaves_plans_are_made_for_what_stays() -> None:
    state = _state()
    policy = beside.Between(planned.Planned(state, MIX, np.arange(12)))
    for task in ([HALF, THIRD, WHOLE] * 10)[:-1]:
        choice = policy.choose(task)
        assert choice is not None
        state.take(choice.node, choice.gpus, task.share, task.cpu, task.memory)
        if task != WHOLE:
            state.give(choice.node, choice.gpus, task.share, task.cpu, task.memory)
            policy.left(task, choice)
    assert len(policy.counts.plans) == 1
    job = policy.policy.due()
    assert job is not None
    assert job.kinds.tasks[0] == WHOLE  # a third of the arrivals, nearly all of what stays
    mix = policy.policy.planned_for()
    assert mix is not None
    assert expecting.distance(Workload.counted({WHOLE: 1}), mix) < 0.2
