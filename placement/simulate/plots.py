"""Plots of allocation and fragmentation against load, and of occupancy over time, as PNG or SVG files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from placement.simulate.inflation import Run
from placement.simulate.jobs import Report

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
    canvas.savefig(path)


def occupancy(reports: Mapping[str, Report], path: Path) -> None:
    """One line per run: GPUs in use over time."""
    from matplotlib import figure

    canvas = figure.Figure(figsize=(9, 4), layout="constrained")
    axes = canvas.subplots()
    for name, report in reports.items():
        times = [time / 3600 for time, _ in report.series]
        axes.step(times, [used for _, used in report.series], where="post", label=name)
    axes.set_xlabel("hours")
    axes.set_ylabel("in use, % of GPUs")
    axes.grid(alpha=0.3)
    axes.legend()
    canvas.savefig(path)
