from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lockstep.base import errors
from placement.ledger import records, reservations, stores
from placement.ledger.records import Capacity, Grant, NodeGrant, State


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class _Bench:
    """A ledger over memory with a clock that tests move."""

    def __init__(self, capacities: dict[str, Capacity] | None = None) -> None:
        self.clock = _Clock()
        self.store = stores.Memory()
        self.ledger = reservations.Ledger(self.store, self.clock, capacities)

    async def states(self, claim: str) -> dict[str, State]:
        found = {}
        for domain in await self.store.domains():
            record, _ = await self.store.read(domain)
            if claim in record.holds:
                found[domain] = record.holds[claim].state
        return found


def _part(node: str, *gpus: int, share: int = 1000, slices: int = 0, **more: Any) -> tuple[NodeGrant, ...]:
    return (NodeGrant(node, tuple(Grant(f"{node}/gpu{gpu}", share, slices) for gpu in gpus), **more),)


def _run(play: Callable[[_Bench], Coroutine[Any, Any, None]], **more: Any) -> None:
    asyncio.run(play(_Bench(**more)))


def test_a_device_is_held_once() -> None:
    async def play(bench: _Bench) -> None:
        await bench.ledger.reserve("a", {"r1": _part("n1", 0, 1)}, "p")
        with pytest.raises(reservations.NotFreeError, match="n1/gpu1: held by another claim"):
            await bench.ledger.reserve("b", {"r1": _part("n1", 1, 2)}, "p")
        await bench.ledger.reserve("c", {"r1": _part("n1", 2, 3)}, "p")

    _run(play)


def test_shares_of_a_gpu_add_up_to_one() -> None:
    async def play(bench: _Bench) -> None:
        await bench.ledger.reserve("a", {"r1": _part("n1", 0, share=600)}, "p")
        await bench.ledger.reserve("b", {"r1": _part("n1", 0, share=400)}, "p")
        with pytest.raises(reservations.NotFreeError):
            await bench.ledger.reserve("c", {"r1": _part("n1", 0, share=1)}, "p")

    _run(play)


def test_mig_instances_share_a_gpu_only_where_their_slices_do_not_meet() -> None:
    async def play(bench: _Bench) -> None:
        await bench.ledger.reserve("a", {"r1": _part("n1", 0, share=500, slices=0b00001111)}, "p")
        with pytest.raises(reservations.NotFreeError):
            await bench.ledger.reserve("b", {"r1": _part("n1", 0, share=250, slices=0b00001100)}, "p")
        with pytest.raises(reservations.NotFreeError):
            await bench.ledger.reserve("c", {"r1": _part("n1", 0, share=250)}, "p")
        await bench.ledger.reserve("d", {"r1": _part("n1", 0, share=250, slices=0b00110000)}, "p")

    _run(play)


def test_a_node_has_one_compute_domain_channel_and_finite_cpu() -> None:
    async def play(bench: _Bench) -> None:
        await bench.ledger.reserve("a", {"r1": _part("n1", 0, channel=True, cpu=6000)}, "p")
        with pytest.raises(reservations.NotFreeError, match="channel is taken"):
            await bench.ledger.reserve("b", {"r1": _part("n1", 1, channel=True)}, "p")
        with pytest.raises(reservations.NotFreeError, match="not enough cpu left"):
            await bench.ledger.reserve("c", {"r1": _part("n1", 1, cpu=3000)}, "p")

    _run(play, capacities={"n1": Capacity(8000, 1000, 1)})


def test_parts_of_one_gpu_are_shared_in_one_way() -> None:
    async def play(bench: _Bench) -> None:
        def part(way: str) -> tuple[NodeGrant, ...]:
            return (NodeGrant("n1", (Grant("n1/gpu0", 300, 0, way),)),)

        await bench.ledger.reserve("a", {"r1": part("mps")}, "p")
        with pytest.raises(reservations.NotFreeError):
            await bench.ledger.reserve("b", {"r1": part("time-slicing")}, "p")
        await bench.ledger.reserve("c", {"r1": part("mps")}, "p")

    _run(play)


