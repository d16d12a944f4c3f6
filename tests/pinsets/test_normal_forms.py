"""One text per version, whatever printed it; and no two versions become one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from lockstep.base import documents, issues
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


@pytest.mark.parametrize("name", sorted(normalisers.NORMALISERS))
@hypothesis.given(text=VERSIONISH)
@hypothesis.settings(deadline=None, max_examples=60)
def test_a_normal_form_is_its_own_normal_form(name: str, text: str) -> None:
    once = normalisers.apply(name, text)
    assert normalisers.apply(name, once) == once


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
