"""One text per version, whatever printed it; and no two versions become one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from lockstep.base import documents, issues
from lockstep.base.names import ComponentName
from pinsets import components, normalisers

PATH = Path(__file__).parents[1] / "data" / "normalisers" / "cases.yaml"


def _cases() -> dict[str, list[dict[str, Any]]]:
    report = issues.Report()
    document = documents.load(PATH, report)
    report.raise_if_errors("cases")
    assert document is not None
    found: dict[str, list[dict[str, Any]]] = document.data
    return found


EQUAL = [(case["component"], str(raw), str(case["normal"])) for case in _cases()["equal"] for raw in case["raw"]]
DIFFER = [(case["component"], str(case["left"]), str(case["right"])) for case in _cases()["differ"]]


@pytest.mark.parametrize(("component", "raw", "normal"), EQUAL)
def test_what_sources_print_has_one_normal_form(component: str, raw: str, normal: str) -> None:
    assert normalisers.normalise(component, raw) == normal


@pytest.mark.parametrize(("component", "left", "right"), DIFFER)
def test_versions_that_differ_stay_different(component: str, left: str, right: str) -> None:
    assert normalisers.normalise(component, left) != normalisers.normalise(component, right)


VERSIONISH = strategies.one_of(
    strategies.text(max_size=40),
    strategies.from_regex(r"\A(\d:)?[v]?\d{1,5}(\.\w{1,4}){0,4}([-+~]\w{1,6}(\.\d)?){0,3}\Z"),
    strategies.from_regex(r"\A[0-9a-f]{6,12}\Z"),
)


@hypothesis.given(text=VERSIONISH)
@hypothesis.settings(deadline=None, max_examples=300)
def test_a_normal_form_is_its_own_normal_form(text: str) -> None:
    # Drawing texts is what costs: each goes through every normaliser.
    once = {name: normalisers.apply(name, text) for name in normalisers.NORMALISERS}
    assert {name: normalisers.apply(name, form) for name, form in once.items()} == once


TEXTS = sorted({raw for _, raw, _ in EQUAL} | {text for _, *both in DIFFER for text in both})
"""What sources print, of every component: each is also tried as another component's."""


_TEXT = strategies.one_of(strategies.sampled_from(TEXTS), strategies.text(max_size=12))


@hypothesis.given(one=_TEXT, two=_TEXT, three=_TEXT)
@hypothesis.settings(deadline=None, max_examples=300)
def test_equality_goes_both_ways_and_through_a_third(one: str, two: str, three: str) -> None:
    for name in normalisers.NORMALISERS:

        def equal(left: str, right: str, name: str = name) -> bool:
            return normalisers.apply(name, left) == normalisers.apply(name, right)

        assert equal(one, one)
        assert equal(one, two) is equal(two, one)
        assert equal(one, three) or not (equal(one, two) and equal(two, three))
        # What a report shows can be pinned: the normal form is read back as the same version.
        assert equal(one, normalisers.apply(name, one))


@pytest.mark.parametrize("name", sorted(normalisers.NORMALISERS))
def test_blanks_at_the_ends_never_count(name: str) -> None:
    assert all(normalisers.apply(name, f"  {text}\n") == normalisers.apply(name, text) for text in TEXTS)


def test_every_normaliser_has_a_case_and_every_doubtful_one_says_why() -> None:
    used = {entry.normaliser for entry in components.load().values()}
    tried = {components.load()[ComponentName(component)].normaliser for component, *_ in (*EQUAL, *DIFFER)}
    # Settings that no source prints in two ways yet.
    assert used - tried <= {"plain"}
    assert set(normalisers.NORMALISERS) - used <= {"plain", "assignments"}
    marked = {
        components.load()[ComponentName(case["component"])].normaliser
        for case in _cases()["equal"]
        if case.get("doubtful")
    }
    assert marked == set(normalisers.DOUBTFUL)


def test_every_component_names_a_normaliser_and_layers_that_exist() -> None:
    for name, component in components.load().items():
        assert component.normaliser in normalisers.NORMALISERS, name
        assert component.layers, name


def test_carriers_fill_in_the_parts_of_a_version() -> None:
    registry = components.load()
    assert components.carriers(registry["kernel"], "debian-12-amd64", "6.1.0-41-amd64") == (
        "linux-image-6.1.0-41-amd64",
    )
    assert components.carriers(registry["cuda"], "ubuntu-24.04-amd64", "13.0.2") == ("cuda-toolkit-13-0",)
    assert components.patterns(registry["cuda"], "debian-12-amd64") == ("cuda-toolkit-*-*",)
    assert components.carriers(registry["firmware.gpu"], "debian-12-amd64", "97") == ()