@pytest.mark.parametrize(
    ("there", "asked", "reason"),
    [
        ({"tenant": "a", "exclusive": True}, {"tenant": "b"}, "another tenant is there"),
        ({"tenant": "a"}, {"tenant": "b", "exclusive": True}, "another tenant is there"),
        ({"tenant": "a", "exclusive": True}, {"tenant": "a"}, None),
        ({"tenant": "a"}, {"tenant": "b"}, None),
        ({"sole": True}, {}, "wants the whole node"),
        ({}, {"sole": True}, "wants the whole node"),
    ],
)
def test_who_wants_to_be_alone_is_alone_at_commit_too(
    there: dict[str, Any], asked: dict[str, Any], reason: str | None
) -> None:
    async def play(bench: _Bench) -> None:
        await bench.ledger.reserve("a", {"r1": _part("n1", 0, **there)}, "p")
        if reason is None:
            await bench.ledger.reserve("b", {"r1": _part("n1", 1, **asked)}, "p")
            return
        with pytest.raises(reservations.NotFreeError, match=reason):
            await bench.ledger.reserve("b", {"r1": _part("n1", 1, **asked)}, "p")

    _run(play)


def test_one_reservation_that_names_a_device_twice_is_refused() -> None:
    async def play(bench: _Bench) -> None:
        with pytest.raises(reservations.NotFreeError):
            await bench.ledger.reserve("a", {"r1": (*_part("n1", 0), *_part("n1", 0))}, "p")

    _run(play)


def test_a_gang_over_two_domains_is_all_or_nothing() -> None:
    async def play(bench: _Bench) -> None:
        await bench.ledger.reserve("other", {"r2": _part("m1", 0)}, "p")
        with pytest.raises(reservations.NotFreeError):
            await bench.ledger.reserve("gang", {"r1": _part("n1", 0), "r2": _part("m1", 0)}, "p")
        assert await bench.states("gang") == {}
        await bench.ledger.reserve("again", {"r1": _part("n1", 0)}, "p")

    _run(play)


def test_the_commit_asks_what_the_decision_asked() -> None:
    async def play(bench: _Bench) -> None:
        def sick(record: records.Record, wanted: object) -> records.Refusal:
            return records.Refusal("n1", "drained since")

        with pytest.raises(reservations.NotFreeError, match="drained since"):
            await bench.ledger.reserve("a", {"r1": _part("n1", 0)}, "p", also=sick)

    _run(play)


def test_an_unbound_hold_ends_at_its_deadline_and_a_late_bind_is_refused() -> None:
    async def play(bench: _Bench) -> None:
        epochs = await bench.ledger.reserve("a", {"r1": _part("n1", 0)}, "p", seconds=5)
        bench.clock.now = 4.9
        assert await bench.ledger.expire("r1") == []
        bench.clock.now = 5.0
        assert await bench.ledger.expire("r1") == ["a"]
        with pytest.raises(reservations.StaleEpochError):
            await bench.ledger.confirm("a", epochs)
        await bench.ledger.reserve("b", {"r1": _part("n1", 0)}, "p")
        with pytest.raises(reservations.StaleEpochError):
            await bench.ledger.confirm("a", epochs)

    _run(play)


def test_a_late_bind_that_comes_before_the_expiry_wins() -> None:
    async def play(bench: _Bench) -> None:
        epochs = await bench.ledger.reserve("a", {"r1": _part("n1", 0)}, "p", seconds=5)
        bench.clock.now = 60.0
        await bench.ledger.confirm("a", epochs)
        assert await bench.ledger.expire("r1") == []
        assert await bench.states("a") == {"r1": State.BOUND}

    _run(play)


def test_only_the_holders_epoch_may_release() -> None:
    async def play(bench: _Bench) -> None:
        first = await bench.ledger.reserve("a", {"r1": _part("n1", 0)}, "p")
        await bench.ledger.release("a", first)
        second = await bench.ledger.reserve("a", {"r1": _part("n1", 0)}, "p")
        with pytest.raises(reservations.StaleEpochError):
            await bench.ledger.release("a", first)
        assert await bench.states("a") == {"r1": State.HELD}
        await bench.ledger.release("a", second)
        await bench.ledger.release("a", second)
        assert await bench.states("a") == {}

    _run(play)


