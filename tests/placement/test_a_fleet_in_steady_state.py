from __future__ import annotations

import numpy as np
import pytest

from lockstep.base import errors
from placement import topology
from placement.fragmentation import Fragmentation
from placement.policies import beside, fgd, planned
from placement.simulate import departures, openb
from placement.state import State
from placement.tasks import Task, Workload

HALF, WHOLE = Task(4000, 8000, 1, 500), Task(8000, 16000, 1, 1000)
TRACE = openb.Trace("made-up", (HALF, WHOLE) * 50, (0.0,) * 100, tuple(float(life) for life in range(1, 101)))


def _fleet() -> topology.Topology:
    return topology.build(
        [topology.NodeSpec(f"n{number}", 48000, 96000, 4, "A") for number in range(6)],
    )


def test_what_has_left_gives_its_room_back_and_load_is_reached() -> None:
    fleet = _fleet()
    for ours in (True, False):
        scenario = departures.prepare(TRACE, fleet.capacity, 0.6, 600, np.random.default_rng(3))
        state = State(fleet)
        rank = np.arange(6)
        policy = (
            beside.Between(planned.Planned(state, scenario.workload, rank))
            if ours
            else fgd.Fgd(state, scenario.workload, rank)
        )
        found = departures.run(state, policy, scenario.work)
        assert 50 < found.allocated < 70  # asked for 60 %, and nearly all of it fits
        assert found.refused < 3


def test_overload_fills_the_fleet_and_refuses_the_rest() -> None:
    fleet = _fleet()
    scenario = departures.prepare(TRACE, fleet.capacity, 2.0, 600, np.random.default_rng(3))
    state = State(fleet)
    found = departures.run(state, fgd.Fgd(state, scenario.workload, np.arange(6)), scenario.work)
    assert found.allocated > 90
    assert 35 < found.refused < 65


def test_a_trace_without_times_is_bad_input() -> None:
    bare = openb.Trace("bare", (HALF,), (), ())
    with pytest.raises(errors.InputError):
        departures.prepare(bare, 1000, 1.0, 10, np.random.default_rng(0))


def test_frequencies_are_those_of_arrivals() -> None:
    scenario = departures.prepare(TRACE, 24_000, 1.0, 10, np.random.default_rng(0))
    assert scenario.workload == Workload.counted({HALF: 50, WHOLE: 50})
    assert scenario.lives[HALF] < scenario.lives[WHOLE]  # the made-up trace gives HALF the odd seconds


def test_work_that_waits_is_delayed_and_not_refused_and_oldest_goes_first() -> None:
    fleet = topology.build([topology.NodeSpec("n", 48000, 96000, 1, "A")])
    work = [departures.Arrival(at, WHOLE, 10.0) for at in (0.0, 11.0, 12.0, 14.0)]
    work += [departures.Arrival(at, HALF, 1.0) for at in (30.0, 50.0)]
    halves = Workload.counted({HALF: 1})

    def run(*, waits: bool) -> departures.Steady:
        state = State(fleet)
        policy = fgd.Fgd(state, halves, np.arange(1))
        return departures.run(state, policy, work, waits=waits, fragmentation=Fragmentation(fleet, halves))

    # WHOLE until 10, 21, 31 and 41; the first HALF waits from 30 to 41; measured from 25 to 50.
    found = run(waits=True)
    assert found.refused == 0
    assert found.allocated == pytest.approx(100 * (16 + 0.5) / 25)
    assert found.waiting == pytest.approx(100 * (6 + 0.5 * 11) / 25)
    assert found.delay == pytest.approx((11 + 0) / 2)
    assert found.fragment == pytest.approx(0)
    dropped = run(waits=False)
    assert (dropped.delay, dropped.waiting) == (0, 0)
    assert dropped.allocated == pytest.approx(100 * 0.5 / 25)


def test_fragment_amount_over_time_is_that_of_the_states_passed() -> None:
    fleet = topology.build([topology.NodeSpec("n", 48000, 96000, 1, "A")])
    whole = Workload.counted({WHOLE: 1})
    work = [departures.Arrival(0.0, HALF, 15.0), departures.Arrival(20.0, WHOLE, 1.0)]
    state = State(fleet)
    found = departures.run(state, fgd.Fgd(state, whole, np.arange(1)), work, fragmentation=Fragmentation(fleet, whole))
    assert found.fragment == pytest.approx(50 * 5 / 10)  # half a GPU is no use until 15, then all is free
