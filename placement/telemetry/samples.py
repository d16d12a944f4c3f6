"""The newest sample of every signal of every GPU: arrays that one assignment updates."""

from __future__ import annotations

import enum
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.telemetry.signals import FRESHNESS, Freshness, Signal
from placement.topology import Topology

__all__ = ["Batch", "Dropped", "Fresh", "Samples"]

SENSORS = (Signal.CORE_TEMPERATURE, Signal.POWER)
"""What the sensor age is taken from: every agent has these two."""


class Dropped(enum.StrEnum):
    """Why a sample was not taken in; counted per reason."""

    NOT_A_NUMBER = "not-a-number"
    FUTURE = "future"
    OLDER = "older"
    UNKNOWN_DEVICE = "unknown-device"
    UNKNOWN_SIGNAL = "unknown-signal"


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples of one node, (k,) each; no GPU and signal twice."""

    gpu: NDArray[np.int64]
    signal: NDArray[np.int64]
    value: NDArray[np.float64]
    at: NDArray[np.float64]
    """Unix seconds on the node's clock."""

    def only(self, kept: NDArray[np.bool_]) -> Batch:
        """Those of ``kept`` (k,)."""
        return self if kept.all() else Batch(self.gpu[kept], self.signal[kept], self.value[kept], self.at[kept])


@dataclass(frozen=True, slots=True)
class Fresh:
    """Which nodes are known well enough, and whether the fleet's breaker is open."""

    nodes: NDArray[np.bool_]
    """(n,)"""
    sensors: NDArray[np.float64]
    """(n,) age of the oldest GPU's newest temperature and power sample, in seconds."""
    health: NDArray[np.float64]
    """(n,) age of the oldest GPU's newest health report, in seconds."""
    breaker: str | None
    """The alarm while so many nodes are stale at once that the collector is suspected; None otherwise."""


