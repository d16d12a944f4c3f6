"""What is left beside large blocks in a domain of 18, how Slurm's block rule fills it, and what moving would allow."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement import planner, requests
from placement.requests import Member, Need, Request
from placement.simulate import blocks, fleets, jobs, shapes

HOUR = 3600.0


def _ask(name: str, count: int, segment: int = 1, need: Need = Need.SAME_DOMAIN) -> Request:
    return Request(name, (Member(gpus=4, count=count),), need=need, segment=segment)


def _played(work: list[jobs.Job], make: Any = planner.Planner, domains: int = 2) -> jobs.Report:
    return jobs.replay(make(fleets.quiet_view(fleets.nvl72(domains))), work)


def test_the_remainder_is_what_is_up_beside_a_large_block_and_counts_when_used() -> None:
    big, small = jobs.Job(_ask("big", 16), 0.0, HOUR), jobs.Job(_ask("small", 1), 0.0, HOUR)
    last = jobs.Job(_ask("last", 1), HOUR / 2, 1.0)
    assert _played([big, small, last], domains=1).remainder_used == pytest.approx(50.0)
    assert _played([big, last], domains=1).remainder_used == 0.0
    assert _played([small, last], domains=1).remainder_used == 0.0, "without a large block there is no remainder"


@pytest.mark.parametrize("make", [planner.Planner, blocks.SlurmBlock])
def test_small_work_goes_beside_the_large_block(make: Any) -> None:
    work = [jobs.Job(_ask("big", 16), 0.0, 9 * HOUR), *(jobs.Job(_ask(f"s{n}", 1), 1.0, 9 * HOUR) for n in range(2))]
    assert _played([*work, jobs.Job(_ask("end", 18), HOUR, 1.0)], make).started == 4


def test_the_block_rule_takes_the_smallest_aggregate_and_keeps_segments_whole(nvl72: Any) -> None:
    fleet = nvl72(4)
    slurm = blocks.SlurmBlock(fleet.view)
    slurm.commit(slurm.plan(_ask("small", 3), 0.0))
    decision = slurm.plan(_ask("wide", 32, 16, Need.ANY), 0.0)
    domains = [int(fleet.topology.domain[item.node]) for item in decision.members]
    assert sorted(domains.count(domain) for domain in set(domains)) == [16, 16]
    assert set(domains) in ({0, 1}, {2, 3}), "adjacent base blocks of one aggregate"
    slurm.commit(decision)
    assert not slurm.plan(_ask("more", 64, 16, Need.ANY), 0.0).placed


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), load=st.sampled_from([0.5, 1.3, 2.0]))
def test_moving_at_will_holds_no_less_than_the_planner(seed: int, load: float) -> None:
    built = fleets.nvl72(3)
    work = shapes.mix(54, load, 12 * HOUR, seed=seed)
    work = [job for job in work if job.request.size <= 16 or job.request.size == 32] or [
        jobs.Job(_ask("one", 1), HOUR, HOUR)
    ]
    moved = blocks.moved_at_will(built, work, (), warm_up=0.0)
    assert 0.0 <= moved <= 100.0
    # Not a strict bound (lines may start other work), but never far below.
    assert moved >= _played(work, domains=3).occupancy - 8.0


def test_moving_at_will_packs_exactly_what_blocks_allow() -> None:
    built = fleets.nvl72(2)
    work = [jobs.Job(_ask("a", 16), 0.0, 9 * HOUR), jobs.Job(_ask("b", 16), 0.0, 9 * HOUR)]
    four = jobs.Job(
        requests.parse({"name": "c", "members": [{"gpus": 4, "count": 4}], "need": "same-domain"}), 0.0, HOUR
    )
    end = jobs.Job(_ask("end", 1), HOUR, 1.0)
    assert blocks.moved_at_will(built, [*work, end], (), warm_up=0.0) == pytest.approx(100 * 32 / 36)
    assert blocks.moved_at_will(built, [*work, four, end], (), warm_up=0.0) == pytest.approx(100 * 32 / 36)
