from __future__ import annotations

import numpy as np
import pytest

from placement.policies import expecting
from placement.tasks import Task, Workload

SHORT, LONG, RARE = Task(1000, 1000, 1, 500), Task(2000, 1000, 1, 1000), Task(3000, 1000, 0, 0)
EQUAL = Workload.counted({SHORT: 1, LONG: 1})


def _arrive(expected: expecting.Expectation, weights: dict[Task, float], number: int, seed: int = 0) -> int | None:
    """Arrivals by ``weights``; at which of them the frequencies given were doubted."""
    kinds, total = list(weights), sum(weights.values())
    picks = np.random.default_rng(seed).choice(len(kinds), number, p=[weights[kind] / total for kind in kinds])
    for count, pick in enumerate(picks, start=1):
        if expected.arrive(kinds[pick]):
            return count
    return None


def test_with_frequencies_and_lifetimes_given_the_mix_is_their_product() -> None:
    expected = expecting.Expectation(EQUAL, {SHORT: 10.0, LONG: 90.0})
    mix = expected.mix()
    assert mix is not None
    assert mix.frequencies[LONG] == pytest.approx(0.9)


def test_a_kind_of_unknown_lifetime_lives_as_long_as_the_others_do() -> None:
    mix = expecting.Expectation(EQUAL, {SHORT: 10.0}).mix()
    assert mix is not None
    assert mix.frequencies[LONG] == pytest.approx(0.5)


def test_before_anything_has_ended_the_mix_is_that_of_arrivals() -> None:
    expected = expecting.Expectation(EQUAL)
    for task in (SHORT, LONG) * 5:
        expected.arrive(task)
        expected.place(task)
    assert expected.mix() == EQUAL


def test_work_that_still_runs_counts_for_its_lifetime() -> None:
    expected = expecting.Expectation(EQUAL)
    running: list[tuple[int, Task]] = []
    for step in range(3000):
        task = (SHORT, LONG)[step % 2]
        expected.arrive(task)
        expected.place(task)
        running.append((step + (20 if task == SHORT else 2000), task))
        for item in [item for item in running if item[0] <= step]:
            running.remove(item)
            expected.leave(item[1])
    mix = expected.mix()
    assert mix is not None
    # Of LONG only 500 of 1,500 have ended; the mean of these alone would be right here, a count of ends would not.
    assert mix.frequencies[LONG] > 0.97
    assert expected.drifted(EQUAL)


def test_frequencies_that_hold_are_not_doubted() -> None:
    truth = {SHORT: 0.6, LONG: 0.35, RARE: 0.05}
    for seed in range(20):
        expected = expecting.Expectation(Workload.counted(truth))
        assert _arrive(expected, truth, 5000, seed) is None
        assert not expected.learning
        assert expected.frequencies() == Workload.counted(truth)


def test_wrong_frequencies_are_found_and_what_was_seen_counts_by_how_wrong_they_are() -> None:
    truth = {SHORT: 0.45, LONG: 0.5, RARE: 0.05}
    expected = expecting.Expectation(Workload.counted({SHORT: 0.6, LONG: 0.35, RARE: 0.05}))
    assert _arrive(expected, truth, 5000) is not None
    found = expected.frequencies()
    assert found is not None
    assert found.frequencies[LONG] == pytest.approx(0.5, abs=0.06)
    assert found.frequencies[RARE] == pytest.approx(0.05, abs=0.02)


def test_a_kind_that_nobody_expected_is_found() -> None:
    expected = expecting.Expectation(EQUAL)
    assert _arrive(expected, {SHORT: 0.4, LONG: 0.4, RARE: 0.2}, 1000) is not None
    found = expected.frequencies()
    assert found is not None
    assert found.frequencies[RARE] == pytest.approx(0.2, abs=0.1)


def test_frequencies_given_together_with_lifetimes_are_taken_at_their_word() -> None:
    expected = expecting.Expectation(EQUAL, {SHORT: 1.0, LONG: 9.0})
    assert _arrive(expected, {SHORT: 0.1, LONG: 0.9}, 2000) is None


def test_old_arrivals_are_forgotten_by_halves() -> None:
    expected = expecting.Expectation(None)
    _arrive(expected, {SHORT: 1.0}, 100)
    expected.forget(200)
    assert expected.seen == {SHORT: 100.0}
    expected.forget(99)
    assert expected.seen == {SHORT: 50.0}
    assert expected.arrived == 100


def test_distance_is_the_part_of_other_kinds() -> None:
    assert expecting.distance(EQUAL, EQUAL) == 0
    assert expecting.distance(EQUAL, Workload.counted({RARE: 1})) == 1
    assert expecting.distance(EQUAL, Workload.counted({SHORT: 3, LONG: 1})) == pytest.approx(0.25)
