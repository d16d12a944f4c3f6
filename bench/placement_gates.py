"""Gates and the minimum against a tuned weighted sum and against gates and a mean, under faults (B7).

Twenty NVL72 domains, an hour of gangs of one to four nodes, injected Xids, collectors that stop for 15 s to
the end, clocks off by up to 4.5 s, nodes that warm up. The weighted sum is tuned on other draws than it is
measured on: fewest placements on fatal or stale nodes first, then allocation.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from bench.rows import Row
from placement.simulate import faults
from placement.simulate.faults import Arm, Outcome, Weights

__all__ = ["rows", "tuned"]

SEEDS = range(1, 11)
TUNING = (901, 902)
GRID = tuple(
    Weights(health, fresh, 1.0, packing)
    for health, fresh, packing in itertools.product((1.0, 10.0, 100.0), (1.0, 10.0, 100.0), (0.1, 1.0))
)
TIGHT = 0.1
"""Headroom under which the next window is likely to hit a limit."""


def rows(quick: bool) -> Iterator[Row]:
    """Per arm: unsafe placements, wrong exclusions, allocation, headroom of what was chosen."""
    setting = faults.Setting(domains=8, steps=120) if quick else faults.Setting()
    seeds = SEEDS[:2] if quick else SEEDS
    weights = tuned(setting, GRID[:4] if quick else GRID)
    for arm in Arm:
        played = [faults.play(setting, arm, seed, weights if arm is Arm.WEIGHTED else None) for seed in seeds]
        placed = sum(outcome.placed for outcome in played)
        yield Row(f"{arm}: members placed, {len(seeds)} seeds", "count", "1", placed)
        yield Row(f"{arm}: on fatal devices", "count", "1", sum(outcome.fatal for outcome in played))
        yield Row(f"{arm}: on stale nodes", "count", "1", sum(outcome.stale for outcome in played))
        yield Row(f"{arm}: on faults not reported yet", "count", "1", sum(outcome.unreported for outcome in played))
        if arm is not Arm.WEIGHTED:
            asked = sum(outcome.asked for outcome in played)
            wrong = 100 * sum(outcome.wrongly_out for outcome in played) / asked
            yield Row(f"{arm}: wrong exclusions of {asked} fit and fresh", "alloc", "%", wrong)
        yield Row(f"{arm}: allocated", "alloc", "%", float(np.mean([np.mean(outcome.used) for outcome in played])))
        least = np.concatenate([outcome.least for outcome in played])
        yield Row(f"{arm}: least headroom, P5 over placements", "alloc", "%", 100 * float(np.percentile(least, 5)))
        yield Row(f"{arm}: placements under {TIGHT:.0%} headroom", "alloc", "%", 100 * float((least < TIGHT).mean()))


def tuned(setting: faults.Setting, grid: Sequence[Weights]) -> Weights:
    """The best weights on the tuning draws."""

    def worth(weights: Weights) -> tuple[int, float]:
        played: list[Outcome] = [faults.play(setting, Arm.WEIGHTED, seed, weights) for seed in TUNING]
        unsafe = sum(outcome.fatal + outcome.stale for outcome in played)
        return unsafe, -float(np.mean([np.mean(outcome.used) for outcome in played]))

    return min(grid, key=worth)
