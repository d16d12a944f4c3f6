from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement import headroom, topology
from placement.headroom import Headroom, Limits
from placement.health import policies
from placement.health.board import Board, Event
from placement.health.policies import Effect
from placement.telemetry.samples import Batch, Dropped, Samples
from placement.telemetry.signals import Signal
from placement.telemetry.windows import WIDTH, Windows


def _fleet(nodes: int = 10) -> topology.Topology:
    return topology.build([topology.NodeSpec(f"n{number}", 1, 1, 2, "H100") for number in range(nodes)])


def _report(samples: Samples, node: int, at: float, now: float) -> None:
    for gpu in range(2):
        for signal in (Signal.HEALTH, Signal.CORE_TEMPERATURE, Signal.POWER):
            samples.push(node, gpu, signal, 50.0, at, now)


def _warm(nodes: int = 10, skew: float = 0.0) -> Samples:
    samples = Samples(_fleet(nodes))
    for now in range(0, 101, 10):
        for node in range(nodes):
            _report(samples, node, now + skew, now)
    return samples


@pytest.mark.parametrize(
    ("node", "gpu", "value", "at", "reason"),
    [
        (0, 0, math.nan, 0.0, Dropped.NOT_A_NUMBER),
        (0, 0, math.inf, 0.0, Dropped.NOT_A_NUMBER),
        (0, 0, 1.0, math.nan, Dropped.NOT_A_NUMBER),
        (0, 0, 1.0, 5.1, Dropped.FUTURE),
        (0, 2, 1.0, 0.0, Dropped.UNKNOWN_DEVICE),
        (99, 0, 1.0, 0.0, Dropped.UNKNOWN_DEVICE),
        (-1, 0, 1.0, 0.0, Dropped.UNKNOWN_DEVICE),
    ],
)
def test_what_cannot_be_true_is_dropped_and_counted(
    node: int, gpu: int, value: float, at: float, reason: Dropped
) -> None:
    samples = Samples(_fleet())
    assert samples.push(node, gpu, Signal.POWER, value, at, 0.0) is reason
    assert samples.dropped == {reason: 1}


def test_an_older_sample_does_not_replace_a_newer_one() -> None:
    samples = Samples(_fleet())
    samples.push(0, 0, Signal.POWER, 2.0, 10.0, 10.0)
    assert samples.push(0, 0, Signal.POWER, 1.0, 9.0, 11.0) is Dropped.OLDER
    assert samples.value[0, 0, Signal.POWER] == 2.0


def test_a_node_is_fresh_for_thirty_seconds_and_only_after_warming_up() -> None:
    samples = _warm()
    assert samples.fresh(100.0).nodes.all()
    assert samples.fresh(130.0).nodes.all()
    cold = Samples(_fleet())
    _report(cold, 0, 0.0, 0.0)
    _report(cold, 0, 50.0, 50.0)
    assert not cold.fresh(50.0).nodes[0]


def test_a_collector_that_is_dead_from_the_start_is_an_alarm_and_no_silent_refusal() -> None:
    fresh = Samples(_fleet()).fresh(1000.0)
    assert not fresh.nodes.any()
    assert fresh.breaker == "no node reports telemetry, or none for 60 s yet, so none takes work"
    assert _warm().fresh(100.0).breaker is None
    long_dead = _warm().fresh(100_000.0)
    assert not long_dead.nodes.any()
    assert long_dead.breaker == fresh.breaker


def test_nodes_that_are_switched_off_do_not_hold_the_breaker_open_for_the_others() -> None:
    samples = _warm()
    for now in range(110, 5000, 10):
        for node in range(3, 10):
            if node > 3 or now < 4900:
                _report(samples, node, now, now)
    fresh = samples.fresh(4990.0)
    assert fresh.breaker is None
    assert fresh.nodes.tolist() == [False] * 4 + [True] * 6


