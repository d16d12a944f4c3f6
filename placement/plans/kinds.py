"""Kinds of work as arrays, nodes of equal room as groups, node contents as columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placement.tasks import Task
from placement.topology import WHOLE, Ints

__all__ = ["Bin", "Content", "Kinds", "Room"]


class Kinds:
    """``t`` kinds of work."""

    def __init__(self, tasks: Sequence[Task], models: Sequence[str]) -> None:
        self.tasks = tuple(tasks)
        self.index = {task: number for number, task in enumerate(self.tasks)}
        self.cpu: Ints = np.array([task.cpu for task in tasks], dtype=np.int64)
        self.memory: Ints = np.array([task.memory for task in tasks], dtype=np.int64)
        self.gpus: Ints = np.array([task.gpus for task in tasks], dtype=np.int64)
        self.share: Ints = np.array([task.share for task in tasks], dtype=np.int64)
        self.demand: Ints = self.gpus * self.share
        self.allowed: NDArray[np.bool_] = np.array(
            [[not task.models or model in task.models for model in models] for task in tasks], dtype=bool
        ).reshape(len(self.tasks), len(models))
        """(t, models)"""

    def __len__(self) -> int:
        return len(self.tasks)

    def fits(self, room: Room) -> NDArray[np.bool_]:
        """(t,) kinds of which at least one fits ``room``."""
        whole = sum(free == WHOLE for free in room.gpu)
        gpu = np.where(self.gpus <= 1, self.share <= max(room.gpu, default=0), self.gpus <= whole)
        fits: NDArray[np.bool_] = (
            self.allowed[:, room.model] & (self.cpu <= room.cpu) & (self.memory <= room.memory) & gpu
        )
        return fits


class Room(NamedTuple):
    """What a node has free; nodes with equal room form one group."""

    model: int
    cpu: int
    memory: int
    gpu: tuple[int, ...]
    """Free thousandths per GPU, largest first."""


class Bin(NamedTuple):
    """Work planned on one GPU, or one piece of work on several whole ones."""

    free: int
    """Free thousandths of the GPU that it was made for."""
    gpus: int
    """Number of GPUs; above 1 with exactly one kind."""
    kinds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Content:
    """What to put on a node of one group."""

    group: int
    bins: tuple[Bin, ...]
    cpu_only: tuple[int, ...]
    """Kinds without a GPU."""

    def counts(self) -> dict[int, int]:
        """Kind → how many."""
        counts = Counter(self.cpu_only)
        for item in self.bins:
            counts.update(item.kinds)
        return dict(counts)
