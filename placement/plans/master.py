"""The linear programme over node contents: how many nodes of each group take which content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse

from lockstep.base import errors

__all__ = ["Problem", "Solution", "solve"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Problem:
    """What all rounds of column generation share."""

    nodes: Floats
    """(groups,) nodes per group."""
    need: Floats
    """(kinds,) expected pieces of work that will come."""
    value: Floats
    """(kinds,) worth of placing one."""
    even: float = 0.0
    """Worth of the evenly accepted part of all kinds, per unit of their total demand."""
    floor: float | None = None
    """Part of every kind (of ``floored``) that must be accepted; None: decided by ``even``."""
    floored: NDArray[np.bool_] | None = None
    """(kinds,) kinds that even acceptance and floor are about; None: all."""


@dataclass(frozen=True, slots=True)
class Solution:
    """An optimum over the columns given."""

    worth: float
    columns: Floats
    """(columns,) nodes per column."""
    accepted: Floats
    """(kinds,)"""
    evenly: float
    """Part of every kind that is accepted at least."""
    prices: Floats
    """(kinds,) what one more place for the kind would be worth."""
    rents: Floats
    """(groups,) what one more node of the group would be worth."""


def solve(problem: Problem, groups: Sequence[int], contents: Sequence[dict[int, int]]) -> Solution:
    """Maximise the worth placed. Column ``j`` is content ``contents[j]`` on a node of group ``groups[j]``.

    Raises `errors.EngineError` when HiGHS finds no optimum, which a floor can cause.
    """
    node_count, kind_count, column_count = len(problem.nodes), len(problem.need), len(contents)
    wanted = np.flatnonzero((problem.need > 0) & (True if problem.floored is None else problem.floored))
    row, column, entry = [], [], []
    for index, (group, content) in enumerate(zip(groups, contents, strict=True)):
        row.append(group)
        column.append(index)
        entry.append(1.0)
        for kind, number in content.items():
            row.append(node_count + kind)
            column.append(index)
            entry.append(-float(number))
    kinds = np.arange(kind_count)
    last = column_count + kind_count
    floors = node_count + kind_count + np.arange(len(wanted))
    rows = np.concatenate([row, node_count + kinds, floors, floors])
    columns = np.concatenate([column, column_count + kinds, np.full(len(wanted), last), column_count + wanted])
    entries = np.concatenate([entry, np.ones(kind_count), problem.need[wanted], np.full(len(wanted), -1.0)])
    shape = (node_count + kind_count + len(wanted), last + 1)
    matrix = sparse.csr_matrix((entries, (rows, columns)), shape=shape)
    least, most = (0.0, 1.0) if problem.floor is None else (problem.floor, problem.floor)
    upper = np.concatenate([np.full(column_count, np.inf), problem.need, [most]])
    lower = np.concatenate([np.zeros(last), [least]])
    worth = problem.even * float(problem.need @ problem.value)
    found = optimize.linprog(
        -np.concatenate([np.zeros(column_count), problem.value, [worth]]),
        A_ub=matrix,
        b_ub=np.concatenate([problem.nodes, np.zeros(kind_count + len(wanted))]),
        bounds=np.column_stack([lower, upper]),
        method="highs",
    )
    if found.status != 0:
        raise errors.EngineError(f"no plan: {found.message}", place="HiGHS")
    marginals = -found.ineqlin.marginals
    return Solution(
        worth=-float(found.fun),
        columns=found.x[:column_count],
        accepted=found.x[column_count:last],
        evenly=float(found.x[last]),
        prices=np.maximum(marginals[node_count : node_count + kind_count], 0.0),
        rents=marginals[:node_count],
    )
