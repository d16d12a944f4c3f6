from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement import topology
from placement.plans import bound, making, master, pricing
from placement.plans.kinds import Content, Kinds, Room
from placement.policies import base, beside, fgd, planned
from placement.state import State
from placement.tasks import Task, Workload

HALF, THIRD, WHOLE, PAIR = (
    Task(4000, 8000, 1, 500),
    Task(2000, 4000, 1, 330),
    Task(8000, 16000, 1, 1000),
    Task(16000, 32000, 2, 1000),
)
CPU = Task(8000, 4000, 0, 0)
MIX = Workload.counted({HALF: 6, THIRD: 9, WHOLE: 4, PAIR: 1, CPU: 3})


def _fleet(nodes: int = 20) -> topology.Topology:
    return topology.build(
        [topology.NodeSpec(f"n{number:02d}", 48000, 96000, 4, "A" if number % 2 else "B") for number in range(nodes)]
    )


def _draw(workload: Workload, number: int, seed: int) -> list[Task]:
    kinds = list(workload.frequencies)
    picks = np.random.default_rng(seed).choice(len(kinds), number, p=list(workload.frequencies.values()))
    return [kinds[pick] for pick in picks]


def test_every_priced_content_fits_its_node() -> None:
    kinds = Kinds(tuple(MIX.frequencies), ("A",))
    pricer = pricing.Pricer(kinds, 1, 48000, 96000, np.random.default_rng(0))
    rooms = [Room(0, 48000, 96000, (1000,) * 4), Room(0, 9000, 20000, (1000, 670, 340))]
    found = 0
    for seed in range(20):
        prices = np.random.default_rng(seed).uniform(0, 1000, len(kinds))
        for content, value in pricer.price(prices, rooms, np.zeros(2)):
            found += 1
            room, counts = rooms[content.group], content.counts()
            assert sum(kinds.cpu[kind] * number for kind, number in counts.items()) <= room.cpu
            assert sum(kinds.memory[kind] * number for kind, number in counts.items()) <= room.memory
            assert abs(sum(prices[kind] * number for kind, number in counts.items()) - value) < 1e-6
            left = list(room.gpu)
            for item in content.bins:
                if item.gpus > 1:
                    for _ in range(item.gpus):
                        left.remove(1000)
                else:
                    left.remove(item.free)
                    assert sum(kinds.share[kind] for kind in item.kinds) <= item.free
    assert found > 30


def test_a_plan_reaches_the_bound_on_a_mix_that_packs_well() -> None:
    fleet = _fleet()
    kinds = Kinds(tuple(MIX.frequencies), fleet.models)
    need = np.array(list(MIX.frequencies.values())) * fleet.capacity / MIX.mean_demand()
    rooms = [Room(model, 48000, 96000, (1000,) * 4) for model in (0, 1)]
    pricer = pricing.Pricer(kinds, 2, 48000, 96000, np.random.default_rng(0))
    plan = making.make(kinds, rooms, [10, 10], need, pricer, rounds=60)
    limit = bound.allocation(fleet, MIX) / 100 * fleet.capacity
    assert plan.value <= limit + 1
    assert plan.value >= 0.99 * limit
    assert all(len(chosen) <= 10 for chosen in plan.chosen)


def test_a_floor_that_cannot_be_met_is_an_error_and_not_a_plan() -> None:
    from lockstep.base import errors

    problem = master.Problem(np.array([1.0]), np.array([10.0]), np.array([1000.0]), floor=0.9)
    with pytest.raises(errors.EngineError):
        master.solve(problem, [0], [{0: 1}])


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_it_never_refuses_what_fits_and_never_overfills(seed: int) -> None:
    fleet = _fleet(8)
    state = State(fleet)
    policy = beside.Between(planned.Planned(state, MIX, np.random.default_rng(seed).permutation(8)))
    everywhere = np.arange(8)
    for task in _draw(MIX, 160, seed):
        fits = base.batch_fits(state, task, everywhere, task.allowed(fleet)).any()
        choice = policy.choose(task)
        assert (choice is not None) == fits
        if choice is not None:
            state.take(choice.node, choice.gpus, task.share, task.cpu, task.memory)


def test_it_packs_better_than_fgd_on_average() -> None:
    def allocated(ours: bool, seed: int) -> int:
        fleet = _fleet(30)
        state = State(fleet)
        rank = np.random.default_rng(seed).permutation(30)
        policy: base.Policy = beside.Between(planned.Planned(state, MIX, rank)) if ours else fgd.Fgd(state, MIX, rank)
        for task in _draw(MIX, 600, seed):
            choice = policy.choose(task)
            if choice is not None:
                state.take(choice.node, choice.gpus, task.share, task.cpu, task.memory)
        return fleet.capacity - int(state.free.sum())

    ours, theirs = ([allocated(side, seed) for seed in range(3)] for side in (True, False))
    assert sum(ours) >= sum(theirs)


def test_closed_gpus_are_not_used_although_they_have_slots() -> None:
    fleet = _fleet(4)
    state = State(fleet)
    policy = beside.Between(planned.Planned(state, MIX, np.arange(4)))
    assert policy.choose(THIRD) is not None
    closed = np.zeros(fleet.numa.shape, dtype=bool)
    closed[:3] = True
    state.close(closed)
    for task in _draw(MIX, 60, 1):
        choice = policy.choose(task)
        if choice is not None:
            assert choice.node == 3 or not task.gpus
            state.take(choice.node, choice.gpus, task.share, task.cpu, task.memory)
    state.close(np.zeros_like(closed))
    assert (state.gpu[:3] == 1000).all()


def test_frequencies_are_learned_when_none_are_given() -> None:
    fleet = _fleet(20)
    state = State(fleet)
    policy = beside.Between(planned.Planned(state, None, np.arange(20)))
    for task in _draw(MIX, 300, 3):
        choice = policy.choose(task)
        if choice is not None:
            state.take(choice.node, choice.gpus, task.share, task.cpu, task.memory)
    assert len(policy.counts.plans) >= 4
    assert policy.counts.slot > 50


def test_a_slot_opens_again_when_its_work_ends() -> None:
    fleet = _fleet(2)
    state = State(fleet)
    policy = beside.Between(planned.Planned(state, MIX, np.arange(2)))
    choice = policy.choose(HALF)
    assert choice is not None
    state.take(choice.node, choice.gpus, HALF.share, HALF.cpu, HALF.memory)
    state.give(choice.node, choice.gpus, HALF.share, HALF.cpu, HALF.memory)
    before = policy.counts.slot
    policy.left(HALF, choice)
    assert policy.choose(HALF) == choice
    assert policy.counts.slot == before + 1


def test_contents_survive_being_installed_and_read_back() -> None:
    from placement.policies.slots import Slots

    fleet = _fleet(1)
    state = State(fleet)
    kinds = Kinds(tuple(MIX.frequencies), fleet.models)
    slots = Slots(state, kinds)
    index = kinds.index
    from placement.plans.kinds import Bin

    content = Content(
        0,
        (Bin(1000, 2, (index[PAIR],)), Bin(1000, 1, (index[HALF], index[HALF])), Bin(1000, 1, (index[WHOLE],))),
        (index[CPU],),
    )
    slots.install(0, content, [9.0] * len(kinds))
    assert slots.content(0, 0).counts() == content.counts()
    assert int(slots.gpu.sum()) == 4000
