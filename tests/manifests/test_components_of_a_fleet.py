"""What is rendered for a fleet, compared with committed outputs."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from inventory import model
from manifests import checks, render, retained

DATA = Path(__file__).parents[1] / "data"
CASES = sorted((DATA / "manifests").glob("*.yaml"))


def fleet_of(path: Path) -> tuple[model.Fleet, list[str]]:
    """The fleet of a case file, and the components that it names."""
    case = YAML(typ="safe", pure=True).load(path.read_text())
    pools = tuple(
        model.Pool(name=sku.sku, sku=sku, os="os", pinset="pinset", sources=(), disruption=model.Disruption(), nodes=())
        for sku in (model.SkuFile.model_validate(entry) for entry in case["skus"])
    )
    return model.Fleet(case["fleet"], model.Ssh(), (), pools, path), case["components"]


def as_yaml(rendered: dict[str, list[dict[str, Any]]]) -> str:
    stream = io.StringIO()
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.dump(rendered, stream)
    return stream.getvalue()


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_a_fleet_has_these_components_in_this_order(case: Path) -> None:
    fleet, expected = fleet_of(case)
    assert list(render.components(fleet)) == expected


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_the_objects_equal_the_committed_ones(case: Path) -> None:
    golden = DATA / "golden" / "manifests" / case.name
    text = as_yaml(render.components(fleet_of(case)[0]))
    if os.environ.get("LOCKSTEP_WRITE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text(), "if this is meant, run once with LOCKSTEP_WRITE_GOLDEN=1 and commit the files"


def test_rendering_twice_gives_equal_objects_that_are_not_shared() -> None:
    fleet, _ = fleet_of(CASES[0])
    first = render.components(fleet)
    text = as_yaml(first)
    first["lockstep"][0]["metadata"]["name"] = "changed by a caller"
    assert as_yaml(render.components(fleet)) == text


def test_what_others_hang_on_is_retained_and_the_rest_is_not() -> None:
    fleet, _ = fleet_of(next(path for path in CASES if "fabric" in path.name))
    kept = {obj["kind"] for found in render.components(fleet).values() for obj in found if retained(obj)}
    gone = {obj["kind"] for found in render.components(fleet).values() for obj in found if not retained(obj)}
    assert kept == {"Namespace", "DeviceClass", "CustomResourceDefinition"}
    assert not kept & gone


def test_a_driver_daemon_set_is_retained_another_one_is_not() -> None:
    driver = {"kind": "DaemonSet", "metadata": {"name": "gpu", "labels": {"lockstep.dev/driver": "true"}}}
    assert retained(driver)
    assert not retained({"kind": "DaemonSet", "metadata": {"name": "exporter"}})


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"kind": "Namespace", "metadata": {"name": "x"}}, "no apiVersion"),
    ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x.y"}}, "no valid name"),
    ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}, "status": {}}, "has a status"),
    ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x", "labels": {"a": "b c"}}}, "the API refuses"),
    ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x", "namespace": "y"}}, "is cluster-wide"),
    ({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "x"}}, "which no component makes"),
    ({"apiVersion": "v1", "kind": "Strange", "metadata": {"name": "x"}}, "checks do not know"),
    ({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}, "holds a secret"),
    (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x", "annotations": {"token": "hunter2"}}},
        "holds a secret",
    ),
    (
        {"apiVersion": "v1", "kind": "ClusterRoleBinding", "metadata": {"name": "x"}, "roleRef": {"name": "y"}},
        "names None y",
    ),
]


@pytest.mark.parametrize(("obj", "complaint"), BROKEN, ids=[complaint for _, complaint in BROKEN])
def test_a_broken_object_is_found_by_the_checks(obj: dict[str, Any], complaint: str) -> None:
    assert any(complaint in sentence for sentence in checks.run({"component": [obj]}))


def test_an_object_rendered_by_two_components_is_found() -> None:
    obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}
    assert list(checks.run({"one": [obj]})) == []
    assert list(checks.run({"one": [obj], "two": [obj]})) == ["two: Namespace x is rendered twice, by one too"]