def test_a_forced_pod_deletion_frees_nothing_before_the_node_has_let_go() -> None:
    async def play(bench: _Bench) -> None:
        epochs = await bench.ledger.reserve("a", {"r1": _part("n1", 0)}, "p")
        await bench.ledger.confirm("a", epochs)
        assert await bench.ledger.vacate("r1", "a", "n1") is False
        await bench.ledger.release("a", epochs)
        with pytest.raises(reservations.NotFreeError):
            await bench.ledger.reserve("b", {"r1": _part("n1", 0)}, "p")
        assert await bench.ledger.vacate("r1", "a", "n1") is True
        await bench.ledger.reserve("b", {"r1": _part("n1", 0)}, "p")

    _run(play)


def test_a_gang_that_drains_in_one_domain_drains_in_all_and_leaves_no_mark() -> None:
    async def play(bench: _Bench) -> None:
        parts = {"r1": _part("n1", 0), "r2": _part("m1", 0)}
        epochs = await bench.ledger.reserve("a", parts, "p")
        await bench.ledger.confirm("a", epochs)
        # The planner dies after its first write: only r1 knows that the gang drains.
        record, version = await bench.store.read("r1")
        await bench.store.replace(records.moved(record, "a", State.DRAINING), version)
        assert await bench.ledger.vacate("r1", "a", "n1")
        await bench.ledger.expire("r2")
        assert await bench.states("a") == {"r1": State.DRAINING, "r2": State.DRAINING}
        assert await bench.ledger.vacate("r2", "a", "m1")
        await bench.ledger.expire("r1")
        assert await bench.states("a") == {}

    _run(play)


def test_a_gang_whose_planner_died_while_binding_is_bound_everywhere() -> None:
    async def play(bench: _Bench) -> None:
        parts = {"r1": _part("n1", 0), "r2": _part("m1", 0)}
        await bench.ledger.reserve("a", parts, "p", seconds=5)
        record, version = await bench.store.read("r1")
        await bench.store.replace(records.moved(record, "a", State.BOUND), version)
        bench.clock.now = 60.0
        await bench.ledger.expire("r2")
        assert await bench.states("a") == {"r1": State.BOUND, "r2": State.BOUND}

    _run(play)


def test_rebuilding_believes_the_api_and_names_what_it_cannot_explain() -> None:
    async def play(bench: _Bench) -> None:
        for claim, gpu in (("unknown", 0), ("known", 1)):
            epochs = await bench.ledger.reserve(claim, {"r1": _part("n1", gpu)}, "p")
            await bench.ledger.confirm(claim, epochs)
        await bench.ledger.reserve("held", {"r1": _part("n1", 2)}, "p")
        api = [
            reservations.Bound("known", {"r1": _part("n1", 1)}),
            reservations.Bound("side-door", {"r1": _part("n1", 1)}),
            reservations.Bound("lost", {"r1": _part("n1", 3)}),
        ]
        done = await bench.ledger.rebuild(api)
        assert done.bound == ("known", "lost", "side-door")
        assert done.draining == ("unknown",)
        assert done.conflicts == ("side-door",)
        assert await bench.states("held") == {"r1": State.HELD}
        assert await bench.states("lost") == {"r1": State.BOUND}

    _run(play)


def test_a_write_over_an_older_version_is_a_conflict() -> None:
    async def play(bench: _Bench) -> None:
        record, version = await bench.store.read("r1")
        await bench.store.replace(record, version)
        with pytest.raises(stores.Conflict):
            await bench.store.replace(record, version)

    _run(play)


def test_an_empty_reservation_is_bad_input() -> None:
    async def play(bench: _Bench) -> None:
        with pytest.raises(errors.InputError):
            await bench.ledger.reserve("a", {}, "p")

    _run(play)
