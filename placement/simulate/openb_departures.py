"""Runs with departures by trace, policy, seed and load, kept in a file like those of the inflation experiment."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from placement.fragmentation import Fragmentation
from placement.plans import jobs
from placement.policies import base, beside, fgd, planned
from placement.simulate import departures, inflation, openb, openb_runs
from placement.state import State
from placement.topology import Ints, Topology

__all__ = ["POLICIES", "Outcome", "Runs", "play"]

Factory = Callable[[State, departures.Scenario, Ints], base.Policy]

_PLANS = jobs.Cache()

POLICIES: dict[str, Factory] = {
    "fgd": lambda state, scenario, rank: fgd.Fgd(state, scenario.workload, rank),
    "fgd-mix": lambda state, scenario, rank: fgd.Fgd(state, scenario.mix(), rank),
    "ours": lambda state, scenario, rank: beside.Between(
        planned.Planned(state, scenario.workload, rank, lives=scenario.lives), _PLANS
    ),
    "ours-no-lives": lambda state, scenario, rank: beside.Between(
        planned.Planned(state, scenario.workload, rank), _PLANS
    ),
    "ours-learning": lambda state, scenario, rank: beside.Between(planned.Planned(state, None, rank), _PLANS),
}
"""``mix``: FGD given the frequencies of what is present; ``no-lives``: lifetimes learned; ``learning``: all learned."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run gave."""

    trace: str
    policy: str
    seed: int
    load: float
    arrivals: int
    waits: bool
    steady: dict[str, float]
    """`departures.Steady`."""
    seconds: float
    """CPU seconds of making plans."""
    source: str
    """Digest of the code that ran."""

    def key(self) -> tuple[object, ...]:
        """Equal for the same run."""
        return self.trace, self.policy, self.seed, self.load, self.arrivals, self.waits


def play(
    topology: Topology, trace: openb.Trace, policy: str, seed: int, load: float, arrivals: int, waits: bool
) -> Outcome:
    """One run. All policies of one seed get the same work and the same tie order."""
    generator = np.random.default_rng(seed)
    scenario = departures.prepare(trace, topology.capacity, load, arrivals, generator)
    rank, state = inflation.tie_order(len(topology.names), generator), State(topology)
    chosen = POLICIES[policy](state, scenario, rank)
    fragmentation = Fragmentation(topology, scenario.workload)
    found = departures.run(state, chosen, scenario.work, waits=waits, fragmentation=fragmentation)
    steady = {name: round(value, 4) for name, value in dataclasses.asdict(found).items()}
    planning = round(chosen.counts.seconds if isinstance(chosen, beside.Between) else 0.0, 3)
    return Outcome(trace.name, policy, seed, load, arrivals, waits, steady, planning, _source(policy))


def _source(policy: str) -> str:
    return openb_runs.source(policy, "simulate/departures.py")


class Runs:
    """Outcomes in a file of JSON lines; what is there and of the same code is not run again."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._path, self._folder = path, folder
        self._topology = openb.load_fleet(folder)
        self._traces: dict[str, openb.Trace] = {}
        self._known: dict[tuple[object, ...], Outcome] = {}
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                outcome = Outcome(**json.loads(line))
                self._known[outcome.key()] = outcome

    def get(self, trace: str, policy: str, seed: int, load: float, arrivals: int, *, waits: bool) -> Outcome:
        """The outcome, run now if need be."""
        known = self._known.get((trace, policy, seed, load, arrivals, waits))
        if known is not None and known.source == _source(policy):
            return known
        if trace not in self._traces:
            self._traces[trace] = openb.load_trace(self._folder, trace)
        outcome = play(self._topology, self._traces[trace], policy, seed, load, arrivals, waits)
        self._known[outcome.key()] = outcome
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(outcome)) + "\n")
        return outcome