def test_a_node_that_comes_back_after_a_long_silence_warms_up_anew() -> None:
    samples = _warm()
    for now in range(110, 700, 10):
        for node in range(10):
            if node or now >= 600:
                _report(samples, node, now, now)
    assert not samples.fresh(640.0).nodes[0]
    assert samples.fresh(640.0).nodes[1:].all()
    assert samples.fresh(691.0).nodes.all()


def test_one_silent_node_is_shut_and_raises_no_alarm() -> None:
    samples = _warm()
    for now in range(110, 200, 10):
        for node in range(1, 10):
            _report(samples, node, now, now)
    fresh = samples.fresh(195.0)
    assert fresh.nodes.tolist() == [False] + [True] * 9
    assert fresh.breaker is None


def test_a_dead_collector_opens_the_breaker_until_the_hard_limit() -> None:
    samples = _warm()
    fresh = samples.fresh(200.0)
    assert fresh.nodes.all()
    assert fresh.breaker is not None
    dead = samples.fresh(281.0)
    assert not dead.nodes.any()
    assert dead.breaker is not None


@pytest.mark.parametrize("skew", [-4.5, 4.5])
def test_a_skewed_clock_neither_shuts_a_node_nor_keeps_a_silent_one_open(skew: float) -> None:
    samples = _warm(skew=skew)
    for now in range(110, 200, 10):
        for node in range(1, 10):
            _report(samples, node, now + skew, now)
    fresh = samples.fresh(190.0)
    assert fresh.nodes[1:].all()
    assert not fresh.nodes[0]


def test_replayed_old_samples_do_not_look_fresh() -> None:
    samples = _warm()
    for now in range(110, 200, 10):
        for node in range(1, 10):
            _report(samples, node, now, now)
        _report(samples, 0, 100.0, now)
    assert not samples.fresh(195.0).nodes[0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1.15), min_size=1, max_size=200))
def test_p95_is_never_too_low_and_at_most_one_bin_too_high(values: list[float]) -> None:
    windows = Windows((1, 1))
    for value in values:
        windows.push(0, 0, Signal.POWER, value, 10.0)
    exact = float(np.quantile(values, 0.95, method="inverted_cdf"))
    found = float(windows.p95(10.0)[0, 0, Signal.POWER])
    assert exact - 1e-9 <= found <= exact + WIDTH + 1e-9


def test_a_window_forgets() -> None:
    windows = Windows((1, 1), window=600.0)
    for now in range(300):
        windows.push(0, 0, Signal.POWER, 0.9, float(now))
    for now in range(300, 900):
        windows.push(0, 0, Signal.POWER, 0.1, float(now))
    assert windows.p95(901.0)[0, 0, Signal.POWER] < 0.2
    assert np.isnan(windows.p95(5000.0)[0, 0, Signal.POWER])


def test_headroom_is_that_of_the_worst_dimension() -> None:
    fleet = _fleet(1)
    measured = Headroom(fleet, {"H100": Limits(power=700.0)})
    for now in range(20):
        measured.push(0, 0, Signal.POWER, 665.0, float(now))
        measured.push(0, 0, Signal.CORE_TEMPERATURE, 45.0, float(now))
        measured.push(0, 0, Signal.NIC, 100.0, float(now))
    found = measured.of_gpus(20.0)
    assert 0.02 <= found[0, 0] <= 0.05
    assert found[0, 1] == 1.0
    assert headroom.level(found).tolist() == [[0, headroom.AMPLE]]


def test_a_limit_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="limit power"):
        Limits(power=0.0)


