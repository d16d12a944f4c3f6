"""GPUs allocated on the 17 openb traces: ours against FGD and the five policies it was published against.

Traces: LOCKSTEP_SAMPLES/traces/openb. Runs are kept (cache/bench) and made once per code; a whole
series is about an hour of CPU. LOCKSTEP_BENCH_SEEDS limits the seeds (default 10, quick: 1 trace, 1 seed).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.rows import Row
from lockstep.base import errors, settings
from placement.plans import bound
from placement.policies import rivals
from placement.simulate import openb, openb_runs
from placement.tasks import Workload, count

__all__ = ["rows"]

T95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""Student's t at 95 %, two-sided, by number of paired runs."""


def rows(quick: bool) -> Iterator[Row]:
    """Per trace: ours beside FGD of the same runs, the gap closed, then each rival; the means at the end."""
    samples = os.environ.get("LOCKSTEP_SAMPLES")
    if not samples:
        raise errors.InputError("LOCKSTEP_SAMPLES names no folder", place="LOCKSTEP_SAMPLES")
    folder = Path(samples) / "traces" / "openb"
    runs = openb_runs.Runs(settings.load().cache / "bench" / "placement_openb.jsonl", folder)
    seeds = openb_runs.SEEDS[: 1 if quick else int(os.environ.get("LOCKSTEP_BENCH_SEEDS", "10"))]
    traces = ["default"] if quick else openb.trace_names(folder)
    fleet, gaps = openb.load_fleet(folder), []
    for trace in traces:
        ours, theirs = np.array(runs.series(trace, "ours", seeds)), np.array(runs.series(trace, "fgd", seeds))
        workload = Workload.counted(count(openb.load_trace(folder, trace).tasks))
        limit = bound.allocation(fleet, workload)
        gaps.append(100 * float((ours - theirs).mean() / (limit - theirs.mean())))
        yield Row(trace, "alloc", "%", round(float(ours.mean()), 3), round(float(theirs.mean()), 3), "FGD")
        yield Row(
            f"{trace} paired difference ± {interval(ours - theirs):.2f}", "alloc", "%", float((ours - theirs).mean())
        )
        yield Row(f"{trace} bound", "alloc", "%", limit)
        yield Row(trace, "gap", "%", gaps[-1])
    yield Row(f"mean of {len(traces)} traces, {len(seeds)} seeds", "gap", "%", float(np.mean(gaps)))
    for rival in rivals.RIVALS:
        for trace in traces if not quick else []:
            mean = float(np.mean(runs.series(trace, rival, seeds)))
            yield Row(trace, "alloc", "%", float(np.mean(runs.series(trace, "ours", seeds))), mean, rival)
    records = [runs.get(trace, "ours", seed) for trace in traces for seed in seeds]
    decisions = sum(record.decisions for record in records)
    yield Row(
        "decisions per CPU second, plans apart", "rate", "1/s", decisions / sum(r.seconds - r.planning for r in records)
    )


def interval(differences: np.ndarray) -> float:
    """Half width of the 95 % interval of a mean of paired differences; infinite for one run."""
    number = len(differences)
    if number < 2:
        return math.inf
    return T95[number] * float(differences.std(ddof=1)) / math.sqrt(number)
