"""Host ranges fold and unfold, and refuse what would run a command or fill the memory."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies

from lockstep.base import errors, hostranges

NAMES = strategies.lists(
    strategies.builds(
        lambda stem, number, width: f"{stem}{number:0{width}d}",
        strategies.sampled_from(["gpu-", "r1-n", "node"]),
        strategies.integers(0, 999),
        strategies.just(3),
    ),
    min_size=1,
    max_size=40,
    unique=True,
)


@hypothesis.given(NAMES)
@hypothesis.settings(deadline=None, max_examples=60)
def test_unfolding_what_was_folded_gives_the_same_names(names: list[str]) -> None:
    assert sorted(hostranges.unfold(hostranges.fold(names))) == sorted(names)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("gpu-[001-003]", ["gpu-001", "gpu-002", "gpu-003"]),
        ("gpu-[8-11]", ["gpu-8", "gpu-9", "gpu-10", "gpu-11"]),
        ("b2,a1", ["b2", "a1"]),
        ("n[1-2],n[2-3]", ["n1", "n2", "n3"]),
        ("r[1-2]-n[1-2]", ["r1-n1", "r1-n2", "r2-n1", "r2-n2"]),
        ("n[1-5]!n3", ["n1", "n2", "n4", "n5"]),
        ("alone", ["alone"]),
        ("127.90.0.[1-2]", ["127.90.0.1", "127.90.0.2"]),
    ],
)
def test_a_pattern_unfolds_in_the_order_written(pattern: str, names: list[str]) -> None:
    assert hostranges.unfold(pattern) == names


@pytest.mark.parametrize(
    "pattern", ["", "  ", "n[1-", "n[1-999999999]", "n[1-99999999999999999999999]", "n[0-999][0-999]", "@all", "n[a-b]"]
)
def test_what_is_no_range_or_too_many_hosts_is_refused(pattern: str) -> None:
    with pytest.raises(errors.InputError):
        hostranges.unfold(pattern)


@hypothesis.given(
    strategies.sampled_from(["gpu-", "r1-u", "127.90.0.", "n1", ""]),
    strategies.integers(0, 120),
    strategies.integers(0, 12),
    strategies.integers(1, 4),
    strategies.sampled_from(["", ".example.com", "-x"]),
)
@hypothesis.settings(deadline=None, max_examples=80)
def test_a_plain_range_is_what_nodeset_makes_of_it(before: str, first: int, count: int, width: int, after: str) -> None:
    from ClusterShell.NodeSet import NodeSet

    pattern = f"{before}[{first:0{width}d}-{first + count:0{width}d}]{after}"
    assert sorted(hostranges.unfold(pattern)) == sorted(map(str, NodeSet(pattern)))