@pytest.mark.parametrize(
    ("code", "recovery", "effect"),
    [
        ("xid 79", None, Effect.DEVICE),
        ("xid 74", None, Effect.LINK),
        ("xid 13", None, Effect.NOTICE),
        ("xid 9999", None, Effect.NOTICE),
        ("xid 9999", "gpu-reset", Effect.DEVICE),
        ("xid 9999", "drain-p2p", Effect.LINK),
        ("xid 9999", "something-new", Effect.DEVICE),
        ("xid 9999", "none", Effect.NOTICE),
        ("dcgm VOLATILE_DBE", None, Effect.DEVICE),
        ("dcgm CLOCK_THROTTLE_POWER", None, Effect.NOTICE),
    ],
)
def test_the_policy_says_what_a_code_means(code: str, recovery: str | None, effect: Effect) -> None:
    assert policies.load().meaning(code, recovery).effect is effect


def test_one_code_on_many_nodes_is_an_alarm_and_shuts_no_more_whole_nodes() -> None:
    board = Board(_fleet(100))
    alarms: list[tuple[str, int]] = []
    for node in range(8):
        board.report(Event(node, 0, "xid 54", 10.0 * node), alarm=lambda code, count: alarms.append((code, count)))
    assert alarms == [("xid 54", 5)]
    assert board.node_out.tolist() == [True] * 4 + [False] * 96
    assert board.out[4:8, 0].all()
    assert not board.out[:, 1].any()


def test_the_same_over_more_than_an_hour_is_no_alarm() -> None:
    board = Board(_fleet(100))
    for node in range(8):
        board.report(Event(node, 0, "xid 54", 1000.0 * node))
    assert board.alarms == {}
    assert board.node_out[:8].all()


def test_an_unknown_code_without_recovery_action_counts_to_the_alarm() -> None:
    board = Board(_fleet(100))
    for node in range(6):
        board.report(Event(node, 0, "xid 9999", 0.0))
    assert board.alarms == {"xid 9999": 5}
    assert not board.out.any()


def test_a_cleared_device_is_fit_again() -> None:
    board = Board(_fleet(1))
    board.report(Event(0, 1, "xid 48", 0.0))
    assert board.out[0, 1]
    assert "double-bit" in board.cause(0, 1)
    board.clear(0, 1)
    assert not board.out.any()
    assert board.cause(0, 1) == ""


def test_a_device_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(IndexError):
        Board(_fleet(1)).report(Event(0, 2, "xid 48", 0.0))


_NUMBER = st.sampled_from([0.0, 1.0, 40.0, 500.0, 90_000.0, -5.0, math.nan, math.inf, 1e308])
_TIME = st.sampled_from([90.0, 99.0, 100.0, 104.0, 106.0, -1e9, math.nan])
_ROUND = st.tuples(
    st.integers(-1, 3),
    st.lists(
        st.tuples(st.integers(-1, 2), st.sampled_from(list(Signal)), _NUMBER, _TIME),
        max_size=12,
        unique_by=lambda item: item[:2],
    ),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(_ROUND, max_size=6))
def test_a_round_at_once_is_the_same_as_its_samples_one_by_one(
    rounds: list[tuple[int, list[tuple[int, Signal, float, float]]]],
) -> None:
    fleet = _fleet(3)
    one, many = (Samples(fleet), Headroom(fleet)), (Samples(fleet), Headroom(fleet))
    for number, (node, listed) in enumerate(rounds):
        now = 100.0 + 200 * number
        for gpu, signal, value, at in listed:
            if one[0].push(node, gpu, signal, value, at + 200 * number, now) is None:
                one[1].push(node, gpu, signal, value, now)
        if not listed:
            continue
        gpus, signals, values, times = (np.array(part) for part in zip(*listed, strict=True))
        batch = Batch(gpus, signals, values, times + 200 * number)
        taken = many[0].push_round(node, batch, now)
        if taken.any():
            many[1].push_round(node, batch.only(taken), now)
    assert one[0].dropped == many[0].dropped
    for name in ("value", "at", "first", "offset"):
        assert np.array_equal(getattr(one[0], name), getattr(many[0], name), equal_nan=True), name
    last = 100.0 + 200 * len(rounds)
    assert np.array_equal(one[1].of_dimensions(last), many[1].of_dimensions(last), equal_nan=True)
