"""Durations and shares as people write them; names that Kubernetes and Pulumi take."""

from __future__ import annotations

import pytest

from lockstep.base import names, quantities


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("1h30m", 5400), ("45s", 45), ("2d", 172_800), ("0s", 0)])
def test_a_duration_becomes_seconds(text: str, seconds: int) -> None:
    assert quantities.parse_duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m30", "1.5h", "-3m", "30 minutes"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="for example 30m"):
        quantities.parse_duration_seconds(text)


@pytest.mark.parametrize(
    ("text", "total", "nodes"),
    [("10%", 8, 1), ("10%", 11, 2), ("100%", 8, 8), ("0.1%", 5, 1), (2, 8, 2), ("3", 2, 2), (20, 8, 8)],
)
def test_a_share_rounds_up_and_is_never_below_one(text: str | int, total: int, nodes: int) -> None:
    assert quantities.parse_share(text).nodes_of(total) == nodes


@pytest.mark.parametrize("text", ["0%", "101%", "ten", "-1", 0, True, "10 %%"])
def test_what_is_no_share_is_refused(text: str | int) -> None:
    with pytest.raises(ValueError, match="for example 10%"):
        quantities.parse_share(text)


@pytest.mark.parametrize("name", ["gpu-001", "a", "0", "x" * 63])
def test_a_label_names_pools_and_fleets(name: str) -> None:
    assert names.is_dns_label(name)


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a.b", "x" * 64, "é"])
def test_what_kubernetes_would_refuse_is_no_label(name: str) -> None:
    assert not names.is_dns_label(name)


def test_a_node_may_have_a_dotted_name_of_253_characters() -> None:
    assert names.is_node_name("gpu-1.rack-2.example.com")
    assert not names.is_node_name("gpu-1..example")
    assert not names.is_node_name(".".join(["a" * 63] * 4))
