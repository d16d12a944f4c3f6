"""Other projects' lists and golden nodes become drafts, and drafts become files that read back as they were meant.

tests/data/pinsets/imports/NAME.yaml: a file (``beside``: others of its folder), what is selected, the pins it gives
and, as beginnings of lines, what is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lockstep.base import documents, issues
from lockstep.base.names import ComponentName, NodeName
from pinsets import drafts, golden, importing, lint, load
from pinsets.facts import ABSENT, Coordinate, Fact, NodeFacts, Observation, Unreadable, Version
from pinsets.model import Pin, Pinset, Scope

CASES = sorted((Path(__file__).parents[1] / "data" / "pinsets" / "imports").glob("*.yaml"))


def _read_back(text: str, name: str) -> Pinset:
    report = issues.Report()
    document = documents.parse(text, f"{name}.yaml", report)
    assert document is not None, text
    model = document.model(Pinset, report)
    assert model is not None, [issue.text() for issue in report.ordered()]
    lint.run(model, document, report)
    assert [issue.text() for issue in report.errors] == []
    return model


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_published_list_gives_its_exact_versions_and_says_what_it_left_out(path: Path, tmp_path: Path) -> None:
    case: dict[str, Any] = yaml.safe_load(path.read_text())
    for name, text in {case["file"]: case["text"], **case.get("beside", {})}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    draft = importing.draft([tmp_path / case["file"]], None, case["select"])
    assert {name: pin.version for name, pin in draft.pins.items()} == case["pins"]
    assert all(pin.source for pin in draft.pins.values()), "every pin says where it is from"
    packages = {name: pin.package for name, pin in draft.pins.items() if pin.package}
    assert packages == case.get("packages", {})
    layers = {name: [layer.value for layer in pin.layers] for name, pin in draft.pins.items() if pin.layers}
    assert layers == case.get("layers", {})
    left = sorted(map(str, draft.left_out))
    wanted = sorted(case["left_out"])
    assert len(left) == len(wanted), left
    assert all(one.startswith(start) for one, start in zip(left, wanted, strict=True)), left
    model = _read_back(drafts.text(draft, "new", ["lab-gb200"]), "new")
    assert {name: pin.version for name, pin in model.pins.items()} == case["pins"]


def test_there_are_cases() -> None:
    assert len(CASES) >= 6


@pytest.mark.parametrize(
    ("name", "select"),
    [
        ("azhpc-2026-07-29-ubuntu24-x86", ["ubuntu24.04", "x86_64"]),
        ("azhpc-2026-07-29-gb200", ["ubuntu24.04", "aarch64", "baremetal_3p", "nvidia_gb200"]),
        ("azhpc-2026-07-29-h100", ["ubuntu24.04", "x86_64", "baremetal_3p", "nvidia_h100"]),
        ("azhpc-2026-07-29-mi300x", ["ubuntu24.04", "x86_64", "amd_mi300x"]),
    ],
)
def test_azures_own_file_gives_what_the_catalogue_says(name: str, select: list[str], samples: Path) -> None:
    draft = importing.draft([samples / "facts" / "recipes" / "azhpc_versions.json"], "azhpc", select)
    pinned = load.pinset(name).pins
    assert {one: pin.version for one, pin in draft.pins.items()} == {one: pinned[one].version for one in draft.pins}
    by_hand = {"os", "cuda", "fabricmanager"}
    assert set(pinned) - set(draft.pins) <= by_hand


def test_two_files_are_one_set_and_the_first_one_wins(tmp_path: Path) -> None:
    for name, label in (("a", "13.0.2"), ("b", "13.1.0")):
        driver = f'{{"version": "580.{label}", "linux-x86_64": {{}}}}'
        (tmp_path / f"{name}.json").write_text(f'{{"release_label": "{label}", "nvidia_driver": {driver}}}')
    draft = importing.draft([tmp_path / "a.json", tmp_path / "b.json"])
    assert {name: pin.version for name, pin in draft.pins.items()} == {"cuda": "13.0.2", "driver": "580.13.0.2"}
    assert [str(one).partition(" (")[0] for one in draft.left_out] == [
        "cuda 13.1.0: 13.0.2 stands there already",
        "driver 580.13.1.0: 580.13.0.2 stands there already",
    ]


VALUE = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=24)


@given(VALUE, VALUE, VALUE)
def test_whatever_stands_in_a_list_reads_back_as_this_very_text(version: str, source: str, left: str) -> None:
    draft = drafts.Draft(source)
    draft.pins["firmware.bios"] = Pin(version=version, source=source, scope=Scope.JOB)
    draft.leave(left, "a reason")
    report = issues.Report()
    document = documents.parse(drafts.text(draft, "new", ["x"]), "new.yaml", report)
    assert document is not None, [issue.text() for issue in report.ordered()]
    pin = document.data["pins"]["firmware.bios"]
    assert pin["version"] == version
    assert document.data["source"] == source


# Golden nodes.


def _node(facts: Mapping[str, Observation]) -> NodeFacts:
    coordinates = {Coordinate.parse(text): seen for text, seen in facts.items()}
    return NodeFacts(
        NodeName("gpu-001"),
        1767222000.0,
        {at: Fact(at, seen, "ssh:file") for at, seen in coordinates.items()},
    )


def _version(value: str, raw: str | None = None) -> Version:
    return Version(value, raw if raw is not None else value)


def test_a_golden_nodes_set_holds_what_was_read_and_names_its_source() -> None:
    draft, disagreements = golden.draft(
        _node(
            {
                "driver@running": _version("580.105.08"),
                "driver@ondisk": _version("580.105.08"),
                "driver@package": _version("580.105.08", "580.105.08-1"),
                "driver@library": _version("580.95.05"),
                "dcgm@package": _version("4.5.2", "1:4.5.2-1"),
                "kernel@running": _version("6.1.0-41-amd64"),
                "kernel@package": _version("6.1.0-41-amd64", "6.1.158-1"),
                "fabricmanager@package": ABSENT,
                "fabricmanager@ondisk": ABSENT,
                "imex@package": _version("580.105.08"),
                "imex@ondisk": Unreadable("no answer in 8 s"),
                "efa@package": _version("3.1.0"),
                "gpu[gpu0]@running": _version("present"),
                "firmware.gpu[gpu0]@running": _version("97.00.B9.00.69"),
                "firmware.gpu[gpu1]@running": _version("97.00.B9.00.69"),
                "firmware.nic[nic0]@running": _version("28.47.1026"),
                "firmware.nic[dpu0]@running": _version("32.47.1026"),
            }
        )
    )
    assert disagreements == ()
    found = {
        name: (pin.version, pin.instances, pin.package, [layer.value for layer in pin.layers or ()])
        for name, pin in draft.pins.items()
    }
    assert found == {
        "kernel": ("6.1.0-41-amd64", {}, None, ["running", "package"]),
        "driver": ("580.105.08", {}, "580.105.08-1", []),
        "imex": ("580.105.08", {}, None, ["package"]),
        "efa": ("3.1.0", {}, None, ["package"]),
        "dcgm": ("4.5.2", {}, "1:4.5.2-1", []),
        "firmware.gpu": ("97.00.B9.00.69", {}, None, []),
        "firmware.nic": (None, {"dpu0": "32.47.1026", "nic0": "28.47.1026"}, None, ["running"]),
    }
    assert draft.pins["driver"].source == "ssh:file"
    assert draft.pins["imex"].scope is Scope.DOMAIN
    assert sorted(map(str, draft.left_out)) == [
        "fabricmanager: absent on the node",
        "imex@ondisk: unreadable: no answer in 8 s",
    ]
    model = _read_back(drafts.text(draft, "golden", ["lab-gb200"]), "golden")
    assert model.pins["firmware.nic"].instances == {"dpu0": "32.47.1026", "nic0": "28.47.1026"}


def test_a_golden_node_must_agree_with_itself() -> None:
    node = _node(
        {
            "nccl@package": _version("2.28.9"),
            "nccl@library": _version("2.27.5"),
            "settings.ecc[gpu0]@running": _version("enabled"),
            "settings.ecc[gpu1]@running": _version("disabled"),
        }
    )
    draft, disagreements = golden.draft(node)
    assert draft.pins == {}
    assert list(map(str, disagreements)) == [
        "nccl: 2.27.5 at nccl@library; 2.28.9 at nccl@package",
        "settings.ecc: disabled at settings.ecc[gpu1]@running; enabled at settings.ecc[gpu0]@running",
    ]
    draft, disagreements = golden.draft(node, ["nccl", "settings.ecc"])
    assert disagreements == ()
    assert [one.what for one in draft.left_out] == ["nccl", "settings.ecc"]


def test_every_component_of_the_registry_can_be_taken_from_a_node() -> None:
    from pinsets import components

    for name, entry in components.load().items():
        if name in lint.PRESENCE:
            continue
        slot = "x0" if entry.instance else None
        at = Coordinate(ComponentName(name), entry.layers[0], slot)
        draft, disagreements = golden.draft(_node({str(at): _version("1.2.3")}))
        assert disagreements == ()
        assert name in draft.pins, (name, draft.left_out)
