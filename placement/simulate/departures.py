"""A fleet in steady state: work of one trace comes at random and leaves after its lifetime; nothing waits.

Lifetimes are the trace's own, cut at their 95th percentile: beyond it a handful of pods that
live for months would be most of the load. The run starts with a stationary population (kinds
by frequency times lifetime, residual lives), so that no long warm-up is needed.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from lockstep.base import errors
from placement.policies import base
from placement.simulate import openb
from placement.state import State
from placement.tasks import Task, Workload, count

__all__ = ["Arrival", "Steady", "prepare", "run"]

LONGEST = 95
"""Percentile at which lifetimes are cut."""
SHORTEST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One piece of work."""

    at: float
    task: Task
    lives: float
    """Seconds."""


@dataclass(frozen=True, slots=True)
class Steady:
    """What one run gave, over its second half."""

    allocated: float
    """% of GPU capacity, mean over time."""
    refused: float
    """% of the GPU demand that arrived."""


def prepare(
    trace: openb.Trace, capacity: int, load: float, arrivals: int, generator: np.random.Generator
) -> tuple[list[Arrival], Workload]:
    """The stationary population, all at time 0, then ``arrivals`` more; and the mix of kinds among arrivals.

    ``load`` is the demand over ``capacity`` that would be present if all were placed. Raises
    `errors.InputError` for a trace without creation and deletion times.
    """
    if not trace.departures:
        raise errors.InputError(f"trace {trace.name} has no creation and deletion times", place="--trace")
    lives = np.maximum(np.array(trace.departures) - np.array(trace.arrivals), SHORTEST_SECONDS)
    lives = np.minimum(lives, np.percentile(lives, LONGEST))
    demand = np.array([task.demand for task in trace.tasks], dtype=float)
    rate = load * capacity / float((demand * lives).mean())
    # By lifetime as well as by number: what is present at any moment is mostly what lives long.
    present = generator.choice(len(lives), size=len(lives) * 4, p=lives / lives.sum())
    present = present[: int(np.searchsorted(demand[present].cumsum(), load * capacity)) + 1]
    residual = lives[present] * generator.random(len(present))
    found = [Arrival(0.0, trace.tasks[pick], left) for pick, left in zip(present, residual.tolist(), strict=True)]
    times = np.cumsum(generator.exponential(1.0 / rate, arrivals))
    for at, pick in zip(times.tolist(), generator.integers(len(lives), size=arrivals).tolist(), strict=True):
        found.append(Arrival(at, trace.tasks[pick], float(lives[pick])))
    return found, Workload.counted(count(trace.tasks))


def run(state: State, policy: base.Policy, work: list[Arrival]) -> Steady:
    """Offer ``work`` in order of time; what does not fit is dropped."""
    leaving: list[tuple[float, int, Task, base.Choice]] = []
    end = work[-1].at
    half, now = end / 2, 0.0
    used, area, asked, lost = 0, 0.0, 0, 0

    def account(at: float) -> None:
        nonlocal area, now
        area += used * max(0.0, at - max(now, half))
        now = at

    for number, item in enumerate(work):
        while leaving and leaving[0][0] <= item.at:
            at, _, task, choice = heapq.heappop(leaving)
            account(at)
            state.give(choice.node, choice.gpus, task.share, task.cpu, task.memory)
            used -= task.demand
            if hasattr(policy, "left"):
                policy.left(task, choice)
        account(item.at)
        asked += item.task.demand if item.at > half else 0
        placed = policy.choose(item.task)
        if placed is None:
            lost += item.task.demand if item.at > half else 0
            continue
        state.take(placed.node, placed.gpus, item.task.share, item.task.cpu, item.task.memory)
        used += item.task.demand
        heapq.heappush(leaving, (item.at + item.lives, number, item.task, placed))
    return Steady(100 * area / (end - half) / state.topology.capacity, 100 * lost / asked)
