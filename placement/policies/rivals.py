"""The policies that FGD was published against, vectorised over nodes.

Scores as in the artifact (hkust-adsl/kubernetes-scheduler-simulator); 128,000
thousandths of a core and 8 GPUs are its largest node and its normalisation.
"""

from __future__ import annotations

import abc
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from placement.policies import base
from placement.state import State
from placement.tasks import Task
from placement.topology import WHOLE, Ints

__all__ = ["BestFit", "Clustering", "DotProduct", "Packing", "Random"]

CPU = 128_000
GPU = 8 * WHOLE


class _Scored(abc.ABC):
    """A policy that is a score per node; a share takes the GPU with the least left."""

    def __init__(self, state: State, rank: Ints) -> None:
        self._state = state
        self._scores = base.Scores(state, rank, self._score)

    def choose(self, task: Task, among: NDArray[np.bool_] | None = None) -> base.Choice | None:
        """See `base.Policy`."""
        return self._scores.choose(task, among)

    @abc.abstractmethod
    def _score(self, task: Task, nodes: Ints) -> tuple[Ints, Ints]:
        """As `base.Scores` calls it: (scores, GPUs), one of each per node of ``nodes``."""

    def _gpus(self, task: Task, nodes: Ints) -> Ints:
        return base.tightest_gpu(self._state.gpu[nodes], max(task.share, 1))


class DotProduct(_Scored):
    """Least product of what is free and what is asked."""

    def _score(self, task: Task, nodes: Ints) -> tuple[Ints, Ints]:
        state = self._state
        product = state.cpu[nodes] / CPU * (task.cpu / CPU) + state.free[nodes] / GPU * (task.demand / GPU)
        return (100 * (1 - product / 2)).astype(np.int64), self._gpus(task, nodes)


class Packing(_Scored):
    """Fill GPUs in use first, then nodes in use, then open a node; CPU-only work goes anywhere."""

    def _score(self, task: Task, nodes: Ints) -> tuple[Ints, Ints]:
        state = self._state
        if not task.gpus:
            return np.zeros(len(nodes), dtype=np.int64), np.zeros(len(nodes), dtype=np.int64)
        gpu, whole, count = state.gpu[nodes], state.whole[nodes], state.topology.gpus[nodes]
        fullest = np.sort(np.where(gpu >= task.share, gpu, WHOLE + 1), axis=1)[:, : task.gpus]
        untouched = (fullest == WHOLE).sum(axis=1)
        # The artifact counts free share in percent of a GPU, and divides by ten times what a score point is.
        used = np.maximum(100 - fullest.sum(axis=1) // 10 // 10, 50)
        score = np.where(untouched > 0, np.maximum(50 - untouched, 33), used)
        opened = whole == count
        return np.where(opened, np.maximum(33 - whole, whole), score), self._gpus(task, nodes)


class Clustering(_Scored):
    """Like with like: shares with shares, pairs with pairs."""

    def __init__(self, state: State, rank: Ints) -> None:
        super().__init__(state, rank)
        self._held: Ints = np.zeros((len(rank), 2 + state.topology.width), dtype=np.int64)
        """(n, kinds) tasks of each kind on each node."""

    def choose(self, task: Task, among: NDArray[np.bool_] | None = None) -> base.Choice | None:
        """See `base.Policy`."""
        choice = super().choose(task, among)
        if choice is not None and task.gpus:
            self._held[choice.node, _kind(task)] += 1
        return choice

    def _score(self, task: Task, nodes: Ints) -> tuple[Ints, Ints]:
        if not task.gpus:
            return np.zeros(len(nodes), dtype=np.int64), np.zeros(len(nodes), dtype=np.int64)
        held = self._held[nodes] > 0
        same, kinds = held[:, _kind(task)], held.sum(axis=1)
        base_score = np.select([same & (kinds == 1), same, kinds == 0], [75, 50, 25], 0)
        return base_score + 25 * (GPU - self._state.free[nodes]) // GPU, self._gpus(task, nodes)


def _kind(task: Task) -> int:
    """0 for a share, else the number of GPUs."""
    return 0 if task.share < WHOLE else task.gpus


def _fitting(keys: Ints, among: NDArray[np.bool_] | None) -> Ints:
    fits = keys != base.OUT
    return np.flatnonzero(fits if among is None else fits & among)


class BestFit:
    """Least left over of CPU and GPU, stretched to 0..100 between the nodes that fit."""

    def __init__(self, state: State, rank: Ints) -> None:
        self._state = state
        self._rank = rank
        self._scores = base.Scores(state, rank, self._fit)

    def _fit(self, task: Task, nodes: Ints) -> tuple[Ints, Ints]:
        return np.zeros(len(nodes), dtype=np.int64), base.tightest_gpu(self._state.gpu[nodes], max(task.share, 1))

    def choose(self, task: Task, among: NDArray[np.bool_] | None = None) -> base.Choice | None:
        """See `base.Policy`."""
        state = self._state
        entry = self._scores.keys(task)
        nodes = _fitting(entry.keys, among)
        if not len(nodes):
            return None
        left = 0.5 * (state.cpu[nodes] - task.cpu) / CPU + 0.5 * (state.free[nodes] - task.demand) / GPU
        score = (100 * (1 - left)).astype(np.int64)
        lowest, highest = score.min(), score.max()
        if highest > lowest:
            score = (score - lowest) * 100 // (highest - lowest)
        best = nodes[(score * len(self._rank) - self._rank[nodes]).argmax()]
        return base.place(state, task, int(best), int(entry.gpu[best]))


class Random:
    """Any node that fits, any GPU that fits."""

    def __init__(self, state: State, rank: Ints, generator: np.random.Generator) -> None:
        self._state = state
        self._generator = generator
        self._scores = base.Scores(state, rank, self._fit)

    def _fit(self, task: Task, nodes: Ints) -> tuple[Ints, Ints]:
        zeros = np.zeros(len(nodes), dtype=np.int64)
        return zeros, zeros

    def choose(self, task: Task, among: NDArray[np.bool_] | None = None) -> base.Choice | None:
        """See `base.Policy`."""
        nodes = _fitting(self._scores.keys(task).keys, among)
        if not len(nodes):
            return None
        node = int(self._generator.choice(nodes))
        gpus = np.flatnonzero(self._state.gpu[node] >= max(task.share, 1))
        if task.gpus == 0:
            return base.Choice(node, ())
        picked = self._generator.choice(gpus, task.gpus, replace=False)
        return base.Choice(node, tuple(sorted(int(gpu) for gpu in picked)))


RIVALS: dict[str, Callable[[State, Ints, np.random.Generator], base.Policy]] = {
    "random": Random,
    "dot-product": lambda state, rank, _: DotProduct(state, rank),
    "clustering": lambda state, rank, _: Clustering(state, rank),
    "packing": lambda state, rank, _: Packing(state, rank),
    "best-fit": lambda state, rank, _: BestFit(state, rank),
}
"""Name → factory, in the order of the paper's tables."""
