"""Runs of the inflation experiment by trace, policy and seed, kept in a file so that a long series can go on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import placement
from lockstep.base import errors
from placement.fragmentation import Fragmentation
from placement.plans import jobs
from placement.policies import base, beside, fgd, planned, rivals
from placement.simulate import inflation, openb
from placement.state import State
from placement.tasks import Workload, count
from placement.topology import Ints, Topology

__all__ = ["POLICIES", "SEEDS", "Record", "Runs", "play", "run"]

SEEDS = tuple(range(42, 52))
"""Start values of the published runs; the generator differs, so draws are equal in law only."""
PERCENTS = (50, 80, 90, 95, 100, 130)

Factory = Callable[[State, Workload, Ints, np.random.Generator], base.Policy]


def _wrong(workload: Workload, generator: np.random.Generator) -> Workload:
    """Every frequency times a factor from [2/3, 4/3], renormalised."""
    return Workload.counted({k: p * generator.uniform(2 / 3, 4 / 3) for k, p in workload.frequencies.items()})


_PLANS = jobs.Cache()
"""Plans for the empty fleet: one per workload, not one per run."""


def _ours(state: State, workload: Workload | None, rank: Ints) -> base.Policy:
    return beside.Between(planned.Planned(state, workload, rank), _PLANS)


POLICIES: dict[str, Factory] = {
    **{name: (lambda s, w, r, g, make=make: make(s, r, g)) for name, make in rivals.RIVALS.items()},  # type: ignore[misc]
    "fgd": lambda state, workload, rank, _: fgd.Fgd(state, workload, rank),
    "ours": lambda state, workload, rank, _: _ours(state, workload, rank),
    "ours-learning": lambda state, workload, rank, _: _ours(state, None, rank),
    "fgd-wrong": lambda state, workload, rank, generator: fgd.Fgd(state, _wrong(workload, generator), rank),
    "ours-wrong": lambda state, workload, rank, generator: _ours(state, _wrong(workload, generator), rank),
}
"""Name → factory. ``wrong``: frequencies off by up to a third, the same wrong ones for both."""


@dataclass(frozen=True, slots=True)
class Record:
    """What one run gave."""

    trace: str
    policy: str
    seed: int
    allocated: dict[str, float]
    """Arrived % → allocated %; what a small trace steps over is not there."""
    fragment: dict[str, float]
    """Arrived % → fragment amount, % of capacity."""
    cpu_only_refused: int
    cpu_allocated: float
    """% of CPU at 100 % arrived."""
    decisions: int
    seconds: float
    """CPU seconds of the whole run, plans included."""
    planning: float
    """CPU seconds of making plans, part of ``seconds``."""
    source: str
    """Digest of the code that ran."""


def run(topology: Topology, trace: openb.Trace, policy: str, seed: int) -> tuple[inflation.Run, base.Policy]:
    """One run and its policy. All policies of one seed get the same arrivals and the same tie order."""
    generator = np.random.default_rng(seed)
    tasks = inflation.arrivals(trace.tasks, topology.capacity, generator)
    rank = inflation.tie_order(len(topology.names), generator)
    workload = Workload.counted(count(trace.tasks))
    state = State(topology)
    chosen = POLICIES[policy](state, workload, rank, generator)
    found = inflation.replay(state, chosen, tasks, Fragmentation(topology, workload))
    return found, chosen


def play(topology: Topology, trace: openb.Trace, policy: str, seed: int) -> Record:
    """One run as a record."""
    found, chosen = run(topology, trace, policy, seed)
    return Record(
        trace.name,
        policy,
        seed,
        _recorded(found.at),
        _recorded(found.fragment_at),
        found.cpu_only_refused,
        round(float(found.cpu_allocated[100]), 4),
        found.placed + found.refused,
        round(found.seconds, 3),
        round(chosen.counts.seconds if isinstance(chosen, beside.Between) else 0.0, 3),
        source(policy),
    )


def _recorded(at: Callable[[int], float | None]) -> dict[str, float]:
    return {str(percent): round(value, 4) for percent in PERCENTS if (value := at(percent)) is not None}


def source(policy: str, simulation: str = "simulate/inflation.py") -> str:
    """Digest of the modules that decide what ``policy`` does: a record of other code does not count."""
    root = Path(placement.__file__).parent
    names = ["fragmentation.py", "state.py", "tasks.py", "policies/base.py", "policies/fgd.py", simulation]
    if policy in rivals.RIVALS:
        names.append("policies/rivals.py")
    if policy.startswith("ours"):
        names += ["policies/beside.py", "policies/expecting.py", "policies/planned.py", "policies/slots.py"]
        names += [f"plans/{name}.py" for name in ("jobs", "kinds", "making", "master", "pricing")]
    texts = [(root / name).read_bytes() for name in names]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


class Runs:
    """Records in a file of JSON lines; what is there and of the same code is not run again."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._path = path
        self._folder = folder
        self._topology = openb.load_fleet(folder)
        self._traces: dict[str, openb.Trace] = {}
        self._known: dict[tuple[str, str, int], Record] = {}
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                record = Record(**json.loads(line))
                self._known[record.trace, record.policy, record.seed] = record

    def get(self, trace: str, policy: str, seed: int) -> Record:
        """The record, run now if need be."""
        known = self._known.get((trace, policy, seed))
        if known is not None and known.source == source(policy):
            return known
        if trace not in self._traces:
            self._traces[trace] = openb.load_trace(self._folder, trace)
        record = play(self._topology, self._traces[trace], policy, seed)
        self._known[trace, policy, seed] = record
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(record)) + "\n")
        return record

    def series(self, trace: str, policy: str, seeds: Sequence[int], percent: int = 100) -> list[float]:
        """% allocated at ``percent`` arrived, per seed. Raises `errors.InputError` where a small trace has none."""
        found = [self.get(trace, policy, seed).allocated.get(str(percent)) for seed in seeds]
        if None in found:
            raise errors.InputError(f"too little work to tell what is allocated at {percent} %", place=trace)
        return [value for value in found if value is not None]
