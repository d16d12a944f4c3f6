from __future__ import annotations

import math

import pytest

from placement.simulate.histories import Call, History, NotLinearizable, linearizable


def _call(kind: str, claim: str, begun: float, ended: float = math.inf) -> Call:
    return Call("n/gpu0", kind, claim, begun, ended)


def test_two_overlapping_holds_with_a_free_between_them_are_fine() -> None:
    assert linearizable([_call("hold", "a", 0, 5), _call("hold", "b", 1, 9), _call("free", "a", 6, 7)])


def test_two_holds_without_a_free_are_not() -> None:
    assert not linearizable([_call("hold", "a", 0, 5), _call("hold", "b", 1, 9)])


def test_a_free_that_came_too_late_does_not_explain_a_hold() -> None:
    assert not linearizable([_call("hold", "a", 0, 1), _call("hold", "b", 2, 3), _call("free", "a", 4, 5)])


def test_a_call_that_never_returned_may_have_happened_or_not() -> None:
    assert linearizable([_call("hold", "a", 0), _call("hold", "b", 1, 2)])
    assert linearizable([_call("hold", "a", 0), _call("free", "a", 3, 4), _call("hold", "b", 5, 6)])


def test_a_refusal_needs_another_holder() -> None:
    assert not linearizable([_call("refused", "b", 0, 1)])
    assert linearizable([_call("hold", "a", 0, 3), _call("refused", "b", 1, 2)])


def test_a_free_by_somebody_else_is_named_with_its_device() -> None:
    history = History(calls=[_call("hold", "a", 0, 1), _call("free", "b", 2, 3)])
    with pytest.raises(NotLinearizable, match="n/gpu0"):
        history.check()
