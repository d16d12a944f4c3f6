"""Injected Xids, dead collectors and drift: nothing lands where it must not, nothing fit is shut out."""

from __future__ import annotations

from placement.simulate import faults
from placement.simulate.faults import Arm, Weights

SETTING = faults.Setting(domains=4, steps=120, load=1.3, xids=0.15, silent=0.1)


def test_gates_place_nothing_on_fatal_or_stale_nodes_and_exclude_nobody_wrongly() -> None:
    for arm in (Arm.MINIMUM, Arm.MEAN):
        played = [faults.play(SETTING, arm, seed) for seed in range(3)]
        assert sum(outcome.placed for outcome in played) > 300
        assert sum(outcome.fatal + outcome.stale for outcome in played) == 0
        assert sum(outcome.wrongly_out for outcome in played) <= 0.001 * sum(outcome.asked for outcome in played)


def test_a_sum_with_finite_weights_does() -> None:
    weights = Weights(health=100.0, fresh=100.0, headroom=1.0, packing=1.0)
    played = [faults.play(SETTING, Arm.WEIGHTED, seed, weights) for seed in range(3)]
    assert sum(outcome.fatal + outcome.stale for outcome in played) > 0
