"""Faults on a made-up NVL72 fleet: Xids, collectors that stop, clocks off, GPUs that slowly warm up; who places where.

The world knows the truth; the arms see what agents reported. Temperatures, power and NIC
load are drawn between the percentiles of A100 clusters (AcmeTrace: P50/P95/P99 of core
temperature 39/65/69 °C, power 100/410/440 W, InfiniBand 0/5,620/7,413 MB/s) and scaled to
the limits of `headroom.Limits`; a few nodes drift upwards by some degrees an hour.
"""

from __future__ import annotations

import enum
import heapq
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from placement import assigning, audits, gates, headroom, occupancy, planner, requests
from placement.health.board import Board, Event
from placement.health.policies import Effect
from placement.occupancy import Placed
from placement.simulate import fleets
from placement.telemetry.samples import Samples

__all__ = ["Arm", "Outcome", "Setting", "Weights", "play"]

STEP = 10.0
"""Seconds between reports of an agent, and between steps."""
WARM = 12
"""Steps before the first placement."""
PERCENTILES: Final = (0.0, 0.5, 0.95, 0.99, 1.0)
DRAWN: Final = {"core": (30.0, 39.0, 65.0, 69.0, 75.0), "power": (60.0, 100.0, 410.0, 440.0, 500.0)}
"""Values at `PERCENTILES`; the ends are made up."""
XIDS = (79, 48, 95, 119, 74, 54, 13, 31, 63, 9999)
"""Fatal ones, a link error, one of the node, notices, an unknown one."""


class Arm(enum.StrEnum):
    """Who decides."""

    MINIMUM = "gates + minimum"
    MEAN = "gates + mean"
    WEIGHTED = "weighted sum"


@dataclass(frozen=True, slots=True)
class Weights:
    """Of the weighted sum: fit, fresh and headroom of a node's GPUs, and how full its domain is."""

    health: float
    fresh: float
    headroom: float
    packing: float


@dataclass(frozen=True, slots=True)
class Setting:
    """One world."""

    domains: int = 20
    steps: int = 360
    load: float = 1.05
    xids: float = 0.1
    """Events per step over the fleet."""
    silent: float = 0.02
    """Part of the nodes whose collector stops, for 15 s to the end."""
    drifting: float = 0.05
    """Part of the nodes that warm up, by up to 40 °C an hour."""


@dataclass(slots=True)
class Outcome:
    """Counts of one run."""

    placed: int = 0
    """Members placed."""
    fatal: int = 0
    """Of them on a device or node with a fatal event that had been reported."""
    unreported: int = 0
    """Of them on a device whose fatal event no agent had reported yet: nobody could know."""
    stale: int = 0
    """Of them on a node whose newest sample was older than the freshness limit."""
    asked: int = 0
    """Healthy, fresh nodes at all decisions."""
    wrongly_out: int = 0
    """Of them shut by a gate of health or freshness."""
    used: list[float] = field(default_factory=list)
    """% of GPUs in use, per step."""
    least: list[float] = field(default_factory=list)
    """True headroom of the worst dimension of the worst GPU of each member placed."""


