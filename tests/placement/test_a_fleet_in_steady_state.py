from __future__ import annotations

import numpy as np
import pytest

from lockstep.base import errors
from placement import topology
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
        work, workload = departures.prepare(TRACE, fleet.capacity, 0.6, 600, np.random.default_rng(3))
        state = State(fleet)
        rank = np.arange(6)
        policy = beside.Between(planned.Planned(state, workload, rank)) if ours else fgd.Fgd(state, workload, rank)
        found = departures.run(state, policy, work)
        assert 50 < found.allocated < 70  # asked for 60 %, and nearly all of it fits
        assert found.refused < 3


def test_overload_fills_the_fleet_and_refuses_the_rest() -> None:
    fleet = _fleet()
    work, workload = departures.prepare(TRACE, fleet.capacity, 2.0, 600, np.random.default_rng(3))
    state = State(fleet)
    found = departures.run(state, fgd.Fgd(state, workload, np.arange(6)), work)
    assert found.allocated > 90
    assert 35 < found.refused < 65


def test_a_trace_without_times_is_bad_input() -> None:
    bare = openb.Trace("bare", (HALF,), (), ())
    with pytest.raises(errors.InputError):
        departures.prepare(bare, 1000, 1.0, 10, np.random.default_rng(0))


def test_frequencies_are_those_of_arrivals() -> None:
    _, workload = departures.prepare(TRACE, 24_000, 1.0, 10, np.random.default_rng(0))
    assert workload == Workload.counted({HALF: 50, WHOLE: 50})
