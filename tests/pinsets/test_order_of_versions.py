"""Which of two versions is newer, and that no text a machine prints can stop a rule."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies

from lockstep.base.names import NodeName
from pinsets import components, normalisers, rules
from pinsets.facts import Coordinate, Fact, NodeFacts, Version
from pinsets.rules import engine, ordering

ASCENDING = [
    ("driver", ["535.309.01", "570.124", "570.124.06", "580.65.06", "580.105.08", "595.58.03", "595.80", "610.57.04"]),
    ("kernel", ["5.4.0-200-generic", "5.15.0-163-generic", "6.8.0-45-generic", "6.8.0-1024-nvidia-64k", "6.12.3"]),
    ("firmware.gpu", ["96.00.61.00.01", "96.00.74.00.1C", "96.00.9F.00.04", "97.00.0D.00.00", "97.00.B9.00.69"]),
    ("firmware.nic", ["28.43.2026", "28.47.1026", "28.47.2682", "28.98.9122"]),
    ("container-toolkit", ["1.17.4", "1.18.0-rc.1", "1.18.0", "1.18.1", "1.20.0"]),
    ("nccl", ["2.7.8", "2.18.1", "2.27.5", "2.28.9", "2.30.4"]),
    ("doca", ["2.9.1-000001", "2.10.0-093000", "3.2.1-044000", "3.2.1-044413", "3.2.2-035000"]),
    ("ofed", ["5.8-1.1.2", "24.07-0.6.1", "24.10-0.7.0", "25.10-1.7.1"]),
    ("libfabric", ["1.17.0", "1.18.1", "1.22.0amzn1.0", "2.5.0"]),
    ("firmware.pldm", ["25.02.04", "25.03.12", "25.17.07", "26.00.02"]),
]


@pytest.mark.parametrize(("component", "versions"), ASCENDING, ids=[name for name, _ in ASCENDING])
def test_versions_of_a_component_have_its_order(component: str, versions: list[str]) -> None:
    order = ordering.of_component(component)
    assert [normalisers.normalise(component, text) for text in versions] == versions
    keys = [ordering.key(order, text) for text in versions]
    assert None not in keys
    assert sorted(keys, key=lambda one: one or ((), 0)) == keys
    assert len(set(keys)) == len(keys)


def test_what_has_no_order_lies_in_no_range() -> None:
    for component, text in (("firmware.hmc", "gb200nvl-25.08-b"), ("firmware.ifwi", "113-M350-01-1K0-920A")):
        order = ordering.of_component(component)
        assert ordering.parse_range(">=1").holds(order, text) is None
        assert ordering.parse_range(text).holds(order, text) is True
        assert ordering.parse_range("other").holds(order, text) is False


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (">=570.124.06 <=570.158.01", ["570.124.06", "570.133.20", "570.158.01"], ["570.86.10", "570.172.08", "580"]),
        ("1.17.*", ["1.17.0", "1.17.2", "1.17"], ["1.18.0", "1.1.17", "11.7"]),
        (">=1.7.30 <2", ["1.7.30", "1.7.31"], ["1.7.29", "2.0", "2.1"]),
        ("13.0", ["13.0", "13.0.0", "13"], ["13.0.1", "12.9"]),
        ("<6.8", ["5.15", "6.7.9"], ["6.8", "6.8.1"]),
        (">1", ["1.0.1", "2"], ["1", "1.0.0"]),
    ],
)
def test_bounds_belong_to_their_range(text: str, inside: list[str], outside: list[str]) -> None:
    found = ordering.parse_range(text)
    assert [found.holds(ordering.DOTTED, one) for one in inside] == [True] * len(inside)
    assert [found.holds(ordering.DOTTED, one) for one in outside] == [False] * len(outside)


@pytest.mark.parametrize("text", ["", " ", "~1.2", ">=", "1.*.2", "==1", "^1", "!1", "*"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="range"):
        ordering.parse_range(text)


@hypothesis.given(text=strategies.one_of(strategies.text(max_size=30), strategies.just("9" * 5000)))
@hypothesis.settings(deadline=None, max_examples=200)
def test_no_text_has_two_places(text: str) -> None:
    for order in (ordering.DOTTED, "kernel", "hex", "none"):
        below, above = (ordering.parse_range(word).holds(order, text) for word in ("<100", ">=100"))
        assert (below, above) in [(True, False), (False, True), (None, None)]


_PLACES = [
    Coordinate(name, layer, None if entry.instance is None else f"{entry.instance}0")
    for name, entry in components.load().items()
    for layer in (*entry.layers, *entry.further)
]
_HOSTILE = strategies.sampled_from(
    [
        "",
        "9" * 5000,
        "1" + ".1" * 3000,
        "\x1b[31m580.105.08\x1b[0m",
        "٣.٤.٥",
        "0x" + "f" * 400,
        "580.105.08\n" * 50,
        "-",
        ",",
    ]
)


@hypothesis.given(
    texts=strategies.lists(strategies.one_of(_HOSTILE, strategies.text(max_size=20)), min_size=3, max_size=8)
)
@hypothesis.settings(deadline=None, max_examples=25)
def test_no_output_of_a_machine_stops_a_rule(texts: list[str]) -> None:
    facts, attributes = {}, {}
    for index, place in enumerate(_PLACES):
        raw = texts[index % len(texts)]
        facts[place] = Fact(place, Version(normalisers.normalise(place.component, raw), raw), "case")
    for index, key in enumerate(sorted(engine.attribute_patterns())):
        attributes[key.replace("*", "gpu0")] = texts[index % len(texts)]
    node = NodeFacts(NodeName("a"), 1.0, facts, attributes=attributes)
    other = NodeFacts(NodeName("b"), 1.0, facts)
    rules.of_node(node, rules.Context())
    for level in ("domain", "pool"):
        rules.of_group([node, other], rules.Context(level=level))  # type: ignore[arg-type]
    rules.of_set({str(place.component): texts[0] for place in _PLACES}, rules.Context())