class _World:
    def __init__(self, setting: Setting, arm: Arm, weights: Weights | None, seed: int) -> None:
        self.setting, self.arm, self.weights = setting, arm, weights
        self.draw = np.random.default_rng(seed)
        self.topology = fleets.nvl72(setting.domains)
        nodes, width = self.topology.numa.shape
        self.samples, self.board = Samples(self.topology), Board(self.topology)
        self.view = gates.View(
            self.topology,
            occupancy.Occupancy(self.topology),
            self.board,
            audits.Audits.trusted(self.topology),
            self.samples.fresh(0.0),
            np.ones((nodes, width)),
        )
        self.planner = planner.Planner(self.view, self.samples)
        self.fatal: NDArray[np.bool_] = np.zeros((nodes, width), dtype=bool)
        self.link: NDArray[np.bool_] = np.zeros((nodes, width), dtype=bool)
        self.waiting_events: list[Event] = []
        self.skew = self.draw.uniform(np.full(nodes, -4.5), 4.5)
        self.last = np.zeros(nodes)
        """(n,) true time of the newest report."""
        self.silent: NDArray[np.float64] = np.full((nodes, 2), np.inf)
        for node in np.flatnonzero(self.draw.random(nodes) < setting.silent):
            begins = self.draw.uniform(WARM, setting.steps) * STEP
            self.silent[node] = begins, begins + self.draw.choice([15.0, 45.0, 120.0, np.inf])
        self.drift: NDArray[np.float64] = np.where(
            self.draw.random(nodes) < setting.drifting, self.draw.uniform(10, 40, nodes), 0.0
        )
        self.base = {name: self._spread(values, (nodes, width)) for name, values in DRAWN.items()}
        self.ends: list[tuple[float, str]] = []
        self.outcome = Outcome()
        self.fatal_known = np.zeros((nodes, width), dtype=bool)

    def _spread(self, values: tuple[float, ...], shape: tuple[int, ...]) -> NDArray[np.float64]:
        drawn: NDArray[np.float64] = np.interp(self.draw.random(shape), PERCENTILES, values)
        return drawn

    def truth(self, now: float) -> NDArray[np.float64]:
        """(n, g, 2) true headroom of temperature and power: P95 of the window that ends now."""
        limits = headroom.Limits()
        core = self.base["core"] + self.drift[:, None] * (now / 3600.0)
        power = self.base["power"] * limits.power / 440.0
        warm = (core - headroom.IDLE_CELSIUS) / (limits.core_temperature - headroom.IDLE_CELSIUS)
        left: NDArray[np.float64] = np.clip(1.0 - np.stack([warm, power / limits.power], axis=2), 0.0, 1.0)
        return left

    def report(self, now: float) -> None:
        """One round of the agents that are alive, with their clocks' skew, and the events since the last one."""
        alive = ~((self.silent[:, 0] <= now) & (now < self.silent[:, 1]))
        self.last[alive] = now
        at: NDArray[np.float64] = now + self.skew
        self.samples.at[alive] = at[alive, None, None]
        self.samples.value[alive] = 1.0
        self.samples.first[alive] = np.minimum(self.samples.first[alive], now)
        self.samples.offset[alive] = np.minimum(self.samples.offset[alive], now - at[alive])
        for event in [event for event in self.waiting_events if alive[event.node]]:
            self.waiting_events.remove(event)
            self.board.report(event)
            self._known(event)
        self._events(now)
        seen = self.truth(now)
        self.view.set_headroom(seen.mean(axis=2) if self.arm is Arm.MEAN else seen.min(axis=2))

    def _events(self, now: float) -> None:
        nodes, width = self.topology.numa.shape
        for _ in range(int(self.draw.poisson(self.setting.xids))):
            node, gpu = int(self.draw.integers(nodes)), int(self.draw.integers(width))
            code = int(self.draw.choice(XIDS))
            recovery = "gpu-reset" if code == XIDS[-1] else None
            event = Event(node, gpu, f"xid {code}", now, recovery)
            effect = self.board.policy.meaning(event.code, recovery).effect
            if effect is Effect.DEVICE:
                self.fatal[node, gpu] = True
            elif effect is Effect.NODE:
                # Under an alarm the code is suspected, not the node: only what reported it counts.
                self.fatal[node, gpu if event.code in self.board.alarms else slice(None)] = True
            elif effect is Effect.LINK:
                self.link[node, gpu] = True
            self.waiting_events.append(event)
        # Resets bring devices back after a while.
        for node in np.flatnonzero(self.fatal.any(axis=1) | self.link.any(axis=1)).tolist():
            if self.draw.random() < 1 / 60 and not any(event.node == node for event in self.waiting_events):
                self.fatal[node] = self.link[node] = self.fatal_known[node] = False
                self.board.clear(node)

    def _known(self, event: Event) -> None:
        effect = self.board.policy.meaning(event.code, event.recovery).effect
        if effect is Effect.DEVICE:
            self.fatal_known[event.node, event.gpu] = True
        elif effect is Effect.NODE:
            self.fatal_known[event.node] = self.fatal[event.node]

    def place(self, name: str, size: int, now: float) -> bool:
        """One gang of ``size`` whole nodes in one domain."""
        request = requests.Request(name, (requests.Member(gpus=4, count=size),), need=requests.Need.SAME_DOMAIN)
        if self.arm is Arm.WEIGHTED:
            members = self._by_weights(request, size)
            decision = planner.Decision(request, members, None)
        else:
            decision = self.planner.plan(request, now)
        self._judge_gates(now)
        if decision.placed:
            self.planner.commit(decision)
            self._judge(decision.members, now)
        return decision.placed

    def _by_weights(self, request: requests.Request, size: int) -> tuple[Placed, ...]:
        """Free nodes by the weighted sum of what is known; nothing is ever excluded."""
        assert self.weights is not None  # noqa: S101 - the arm has them
        weights, topology, state = self.weights, self.topology, self.view.occupancy.state
        fit = 1.0 - (self.board.out | self.board.node_out[:, None] | self.board.link).mean(axis=1)
        cool = self.view.headroom.mean(axis=1)
        free = state.whole == topology.gpus
        in_use = np.bincount(topology.domain, weights=~free, minlength=len(topology.domains))[topology.domain] / 18
        fresh = self.samples.fresh(self._now).nodes
        score = weights.health * fit + weights.fresh * fresh + weights.headroom * cool + weights.packing * in_use
        best: tuple[float, list[int]] = (-np.inf, [])
        for nodes in topology.domain_nodes:
            usable = nodes[free[nodes]]
            if len(usable) >= size:
                top = usable[np.argsort(-score[usable], kind="stable")[:size]]
                best = max(best, (float(score[top].mean()), top.tolist()))
        return tuple(assigning.placed(request, request.members[0], node, (0, 1, 2, 3), 0) for node in best[1])

    def _judge(self, members: tuple[Placed, ...], now: float) -> None:
        left = self.truth(now).min(axis=2)
        for item in members:
            gpus = list(item.gpus)
            self.outcome.placed += 1
            self.outcome.fatal += bool((self.fatal_known | (self.link & self.board.link))[item.node, gpus].any())
            self.outcome.unreported += bool((self.fatal & ~self.fatal_known)[item.node, gpus].any())
            self.outcome.stale += bool(now - self.last[item.node] > self.samples.policy.sensors + planner.TICK_SECONDS)
            self.outcome.least.append(float(left[item.node, gpus].min()))

    def _judge_gates(self, now: float) -> None:
        if self.arm is Arm.WEIGHTED:
            return
        good = ~self.fatal.any(axis=1) & (now - self.last <= self.samples.policy.sensors - 1e-6)
        shut = self.view.board.node_out | ~self.view.fresh.nodes | self.view.board.out.any(axis=1)
        self.outcome.asked += int(good.sum())
        self.outcome.wrongly_out += int((good & shut).sum())

    _now = 0.0

    def run(self) -> Outcome:
        """All steps."""
        nodes, serial = len(self.topology.names), 0
        mean, life = 2.5, 900.0
        for step in range(self.setting.steps):
            now = self._now = step * STEP
            self.report(now)
            while self.ends and self.ends[0][0] <= now:
                self.planner.release(heapq.heappop(self.ends)[1])
            if step < WARM:
                continue
            # Early on twice as much, to fill the fleet.
            rate = self.setting.load * nodes / mean / life * STEP * (2 if step < WARM + 60 else 1)
            for _ in range(int(self.draw.poisson(rate))):
                serial += 1
                size, seconds = int(self.draw.choice([1, 2, 3, 4])), float(self.draw.exponential(life))
                if self.place(f"j{serial}", size, now + float(self.draw.uniform(0, STEP / 2))):
                    heapq.heappush(self.ends, (now + seconds, f"j{serial}"))
            busy = int((self.view.occupancy.members > 0).sum())
            self.outcome.used.append(100 * busy / nodes)
        return self.outcome


def play(setting: Setting, arm: Arm, seed: int, weights: Weights | None = None) -> Outcome:
    """One run; arms of one seed see the same world until their placements differ."""
    return _World(setting, arm, weights, seed).run()
