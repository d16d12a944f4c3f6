"""Made-up work for NVL72 fleets: job sizes by GPU time, after published cluster traces."""

from __future__ import annotations

import dataclasses

import numpy as np

from placement.requests import Member, Need, Request
from placement.simulate.jobs import Job, Outage

__all__ = ["SIZES", "blind", "mix", "outages"]

SIZES = {1: 0.10, 2: 0.10, 4: 0.15, 8: 0.15, 16: 0.20, 32: 0.20, 64: 0.10}
"""Nodes of 4 GPUs → share of GPU time. AcmeTrace's and Helios' means (5.7 and 26.8 GPUs in Seren and Kalos, 3.7 in
Helios) hide that most GPU time belongs to the largest jobs, so sizes are drawn by GPU time."""
MEAN_SECONDS = 4 * 3600.0
REPAIR_SECONDS = 12 * 3600.0


def segment(nodes: int) -> int:
    """NVIDIA's advice for NVL72: 16 for jobs of 128 GPUs and more, 4 for 32 to 64 GPUs, 1 below."""
    if nodes >= 32:
        return 16
    return 4 if nodes >= 8 else 1


def mix(nodes: int, load: float, seconds: float, seed: int, fixed: int | None = None) -> list[Job]:
    """Jobs that ask for ``load`` x the GPU time of ``nodes`` nodes over ``seconds``.

    Segments follow `segment`, or are ``fixed`` for every job of at least that many nodes.
    """
    generator = np.random.default_rng(seed)
    sizes = np.array(list(SIZES))
    # Share of GPU time → share of jobs: a job of twice the size has twice the GPU time.
    weights = np.array(list(SIZES.values())) / sizes
    weights /= weights.sum()
    rate = load * nodes / (float(sizes @ weights) * MEAN_SECONDS)
    jobs, now, serial = [], 0.0, 0
    while (now := now + float(generator.exponential(1 / rate))) < seconds:
        size = int(generator.choice(sizes, p=weights))
        unit = segment(size) if fixed is None else min(fixed, size)
        need = Need.SAME_DOMAIN if size <= (16 if fixed is None else fixed) else Need.ANY
        request = Request(f"job-{serial}", (Member(gpus=4, count=size),), need=need, segment=unit)
        jobs.append(Job(request, now, float(generator.exponential(MEAN_SECONDS))))
        serial += 1
    return jobs


def blind(jobs: list[Job]) -> list[Job]:
    """The same jobs without any wish about topology: what a packer that does not see domains is given."""
    return [
        dataclasses.replace(job, request=dataclasses.replace(job.request, need=Need.ANY, segment=1)) for job in jobs
    ]


def outages(nodes: int, down: float, seconds: float, seed: int) -> list[Outage]:
    """Independent node failures so that on average a part ``down`` of the nodes is in repair."""
    generator = np.random.default_rng(seed)
    rate = down / (1 - down) / REPAIR_SECONDS
    found = []
    for node in range(nodes):
        # In steady state from the start: a part of the nodes begins broken.
        now = 0.0 if generator.random() < down else float(generator.exponential(1 / rate))
        while now < seconds:
            ends = now + float(generator.exponential(REPAIR_SECONDS))
            found.append(Outage(node, now, ends))
            now = ends + float(generator.exponential(1 / rate))
    return found
