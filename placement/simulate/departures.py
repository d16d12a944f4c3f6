"""A fleet in steady state: work of one trace comes at random and leaves after its lifetime.

Lifetimes are the trace's own, cut at their 95th percentile: beyond it a handful of pods that
live for months would be most of the load. The run starts with a stationary population (kinds
by frequency times lifetime, residual lives), so that no long warm-up is needed. Work without a
place is dropped, or it waits: then it is tried, oldest first, whenever something leaves.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from lockstep.base import errors
from placement.fragmentation import Fragmentation
from placement.policies import base
from placement.simulate import openb
from placement.state import State
from placement.tasks import Task, Workload, count

__all__ = ["Arrival", "Scenario", "Steady", "prepare", "run"]

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
class Scenario:
    """What comes, and what policies may know of it."""

    work: list[Arrival]
    """By time; the stationary population comes at 0."""
    workload: Workload
    """Frequencies among arrivals."""
    lives: dict[Task, float]
    """Mean lifetime per kind, seconds."""

    def mix(self) -> Workload:
        """Frequencies among what is present."""
        return Workload.counted({task: part * self.lives[task] for task, part in self.workload.frequencies.items()})


@dataclass(frozen=True, slots=True)
class Steady:
    """What one run gave, over its second half."""

    allocated: float
    """% of GPU capacity, mean over time."""
    refused: float
    """% of the GPU demand that arrived; 0 where work waits."""
    fragment: float
    """Fragment amount in % of GPU capacity, mean over time; NaN if it was not asked for."""
    waiting: float
    """GPU demand in the line in % of capacity, mean over time."""
    delay: float
    """Seconds between arrival and place, mean of all pieces of work; of what still waits at the end, until then."""
    delay_p99: float


def prepare(trace: openb.Trace, capacity: int, load: float, arrivals: int, generator: np.random.Generator) -> Scenario:
    """The stationary population, all at time 0, then ``arrivals`` more.

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
    counts = count(trace.tasks)
    sums = dict.fromkeys(counts, 0.0)
    for task, life in zip(trace.tasks, lives.tolist(), strict=True):
        sums[task] += life
    return Scenario(found, Workload.counted(counts), {task: sums[task] / counts[task] for task in counts})


@dataclass(slots=True)
class _Meter:
    """Time integrals over the second half, and what each change left on its node."""

    half: float
    now: float = 0.0
    used: int = 0
    area: float = 0.0
    line: int = 0
    """Demand that waits."""
    line_area: float = 0.0
    delays: list[float] = field(default_factory=list)
    log: list[tuple[float, int, np.ndarray, int]] = field(default_factory=list)
    """Time, node, its GPUs and its CPU after the change."""

    def advance(self, at: float) -> None:
        span = max(0.0, at - max(self.now, self.half))
        self.area += self.used * span
        self.line_area += self.line * span
        self.now = at


class _Run:
    """State of one run."""

    def __init__(self, state: State, policy: base.Policy, half: float, *, logs: bool) -> None:
        self.state, self.policy, self.logs = state, policy, logs
        self.meter = _Meter(half)
        self.leaving: list[tuple[float, int, Task, base.Choice]] = []
        self.line: list[tuple[int, Arrival]] = []

    def offer(self, number: int, item: Arrival, at: float) -> bool:
        task = item.task
        choice = self.policy.choose(task)
        if choice is None:
            return False
        self.state.take(choice.node, choice.gpus, task.share, task.cpu, task.memory)
        self.meter.used += task.demand
        self._changed(at, choice.node)
        heapq.heappush(self.leaving, (at + item.lives, number, task, choice))
        if item.at > self.meter.half:
            self.meter.delays.append(at - item.at)
        return True

    def leave(self) -> None:
        """The next end; then the line, where only the node that it was on can have become large enough."""
        at, _, task, choice = heapq.heappop(self.leaving)
        self.meter.advance(at)
        self.state.give(choice.node, choice.gpus, task.share, task.cpu, task.memory)
        self.meter.used -= task.demand
        self._changed(at, choice.node)
        if hasattr(self.policy, "left"):
            self.policy.left(task, choice)
        node, hopeless, still = np.array([choice.node]), set[Task](), []
        for number, item in self.line:
            if item.task not in hopeless:
                allowed = item.task.allowed(self.state.topology)
                if base.batch_fits(self.state, item.task, node, allowed)[0] and self.offer(number, item, at):
                    self.meter.line -= item.task.demand
                    continue
                hopeless.add(item.task)
            still.append((number, item))
        self.line = still

    def _changed(self, at: float, node: int) -> None:
        if self.logs:
            self.meter.log.append((at, node, self.state.gpu[node].copy(), int(self.state.cpu[node])))


def run(
    state: State,
    policy: base.Policy,
    work: list[Arrival],
    *,
    waits: bool = False,
    fragmentation: Fragmentation | None = None,
) -> Steady:
    """Offer ``work`` in order of time; what does not fit is dropped, or waits."""
    end = work[-1].at
    going = _Run(state, policy, end / 2, logs=fragmentation is not None)
    meter = going.meter
    asked = lost = 0
    for number, item in enumerate(work):
        while going.leaving and going.leaving[0][0] <= item.at:
            going.leave()
        meter.advance(item.at)
        counts = item.at > meter.half
        asked += item.task.demand if counts else 0
        if going.offer(number, item, item.at):
            continue
        if waits:
            going.line.append((number, item))
            meter.line += item.task.demand
        elif counts:
            lost += item.task.demand
    delays = np.array(meter.delays + [end - item.at for _, item in going.line if item.at > meter.half] or [0.0])
    span, capacity = end - meter.half, state.topology.capacity
    return Steady(
        100 * meter.area / span / capacity,
        100 * lost / asked,
        100 * _mean_fragment(state, meter, end, fragmentation) / capacity if fragmentation else float("nan"),
        100 * meter.line_area / span / capacity,
        float(delays.mean()),
        float(np.percentile(delays, 99)),
    )


def _mean_fragment(state: State, meter: _Meter, end: float, fragmentation: Fragmentation) -> float:
    """Fragment amount over time from `meter.half` on, from the state of the one node that each change touched."""
    topology, empty = state.topology, State(state.topology)
    amount = fragmentation.of(empty.gpu, empty.cpu, topology.model)
    times, nodes, gpus, cpus = zip(*meter.log, strict=True)
    touched = np.array(nodes)
    after = fragmentation.of(np.array(gpus), np.array(cpus), topology.model[touched])
    total, area, last = float(amount.sum()), 0.0, 0.0
    for at, node, value in zip(times, nodes, after.tolist(), strict=True):
        area += total * max(0.0, at - max(last, meter.half))
        total += value - amount[node]
        amount[node], last = value, at
    return (area + total * (end - max(last, meter.half))) / (end - meter.half)
