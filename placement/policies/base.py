"""What a packing policy is, and the rules they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from placement.state import State
from placement.tasks import Task
from placement.topology import WHOLE, Ints

__all__ = ["Choice", "Policy", "Scores", "batch_fits", "whole_gpus"]

OUT = -1
"""Key of a node that cannot host the task."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a task goes."""

    node: int
    gpus: tuple[int, ...]


class Policy(Protocol):
    """Chooses; the caller takes. Work-conserving: None only if no node can host the task."""

    def choose(self, task: Task, among: NDArray[np.bool_] | None = None) -> Choice | None:
        """The place for ``task`` in the state that the policy was made with; ``among`` (n,) limits the nodes."""


def batch_fits(state: State, task: Task, nodes: Ints, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(m,) which of ``nodes`` can host ``task``: CPU, memory, accelerator model, enough GPUs with enough left."""
    fits = (state.cpu[nodes] >= task.cpu) & (state.memory[nodes] >= task.memory) & allowed[nodes]
    if task.gpus == 1:
        fits &= state.gpu[nodes].max(axis=1) >= task.share
    elif task.gpus:
        fits &= state.whole[nodes] >= task.gpus
    return fits


def whole_gpus(state: State, node: int, count: int) -> tuple[int, ...]:
    """The first ``count`` untouched GPUs of a node, in index order."""
    return tuple(np.flatnonzero(state.gpu[node] == WHOLE)[:count].tolist())


@dataclass(slots=True)
class _Cached:
    """One kind of task: what each node is worth to it, as of `seen` changes."""

    keys: Ints
    """(n,) score and tie rank in one number, OUT where the task does not fit; highest wins."""
    gpu: Ints
    """(n,) GPU for a share."""
    allowed: NDArray[np.bool_]
    seen: int = 0


@dataclass(slots=True)
class Scores:
    """Scores per kind of task, kept between decisions; only changed nodes are scored again.

    ``score(task, nodes)`` returns whole-number scores (m,) and a GPU (m,) for nodes that
    fit. Equal scores go to the lowest ``rank``: a fixed random node order per run, which is
    what the published scheduler's name tie-break amounts to (and is worth 5 points).
    """

    state: State
    rank: Ints
    """(n,) place of each node in the tie order; a permutation."""
    score: Callable[[Task, Ints], tuple[Ints, Ints]]
    _kinds: dict[Task, _Cached] = field(default_factory=dict)

    def keys(self, task: Task) -> _Cached:
        """The up-to-date entry of ``task``."""
        changes = self.state.changes
        entry = self._kinds.get(task)
        if entry is None:
            count = len(self.rank)
            entry = _Cached(np.full(count, OUT), np.zeros(count, dtype=np.int64), task.allowed(self.state.topology))
            self._kinds[task] = entry
            self._refresh(task, entry, np.arange(count))
        elif entry.seen < len(changes):
            self._refresh(task, entry, np.array(list(set(changes[entry.seen :]))))
        entry.seen = len(changes)
        return entry

    def _refresh(self, task: Task, entry: _Cached, nodes: Ints) -> None:
        fits = batch_fits(self.state, task, nodes, entry.allowed)
        entry.keys[nodes[~fits]] = OUT
        nodes = nodes[fits]
        if len(nodes):
            scores, gpus = self.score(task, nodes)
            # Scores may be negative for no policy; the rank only breaks ties.
            entry.keys[nodes] = (scores + 1) * len(self.rank) - 1 - self.rank[nodes]
            entry.gpu[nodes] = gpus

    def choose(self, task: Task, among: NDArray[np.bool_] | None = None) -> Choice | None:
        """Highest score, lowest rank; ``among`` limits the nodes."""
        entry = self.keys(task)
        keys = entry.keys if among is None else np.where(among, entry.keys, OUT)
        node = int(keys.argmax())
        if keys[node] == OUT:
            return None
        return place(self.state, task, node, int(entry.gpu[node]))


def place(state: State, task: Task, node: int, gpu: int) -> Choice:
    """``task`` on ``node``; ``gpu`` is used for shares only."""
    if task.share == 0:
        return Choice(node, ())
    if task.share == WHOLE:
        return Choice(node, whole_gpus(state, node, task.gpus))
    return Choice(node, (gpu,))


def tightest_gpu(gpu: Ints, share: int) -> Ints:
    """(m,) per state the GPU with the least left that still holds ``share``; the first of equals."""
    result: Ints = np.where(gpu >= share, gpu, WHOLE + 1).argmin(axis=1)
    return result
