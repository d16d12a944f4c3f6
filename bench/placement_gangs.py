"""Gang decisions: every rack scored, all gates on; single decisions; one gang over 100,000 GPUs.

The published rates (kube-scheduler, PR 139859 and 140611) include writes to the API server and score
about 5 of 50 racks; ours is the decision loop alone and scores all 50. Read them as the same work, not the same system.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.rows import Row
from lockstep.base import errors
from placement import audits, gates, headroom, occupancy, planner, requests, topology
from placement.health import board
from placement.policies import beside
from placement.simulate import fleets, inflation, openb, openb_runs
from placement.tasks import Workload, count
from placement.telemetry.samples import Samples

__all__ = ["full_view", "rows"]

CASES = ((4, 750, 630.0), (4, 1500, 574.0), (4, 2250, 547.0), (1000, 3, 975.0), (1000, 6, 625.0), (1000, 9, 642.0))
"""Pods per gang, gangs, published pods per second."""


def rows(quick: bool) -> Iterator[Row]:
    """The six cases, then the latency of one 72-GPU gang."""
    for size, gangs, published in CASES[:1] if quick else CASES:
        yield Row(f"{gangs} gangs of {size}", "rate", "1/s", _rate(size, gangs), published, "kube-scheduler")
    yield from _single(("fgd",) if quick else ("fgd", "ours"))
    fleet = fleets.nvl72(100 if quick else 1389)
    yield Row(f"72-GPU gang on {int(fleet.gpus.sum())} GPUs, p99", "latency", "ms", _p99(fleet, 20 if quick else 200))


def _single(policies: tuple[str, ...]) -> Iterator[Row]:
    """Decisions per CPU second: every pod of the default trace's inflation through all gates, one by one."""
    samples_folder = os.environ.get("LOCKSTEP_SAMPLES")
    if not samples_folder:
        raise errors.InputError("LOCKSTEP_SAMPLES names no folder", place="LOCKSTEP_SAMPLES")
    folder = Path(samples_folder) / "traces" / "openb"
    fleet, trace = openb.load_fleet(folder), openb.load_trace(folder, "default")
    workload = Workload.counted(count(trace.tasks))
    for policy in policies:
        generator = np.random.default_rng(42)
        tasks = inflation.arrivals(trace.tasks, fleet.capacity, generator)
        view, samples = full_view(fleet)
        made = openb_runs.POLICIES[policy](
            view.occupancy.state, workload, inflation.tie_order(len(fleet.names), generator), generator
        )
        planning = planner.Planner(view, samples, made)
        wishes = [requests.of_task(f"t{number}", task) for number, task in enumerate(tasks)]
        placed, begun = 0, time.process_time()
        for number, request in enumerate(wishes):
            decision = planning.plan(request, 1000.0 + number / 10_000)
            if decision.placed:
                planning.commit(decision)
                placed += 1
        spent = time.process_time() - begun
        plans = made.counts.seconds if isinstance(made, beside.Between) else 0.0
        yield Row(f"single pods, {policy}, plans apart", "rate", "1/s", len(wishes) / (spent - plans))
        yield Row(f"single pods, {policy}: placed", "count", "1", placed)


def full_view(fleet: topology.Topology) -> tuple[gates.View, Samples]:
    """All gates on: audits, events and fresh telemetry of every GPU."""
    samples = Samples(fleet)
    samples.at[:] = 1000.0
    samples.value[:] = 40.0
    samples.first[:] = 0.0
    samples.offset[:] = 0.0
    view = gates.View(
        fleet,
        occupancy.Occupancy(fleet),
        board.Board(fleet),
        audits.Audits.trusted(fleet),
        samples.fresh(1000.0),
        headroom.Headroom(fleet).of_gpus(1000.0),
    )
    return view, samples


def _rate(size: int, gangs: int) -> float:
    """Pods placed per CPU second: 5,000 nodes in 50 racks, one CPU per pod."""
    fleet = topology.build(
        [
            topology.NodeSpec(f"n{number:04d}", 32_000, 128 * 1024, 0, "none", f"r{number // 100:02d}", position=number)
            for number in range(5000)
        ]
    )
    view, samples = full_view(fleet)
    planning = planner.Planner(view, samples)
    begun, placed = time.process_time(), 0
    for gang in range(gangs):
        member = requests.Member(gpus=0, count=size, share=0, cpu=1000, memory=500)
        decision = planning.plan(requests.Request(f"g{gang}", (member,), need=requests.Need.SAME_RACK), 1000.0)
        if decision.placed:
            planning.commit(decision)
            placed += size
    return placed / (time.process_time() - begun)


def _p99(fleet: topology.Topology, number: int) -> float:
    """CPU milliseconds of one decision; gangs come and go so that about half of the domains are full."""
    view, samples = full_view(fleet)
    planning = planner.Planner(view, samples)
    generator = np.random.default_rng(1)
    spent: list[float] = []
    for turn in range(number):
        member = requests.Member(gpus=4, count=18, cpu=32_000, memory=512 * 1024)
        request = requests.Request(f"g{turn}", (member,), need=requests.Need.SAME_DOMAIN)
        begun = time.process_time()
        decision = planning.plan(request, 1000.0 + 0.01 * turn)
        spent.append(1000 * (time.process_time() - begun))
        planning.commit(decision)
        if generator.random() < 0.3:
            planning.release(str(generator.choice(list(planning.running))))
    return float(np.percentile(spent, 99))
