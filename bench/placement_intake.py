"""Telemetry's fast path: samples per CPU-second, rounds of 8 GPUs with 6 signals, 12,500 nodes known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from bench.rows import Row
from placement import headroom, topology
from placement.health.board import Board
from placement.telemetry import server
from placement.telemetry.samples import Batch, Samples
from placement.telemetry.signals import Signal

__all__ = ["rows"]

NODES, GPUS = 12_500, 8
SIGNALS = tuple(Signal)[:6]
ROUNDS = 2000


def rows(quick: bool = False) -> Iterator[Row]:
    """The whole body, as JSON gives it, and the two updates of arrays in it; no peer publishes the like."""
    fleet = topology.build([topology.NodeSpec(f"n{node}", 1, 1, GPUS, "H100") for node in range(NODES)])
    samples, left = Samples(fleet), headroom.Headroom(fleet)
    intake = server.Intake(fleet, samples, left, Board(fleet), clock=lambda: 100.0)
    listed = [[gpu, signal.name.lower().replace("_", "-"), 50.0, 100.0] for gpu in range(GPUS) for signal in SIGNALS]
    batch = Batch(
        np.repeat(np.arange(GPUS), len(SIGNALS)),
        np.tile(np.array(SIGNALS, dtype=np.int64), GPUS),
        np.full(len(listed), 50.0),
        np.full(len(listed), 100.0),
    )
    rounds = ROUNDS // 10 if quick else ROUNDS
    for case, update in (
        ("newest value and time", lambda node: samples.push_round(node, batch, 100.0)),
        ("P95 window", lambda node: left.push_round(node, batch, 100.0)),
        ("whole body", lambda node: intake.take({"node": f"n{node}", "samples": listed})),
    ):
        yield Row(case, "rate", "1/s", rounds * len(listed) / _seconds(update, rounds))


def _seconds(update: Callable[[int], object], rounds: int) -> float:
    begun = time.process_time()
    for number in range(rounds):
        update(number % NODES)
    return time.process_time() - begun
