"""Kinds of single-node work, and how often each is expected: what packing policies reason about."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.topology import WHOLE, Ints, Topology

__all__ = ["Task", "Workload", "typical"]

TYPICAL_SHARE = 0.95
"""Share of all work that the kinds behind FGD's formula cover (artifact of the paper)."""


@dataclass(frozen=True, slots=True)
class Task:
    """One pod's needs on one node; equal tasks are of the same kind."""

    cpu: int
    """Thousandths of a core."""
    memory: int
    """MiB."""
    gpus: int
    """Number of GPUs; 0 for CPU-only work."""
    share: int
    """Thousandths of each GPU; below 1000 only with one GPU; 0 for CPU-only work."""
    models: frozenset[str] = frozenset()
    """Accelerator models allowed; empty: any."""

    def __post_init__(self) -> None:
        if min(self.cpu, self.memory, self.gpus, self.share) < 0 or self.share > WHOLE:
            raise ValueError(f"not a task: {self}")
        if (self.gpus == 0) != (self.share == 0) or (self.gpus > 1 and self.share != WHOLE):
            raise ValueError(f"a share of a GPU goes with exactly one GPU: {self}")

    @property
    def demand(self) -> int:
        """Thousandths of a GPU over all GPUs."""
        return self.gpus * self.share

    def allowed(self, topology: Topology) -> NDArray[np.bool_]:
        """(n,) nodes whose accelerator this work may use."""
        if not self.models:
            return np.ones(len(topology.names), dtype=bool)
        return np.array([model in self.models for model in topology.models])[topology.model]


@dataclass(frozen=True, slots=True)
class Workload:
    """Kinds of work and their probabilities, most frequent first; what a policy may know."""

    frequencies: Mapping[Task, float]

    @classmethod
    def counted(cls, counts: Mapping[Task, float]) -> Workload:
        """Normalised, most frequent first; equal counts keep the order given. Raises ValueError without any work."""
        total = sum(counts.values())
        if total <= 0:
            raise ValueError("a workload needs at least one task")
        ordered = sorted(counts.items(), key=lambda item: -item[1])
        return cls({task: count / total for task, count in ordered})

    def mean_demand(self) -> float:
        """Expected thousandths of a GPU per task."""
        return sum(probability * task.demand for task, probability in self.frequencies.items())


def typical(workload: Workload) -> Workload:
    """The most frequent kinds that together cover `TYPICAL_SHARE` of all work, renormalised.

    Kinds are told apart without memory, as in the artifact: it takes no part in the formula,
    and splitting by it would cut off other kinds (up to 1.3 points on CPU-heavy traces).
    Of equally frequent ones the larger come first, as there.
    """
    merged: dict[Task, float] = {}
    for task, probability in workload.frequencies.items():
        plain = dataclasses.replace(task, memory=0)
        merged[plain] = merged.get(plain, 0.0) + probability
    chosen: dict[Task, float] = {}
    covered = 0.0
    # Rounded: equal counts must be equal, in whatever order their parts were added up.
    for task in sorted(merged, key=lambda task: (round(merged[task], 12), *_size(task)), reverse=True):
        probability = merged[task]
        if covered >= TYPICAL_SHARE:
            break
        chosen[task] = probability
        covered += probability
    return Workload.counted(chosen)


def _size(task: Task) -> tuple[int, int, int, str]:
    return task.cpu, task.share, task.gpus, "|".join(sorted(task.models))


def count(tasks: Iterable[Task]) -> dict[Task, int]:
    """How often each kind occurs."""
    table: dict[Task, int] = {}
    for task in tasks:
        table[task] = table.get(task, 0) + 1
    return table


def demands(tasks: Iterable[Task]) -> Ints:
    """Thousandths of a GPU of each task."""
    return np.array([task.demand for task in tasks], dtype=np.int64)
