"""Every committed pinset: sound, sourced, for machines that exist, and breaking no rule that it does not waive."""

from __future__ import annotations

import pytest

from inventory import load as fleets
from lockstep.base import issues
from pinsets import lint_rules, load, wishes
from pinsets.findings import Severity
from pinsets.upgrades import between

CATALOGUE = load.default_catalogue()
PUBLISHED = [name for name in CATALOGUE.names if "-lab-" not in name]


def test_the_published_sets_are_there() -> None:
    assert set(PUBLISHED) == {
        "azhpc-2026-07-29-gb200",
        "azhpc-2026-07-29-h100",
        "azhpc-2026-07-29-mi300x",
        "azhpc-2026-07-29-ubuntu24-x86",
        "dgx-gb200-nvl72-1.3.6",
        "dgx-gb200-sw1.3",
        "dgx-gb200-sw1.3-switch",
        "dgx-gb300-1.0.6",
        "eks-al2023-v20260714",
        "gpu-operator-26.7.0",
        "gpu-operator-26.7.0-r580",
    }


@pytest.mark.parametrize("name", CATALOGUE.names)
def test_a_set_of_the_catalogue_is_sound(name: str) -> None:
    report = issues.Report()
    found = load.read_pinset(name, CATALOGUE, report)
    assert [issue.text() for issue in report.ordered()] == []
    assert found is not None
    assert found.pinset.source
    for sku in found.pinset.sku:
        assert sku in fleets.known_skus()
        fleets.sku(sku)


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_pin_of_a_published_set_says_where_it_is_from(name: str) -> None:
    found = load.resolved(name, CATALOGUE)
    assert [component for component, pin in found.pinset.pins.items() if not pin.source] == []


@pytest.mark.parametrize("name", CATALOGUE.names)
def test_a_set_breaks_no_rule_that_it_does_not_waive_with_a_reason(name: str) -> None:
    linted = lint_rules.by_rules(load.pinset(name, CATALOGUE))
    assert [one.rule.id for one in linted.breaches if one.severity is not Severity.INFO] == []
    assert linted.idle == (), "a waiver of what is not broken"


def test_a_set_that_is_kept_against_a_rule_says_so_and_why() -> None:
    linted = lint_rules.by_rules(load.pinset("dgx-gb300-1.0.6", CATALOGUE))
    ((breach, reason),) = linted.waived
    assert breach.rule.id == "O1-mft"
    assert "the vendor's own recipe" in reason


def test_a_pin_that_needs_an_instance_has_it_on_the_machine() -> None:
    for name in CATALOGUE.names:
        found = load.resolved(name, CATALOGUE).pinset
        for sku in found.sku:
            slots = fleets.sku(sku).all_slots()
            empty = [pin.component for pin in wishes.pins(found) if pin.instance and not slots.get(pin.instance)]
            assert empty == [], (name, sku)


def test_the_two_sets_of_one_release_differ_by_their_driver_alone() -> None:
    old, new = (load.pinset(name, CATALOGUE) for name in ("gpu-operator-26.7.0", "gpu-operator-26.7.0-r580"))
    assert [step.component for step in between(old, new).steps] == ["driver"]
