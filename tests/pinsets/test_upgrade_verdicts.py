"""What a step between two pinsets needs: tests/data/pinsets/upgrades/NAME.yaml holds both sets and the verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from inventory import load as fleets
from pinsets import upgrades
from pinsets.model import Pin, Pinset

CASES = sorted((Path(__file__).parents[1] / "data" / "pinsets" / "upgrades").glob("*.yaml"))


def _pinset(name: str, sku: str, pins: dict[str, Any], waived: list[str]) -> Pinset:
    read = {component: Pin.model_validate(pin) for component, pin in pins.items()}
    return Pinset(pinset=name, sku=(sku,), pins=read, rules=dict.fromkeys(waived, "a test"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_step_between_two_sets_has_its_verdict_and_reason(path: Path) -> None:
    case: dict[str, Any] = yaml.safe_load(path.read_text())
    old = _pinset("old", case["sku"], case["old"], [])
    new = _pinset("new", case["sku"], case["new"], case.get("waived", []))
    upgrade = upgrades.between(old, new, [fleets.sku(case["sku"])])
    assert upgrade.need == case["need"], upgrade
    assert {step.component for step in upgrade.steps} >= set(case["steps"])
    if not case["steps"]:
        assert upgrade.steps == ()
    found = {step.component: step for step in upgrade.steps}
    for component, (need, *parts) in case["steps"].items():
        assert found[component].need == need, found[component]
        said = "; ".join(found[component].reasons)
        for part in parts:
            assert part in said


def test_every_word_has_a_case() -> None:
    needs = {yaml.safe_load(path.read_text())["need"] for path in CASES}
    assert needs == {str(need) for need in upgrades.Need}