class Samples:
    """Values and time stamps per (node, GPU, signal), skew-safe.

    A node's clock is never trusted alone: the smallest difference between arrival and time
    stamp ever seen from a node is its clock's offset plus the shortest way, and is
    subtracted within ±`Freshness.skew`. Replayed old samples do not look fresh by it.
    """

    def __init__(self, topology: Topology, policy: Freshness = FRESHNESS) -> None:
        shape = (*topology.numa.shape, len(Signal))
        self._topology = topology
        self.policy = policy
        self.value: NDArray[np.float64] = np.full(shape, np.nan)
        """(n, g, s) newest value; NaN: never."""
        self.at: NDArray[np.float64] = np.full(shape, -math.inf)
        """(n, g, s) its time stamp, on the node's clock."""
        self.first: NDArray[np.float64] = np.full(shape[0], math.inf)
        """(n,) arrival of the node's first sample since it was last silent for long."""
        self.heard: NDArray[np.float64] = np.full(shape[0], -math.inf)
        """(n,) arrival of its newest sample."""
        self.offset: NDArray[np.float64] = np.full(shape[0], math.inf)
        """(n,) smallest arrival minus time stamp."""
        self.dropped: Counter[Dropped] = Counter()

    def push(self, node: int, gpu: int, signal: Signal, value: float, at: float, now: float) -> Dropped | None:
        """Take one sample in; why not, if it was dropped. ``at`` is the node's clock, ``now`` ours."""
        if not (0 <= node < len(self.first) and 0 <= gpu < self._topology.gpus[node]):
            return self._drop(Dropped.UNKNOWN_DEVICE)
        if not (math.isfinite(value) and math.isfinite(at)):
            return self._drop(Dropped.NOT_A_NUMBER)
        lag = now - at
        if lag < -self.policy.skew:
            return self._drop(Dropped.FUTURE)
        if at < self.at[node, gpu, signal]:
            return self._drop(Dropped.OLDER)
        self.value[node, gpu, signal] = value
        self.at[node, gpu, signal] = at
        if lag < self.offset[node]:
            self.offset[node] = lag
        self._hear(node, now)
        return None

    def _hear(self, node: int, now: float) -> None:
        """A node that comes back after a long silence warms up anew, as after a restart."""
        if now - self.heard[node] > self.policy.hard:
            self.first[node] = now
        self.heard[node] = max(now, self.heard[node])

    def push_round(self, node: int, batch: Batch, now: float) -> NDArray[np.bool_]:
        """`push` for a whole round of one node at once; (k,) which were taken.

        Each GPU and signal stands in ``batch`` once; other rounds are pushed one by one.
        """
        if not 0 <= node < len(self.first):
            self.dropped[Dropped.UNKNOWN_DEVICE] += len(batch.gpu)
            return np.zeros(len(batch.gpu), dtype=bool)
        taken: NDArray[np.bool_] = (batch.gpu >= 0) & (batch.gpu < self._topology.gpus[node])
        self._count(Dropped.UNKNOWN_DEVICE, ~taken)
        finite = np.isfinite(batch.value) & np.isfinite(batch.at)
        self._count(Dropped.NOT_A_NUMBER, taken & ~finite)
        taken &= finite
        early = taken & (batch.at > now + self.policy.skew)
        self._count(Dropped.FUTURE, early)
        taken &= ~early
        older = taken.copy()
        older[taken] = batch.at[taken] < self.at[node, batch.gpu[taken], batch.signal[taken]]
        self._count(Dropped.OLDER, older)
        taken &= ~older
        if taken.any():
            where = (node, batch.gpu[taken], batch.signal[taken])
            self.value[where], self.at[where] = batch.value[taken], batch.at[taken]
            self.offset[node] = min(self.offset[node], now - batch.at[taken].max())
            self._hear(node, now)
        return taken

    def _count(self, reason: Dropped, dropped: NDArray[np.bool_]) -> None:
        if number := int(np.count_nonzero(dropped)):
            self.dropped[reason] += number

    def _drop(self, reason: Dropped) -> Dropped:
        self.dropped[reason] += 1
        return reason

    def drop(self, reason: Dropped) -> None:
        """Count a sample that could not even be addressed."""
        self.dropped[reason] += 1

    def fresh(self, now: float) -> Fresh:
        """The freshness of every node at ``now``."""
        policy = self.policy
        exists = self._topology.numa >= 0
        offset = np.clip(np.where(np.isfinite(self.offset), self.offset, 0.0), -policy.skew, policy.skew)
        sensors = self._age(now, SENSORS, exists) - offset
        health = self._age(now, (Signal.HEALTH,), exists) - offset
        warm = now - self.first >= policy.warm_up
        good = (sensors <= policy.sensors) & (health <= policy.health) & warm
        known = (sensors <= policy.hard) & (health <= policy.hard) & warm
        has_gpus = self._topology.gpus > 0
        # Nodes that never reported are not the collector's failure, nor those long gone; those that stop at once are.
        among = has_gpus & warm & (np.maximum(sensors, health) <= policy.gone)
        stale = among & ~good
        reporting = int(among.sum())
        breaker = None
        if has_gpus.any() and not reporting:
            breaker = f"no node reports telemetry, or none for {policy.warm_up:.0f} s yet, so none takes work"
        if reporting and stale.sum() > policy.breaker * reporting:
            breaker = f"telemetry of {int(stale.sum())} of {reporting} nodes is stale at once: look at the collector"
            good = known
        return Fresh(good | ~has_gpus, sensors, health, breaker)

    def _age(self, now: float, signals: tuple[Signal, ...], exists: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(n,) age of the oldest of ``signals`` over the node's GPUs."""
        oldest = self.at[:, :, list(signals)].min(axis=2)
        age: NDArray[np.float64] = now - np.where(exists, oldest, math.inf).min(axis=1)
        return np.where(exists.any(axis=1), age, 0.0)
