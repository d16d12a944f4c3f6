"""FGD: put each task where the fleet's expected fragmentation grows least."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placement.fragmentation import Fragmentation
from placement.policies import base
from placement.state import State
from placement.tasks import Task, Workload
from placement.topology import WHOLE, Ints

__all__ = ["Fgd"]

ROUNDING = 1e-9


class Fgd:
    """The published policy: whole-number scores, fixed random node order for ties."""

    def __init__(self, state: State, workload: Workload, rank: Ints) -> None:
        self._state = state
        self._fragmentation = Fragmentation(state.topology, workload)
        self.scores = base.Scores(state, rank, self._score)

    def choose(self, task: Task, among: NDArray[np.bool_] | None = None) -> base.Choice | None:
        """See `base.Policy`."""
        return self.scores.choose(task, among)

    def _score(self, task: Task, nodes: Ints) -> tuple[Ints, Ints]:
        state, fragments = self._state, self._fragmentation.of
        gpu, cpu, model = state.gpu[nodes], state.cpu[nodes], state.topology.model[nodes]
        before = fragments(gpu, cpu, model)
        after_cpu = cpu - task.cpu
        if task.share in (0, WHOLE):
            after = fragments(_without_whole(gpu, task.gpus), after_cpu, model)
            return _sigmoid(before - after), np.zeros(len(nodes), dtype=np.int64)
        # Every distinct GPU of every node is tried; of equal ones only the first, which also wins.
        width = gpu.shape[1]
        row, column = np.nonzero((gpu >= task.share) & ~_repeats(gpu))
        tried = gpu[row]
        tried[np.arange(len(row)), column] -= task.share
        after = fragments(tried, after_cpu[row], model[row])
        table = np.full((len(nodes), width), -1, dtype=np.int64)
        table[row, column] = _sigmoid(before[row] - after)
        best = table.argmax(axis=1)
        return table[np.arange(len(nodes)), best], best


def _sigmoid(gain: NDArray[np.float64]) -> Ints:
    """Whole part of 100 x sigmoid of the fragmentation avoided, in GPUs.

    `ROUNDING` makes no gain at all exactly 50: sums over batches of different shape differ
    in the last bit, and 49 instead of 50 would hand ties to chance (a point on CPU-heavy traces).
    """
    result: Ints = np.floor(100.0 / (1.0 + np.exp(-gain / WHOLE)) + ROUNDING).astype(np.int64)
    return result


def _without_whole(gpu: Ints, count: int) -> Ints:
    """``gpu`` with the first ``count`` untouched GPUs of each row taken."""
    if count == 0:
        return gpu
    whole = gpu == WHOLE
    return np.where(whole & (whole.cumsum(axis=1) <= count), 0, gpu)


def _repeats(gpu: Ints) -> NDArray[np.bool_]:
    """True where an earlier GPU of the row has as much left."""
    same = gpu[:, :, None] == gpu[:, None, :]
    repeats: NDArray[np.bool_] = np.tril(same, -1).any(axis=2)
    return repeats
