"""GPUs allocated on the 17 openb traces: ours against FGD and the five policies it was published against.

Traces: LOCKSTEP_SAMPLES/traces/openb, or those of LOCKSTEP_BENCH_TRACES. Runs are kept (cache/bench) and made
once per code; a whole series is some two hours of CPU. LOCKSTEP_BENCH_SEEDS limits the seeds (default 10, quick:
1 trace, 1 seed). Then what robustness costs: frequencies off by a third, frequencies learned, and departures.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bench.rows import Row
from lockstep.base import errors, settings
from placement.plans import bound
from placement.policies import rivals
from placement.simulate import openb, openb_departures, openb_runs
from placement.tasks import Workload, count

__all__ = ["rows"]

LOADS = ((1.1, False), (0.95, True))
"""With departures: demand over capacity, and whether work waits for a place or is dropped."""
ARRIVALS = 16_000
DEPARTING = ("default", "cpu250", "gpushare100", "gpuspec33")
"""Of the 17 traces those that are run with departures; of others' traces all that have times."""
WRONG_SEEDS, LEARNING_SEEDS, DEPARTING_SEEDS = 3, 1, 3
"""Runs per trace: those that learn make several plans, half a minute of CPU. The first trace departs on all seeds."""
LINE = (("waiting", "%"), ("delay", "s"), ("delay_p99", "s"))
T95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""Student's t at 95 %, two-sided, by number of paired runs."""


def rows(quick: bool) -> Iterator[Row]:
    """Per trace: ours beside FGD of the same runs, the gap closed, then each rival; the means at the end."""
    folder, records_at = _where()
    runs = openb_runs.Runs(records_at, folder)
    seeds = openb_runs.SEEDS[: 1 if quick else int(os.environ.get("LOCKSTEP_BENCH_SEEDS", "10"))]
    traces = openb.trace_names(folder)
    traces = traces[:1] if quick and "default" not in traces else ["default"] if quick else traces
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
    yield from _robustness(runs, [] if quick else traces, seeds)
    leaving = [trace for trace in DEPARTING if trace in traces] or [
        trace for trace in traces if openb.load_trace(folder, trace).departures
    ]
    departed = openb_departures.Runs(records_at.with_stem(f"{records_at.stem}-departures"), folder)
    yield from _departures(departed, [] if quick else leaving, seeds)
    for rival in rivals.RIVALS:
        for trace in traces if not quick else []:
            mean = float(np.mean(runs.series(trace, rival, seeds)))
            yield Row(trace, "alloc", "%", float(np.mean(runs.series(trace, "ours", seeds))), mean, rival)
    records = [runs.get(trace, "ours", seed) for trace in traces for seed in seeds]
    decisions = sum(record.decisions for record in records)
    yield Row(
        "decisions per CPU second, plans apart", "rate", "1/s", decisions / sum(r.seconds - r.planning for r in records)
    )


def _where() -> tuple[Path, Path]:
    """Folder of the traces and file of the records; other people's traces have a file of their own."""
    cache = settings.load().cache / "bench"
    given = os.environ.get("LOCKSTEP_BENCH_TRACES")
    if given:
        folder = Path(given).resolve()
        mark = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
        return folder, cache / f"placement_openb-{mark}.jsonl"
    samples = os.environ.get("LOCKSTEP_SAMPLES")
    if not samples:
        raise errors.InputError("LOCKSTEP_SAMPLES names no folder", place="LOCKSTEP_SAMPLES")
    return Path(samples) / "traces" / "openb", cache / "placement_openb.jsonl"


def _robustness(runs: openb_runs.Runs, traces: Sequence[str], seeds: Sequence[int]) -> Iterator[Row]:
    """The same wrong frequencies for both; then ours without any against FGD that is given them."""
    for ours, theirs, name, number in (
        ("ours-wrong", "fgd-wrong", "FGD, the same wrong frequencies", WRONG_SEEDS),
        ("ours-learning", "fgd", "FGD, given the frequencies", LEARNING_SEEDS),
    ):
        for trace in traces:
            mine, other = (np.array(runs.series(trace, policy, seeds[:number])) for policy in (ours, theirs))
            case = f"{trace} {ours} ± {interval(mine - other):.2f}"
            yield Row(case, "alloc", "%", float(mine.mean()), float(other.mean()), name)


def _departures(runs: openb_departures.Runs, traces: Sequence[str], seeds: Sequence[int]) -> Iterator[Row]:
    """A fleet in steady state, overloaded with work that is dropped, then well loaded with work that waits."""
    for trace in traces:
        for load, waits in LOADS:
            for ours, theirs, name in (
                ("ours", "fgd", "FGD"),
                ("ours", "fgd-mix", "FGD, given the mix present"),
                ("ours-no-lives", "fgd", "FGD"),
                ("ours-learning", "fgd", "FGD"),
            ):
                if trace != traces[0] and (ours, theirs) != ("ours", "fgd"):
                    continue
                number = len(seeds) if trace == traces[0] and (ours, theirs) == ("ours", "fgd") else DEPARTING_SEEDS
                mine, other = (
                    [runs.get(trace, policy, seed, load, ARRIVALS, waits=waits).steady for seed in seeds[:number]]
                    for policy in (ours, theirs)
                )
                for what, unit in (("allocated", "%"), ("fragment", "%"), *(LINE if waits else (("refused", "%"),))):
                    a, b = (np.array([steady[what] for steady in side]) for side in (mine, other))
                    case = f"{trace} at {load:.0%}, {ours}, {what} ± {interval(a - b):.2f}"
                    yield Row(case, "alloc" if unit == "%" else "wall", unit, float(a.mean()), float(b.mean()), name)


def interval(differences: np.ndarray) -> float:
    """Half width of the 95 % interval of a mean of paired differences; infinite for one run."""
    number = len(differences)
    if number < 2:
        return math.inf
    return T95[number] * float(differences.std(ddof=1)) / math.sqrt(number)
