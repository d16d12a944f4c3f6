"""Plots of allocation and fragmentation against load, and of occupancy over time, as PNG or SVG files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lockstep.base import replacing
from placement.simulate.inflation import Run
from placement.simulate.jobs import Report
from placement.topology import Ints

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["inflation", "occupancy"]


def inflation(runs: Mapping[str, Run], path: Path) -> None:
    """One line per policy: GPUs allocated and fragment amount over arrived demand, all in % of capacity."""
    from matplotlib import figure

    canvas = figure.Figure(figsize=(9, 4), layout="constrained")
    left, right = canvas.subplots(1, 2)
    for name, run in runs.items():
        percent = np.arange(len(run.allocated))
        left.plot(percent, run.allocated, label=name)
        right.plot(percent, run.fragment, label=name)
    for axes, text in ((left, "allocated, % of GPUs"), (right, "fragments, % of GPUs")):
        axes.set_xlabel("arrived, % of GPUs")
        axes.set_ylabel(text)
        axes.grid(alpha=0.3)
        axes.legend()
    _write(canvas, path)


def occupancy(reports: Mapping[str, Report], path: Path) -> None:
    """One line per run: GPUs in use over time; in use, and free in pieces, against what is asked for."""
    from matplotlib import figure

    canvas = figure.Figure(figsize=(13, 4), layout="constrained")
    left, *right = canvas.subplots(1, 3)
    for name, report in reports.items():
        times = [time / 3600 for time, _ in report.series]
        left.step(times, [used for _, used in report.series], where="post", label=name)
        loads = np.array(report.loads).reshape(-1, 3)
        for axes, column in zip(right, (1, 2), strict=True):
            axes.plot(*_per_percent(loads[:, 0], loads[:, column]), marker=".", label=name)
    left.set_xlabel("hours")
    left.set_ylabel("in use, % of GPUs")
    for axes, text in zip(right, ("in use, % of GPUs", "free in pieces, % of GPUs"), strict=True):
        axes.set_xlabel("asked for by what runs and waits, % of GPUs")
        axes.set_ylabel(text)
    for axes in (left, *right):
        axes.grid(alpha=0.3)
        axes.legend()
    _write(canvas, path)


def _per_percent(load: NDArray[np.float64], values: NDArray[np.float64]) -> tuple[Ints, NDArray[np.float64]]:
    """Mean of ``values`` (k,) at each whole percent of ``load`` (k,) that occurred."""
    percents, place = np.unique(np.rint(load).astype(np.int64), return_inverse=True)
    means: NDArray[np.float64] = np.bincount(place, weights=values) / np.bincount(place)
    return percents, means


def _write(canvas: Figure, path: Path) -> None:
    """Whole or not at all."""
    with replacing.opened(path, mode=0o644) as file:
        canvas.savefig(file, format=path.suffix.lstrip(".").lower())
