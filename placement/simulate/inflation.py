"""The inflation experiment of FGD's artifact: tasks arrive until 130 % of capacity is asked for; nothing leaves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.fragmentation import Fragmentation
from placement.policies import base
from placement.state import State
from placement.tasks import Task
from placement.topology import Ints

__all__ = ["Run", "arrivals", "replay", "tie_order"]

INFLATION = 1.3
"""Arrived demand over capacity at which the experiment stops."""


@dataclass(frozen=True, slots=True)
class Run:
    """One replay; index of the arrays = arrived demand in whole % of capacity, NaN where nothing was recorded."""

    allocated: NDArray[np.float64]
    """% of GPU capacity allocated."""
    fragment: NDArray[np.float64]
    """Fragment amount in % of GPU capacity; all NaN if it was not asked for."""
    cpu_allocated: NDArray[np.float64]
    """% of CPU allocated."""
    placed: int
    refused: int
    cpu_only_refused: int
    seconds: float
    """CPU seconds of this process over the whole replay, decisions and bookkeeping."""

    def at(self, percent: int) -> float | None:
        """% allocated when ``percent`` had arrived; None where nothing was recorded: a small trace steps wider."""
        return _recorded(self.allocated, percent)

    def fragment_at(self, percent: int) -> float | None:
        """Fragment amount likewise."""
        return _recorded(self.fragment, percent)


def _recorded(series: NDArray[np.float64], percent: int) -> float | None:
    known = percent < len(series) and not np.isnan(series[percent])
    return float(series[percent]) if known else None


def arrivals(tasks: Sequence[Task], capacity: int, generator: np.random.Generator) -> list[Task]:
    """The trace shuffled, then uniform draws with replacement until one more would pass 1.3 x capacity.

    As in the artifact, the stop test counts only one GPU's share of the next draw.
    """
    order = [tasks[index] for index in generator.permutation(len(tasks))]
    total = sum(task.demand for task in order)
    while True:
        task = tasks[int(generator.integers(len(tasks)))]
        if total + task.share > INFLATION * capacity:
            return order
        order.append(task)
        total += task.demand


def tie_order(nodes: int, generator: np.random.Generator) -> Ints:
    """A random place for each node, fixed for a run."""
    return generator.permutation(nodes)


def replay(state: State, policy: base.Policy, tasks: Sequence[Task], fragmentation: Fragmentation | None = None) -> Run:
    """Offer ``tasks`` in order; what does not fit is dropped and still counts as arrived."""
    topology = state.topology
    count = len(tasks)
    allocated = np.zeros(count, dtype=np.int64)
    cpu_allocated = np.zeros(count, dtype=np.int64)
    touched = np.full(count, -1)
    snapshots = np.zeros((count, topology.width + 1), dtype=np.int64)
    total = cpu_total = refused = cpu_only_refused = 0
    start = time.process_time()
    for index, task in enumerate(tasks):
        choice = policy.choose(task)
        if choice is None:
            refused += 1
            cpu_only_refused += not task.gpus
        else:
            state.take(choice.node, choice.gpus, task.share, task.cpu, task.memory)
            total += task.demand
            cpu_total += task.cpu
            touched[index] = choice.node
            snapshots[index, :-1] = state.gpu[choice.node]
            snapshots[index, -1] = state.cpu[choice.node]
        allocated[index] = total
        cpu_allocated[index] = cpu_total
    seconds = time.process_time() - start
    arrived = np.cumsum([task.demand for task in tasks]) / topology.capacity * 100
    percent = np.rint(arrived).astype(np.int64)
    amount = np.full(count, np.nan)
    if fragmentation is not None:
        amount = _fragments(topology.width, State(topology), fragmentation, touched, snapshots)
    return Run(
        _by_percent(percent, allocated / topology.capacity * 100),
        _by_percent(percent, amount / topology.capacity * 100),
        _by_percent(percent, cpu_allocated / topology.cpu.sum() * 100),
        count - refused,
        refused,
        cpu_only_refused,
        seconds,
    )


def _by_percent(percent: Ints, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of the records inside each whole percent of arrival."""
    sums = np.bincount(percent, weights=values)
    counts = np.bincount(percent)
    means: NDArray[np.float64] = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    return means


def _fragments(
    width: int, empty: State, fragmentation: Fragmentation, touched: Ints, snapshots: Ints
) -> NDArray[np.float64]:
    """Cluster fragmentation after each decision, from the state of the one node that each decision changed."""
    topology = empty.topology
    amount = fragmentation.of(empty.gpu, empty.cpu, topology.model)
    current = amount.sum()
    hits = np.flatnonzero(touched >= 0)
    after = fragmentation.of(snapshots[hits, :width], snapshots[hits, width], topology.model[touched[hits]])
    series = np.full(len(touched), np.nan)
    position = 0
    for index, node in enumerate(touched):
        if node >= 0:
            current += after[position] - amount[node]
            amount[node] = after[position]
            position += 1
        series[index] = current
    return series
