"""A pinset is judged by the rules before any machine is: what stops, what warns, what is kept and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from inventory import load as fleets
from lockstep.base import issues
from pinsets import canonical, lint_rules, load, wishes
from pinsets.model import LockedPin, Pinset


@pytest.fixture
def catalogue(tmp_path: Path) -> load.Catalogue:
    """An empty catalogue."""
    (tmp_path / "catalog").mkdir()
    return load.Catalogue(tmp_path / "catalog", tmp_path / "locks")


def _read(catalogue: load.Catalogue, pins: str, more: str = "", sku: str = "lab-gb200") -> list[str]:
    text = f"pinset: p\nsku: [{sku}]\n{more}pins:\n{pins}"
    (catalogue.pinsets / "p.yaml").write_text(text)
    report = issues.Report()
    load.read_pinset("p", catalogue, report)
    return [issue.text().replace(f"{catalogue.pinsets}/", "") for issue in report.ordered()]


def test_a_set_that_cannot_run_is_an_error_at_the_line_of_the_pin(catalogue: load.Catalogue) -> None:
    found = _read(catalogue, "  driver: {version: 580.105.08}\n  imex: {version: 580.95.05}\n")
    assert found == [
        "p.yaml:5: error: rule F2: imex and driver 580.95.05, wanted 580.105.08, as driver: "
        "memory of other nodes of the NVLink domain cannot be mapped "
        "(install IMEX and driver of one version; or say why it is kept: `rules: {F2: …}`)"
    ]


def test_what_a_machine_needs_is_asked_of_the_machine_that_a_set_is_for(catalogue: load.Catalogue) -> None:
    pins = "  nccl: {version: 2.26.2}\n"
    assert "rule N5: nccl 2.26.2, wanted >=2.27.5" in _read(catalogue, pins)[0]
    assert _read(catalogue, pins, sku="lab-b300") == []


def test_a_doubtful_value_or_one_use_only_warns(catalogue: load.Catalogue) -> None:
    doubtful, ended = _read(catalogue, "  driver: {version: 565.57.01}\n")
    assert doubtful.startswith("p.yaml:4: warning: rule K4: ")
    assert ended.startswith("p.yaml:4: warning: rule K5-branch: ")
    one_use = "  dra-driver: {version: 25.8.0}\n  driver: {version: 550.90.07}\n"
    found = _read(catalogue, one_use, sku="aws-p5")
    assert [issue.split(":")[2].strip() for issue in found if "rule X1:" in issue] == ["warning"]


def test_the_build_that_a_package_names_is_judged_with_it(catalogue: load.Catalogue) -> None:
    pins = "  driver: {version: 575.57.08}\n  nccl: {version: 2.28.9, package: 2.28.9-1+cuda13.0}\n"
    found = _read(catalogue, pins, sku="lab-b300")
    assert [issue.split(":")[3].strip() for issue in found if "error" in issue] == ["rule N2"]


def test_every_accepted_value_is_judged_too(catalogue: load.Catalogue) -> None:
    pins = "  nccl: {version: 2.28.9, accept: [2.26.2], source: release notes}\n"
    (issue,) = _read(catalogue, pins)
    assert "rule N5: nccl 2.26.2" in issue


def test_a_waived_rule_is_kept_with_its_reason_and_an_idle_waiver_is_said(catalogue: load.Catalogue) -> None:
    pins = "  rocm: {version: 7.0.3}\n  rccl: {version: 2.22.3}\n"
    assert "error: rule A2" in _read(catalogue, pins, sku="mi300x")[0]
    waiver = "rules: {A2: as the vendor's own file pairs them}\n"
    assert _read(catalogue, pins, waiver, sku="mi300x") == []
    linted = lint_rules.by_rules(load.pinset("p", catalogue))
    ((breach, reason),) = linted.waived
    assert (breach.rule.id, reason) == ("A2", "as the vendor's own file pairs them")
    assert linted.breaches == ()
    found = _read(catalogue, "  rccl: {version: 2.22.3}\n", waiver, sku="mi300x")
    assert found == ["p.yaml: warning: rule A2 is waived and not broken (take the waiver out)"]


@pytest.mark.parametrize(
    ("waiver", "message"),
    [
        ("{A9: some reason or other}", "unknown rule `A9` ("),
        ("{A2: no}", "rule `A2` is waived without a reason"),
    ],
)
def test_a_waiver_names_a_rule_and_a_reason(catalogue: load.Catalogue, waiver: str, message: str) -> None:
    found = _read(catalogue, "  rocm: {version: 7.0.3}\n", f"rules: {waiver}\n")
    assert len(found) == 1
    assert found[0].startswith("p.yaml:3: error: ")
    assert message in found[0]


def test_pins_that_compare_nothing_are_said(catalogue: load.Catalogue) -> None:
    found = _read(catalogue, "  firmware.erot: {version: 01.04.0031.0000_n04}\n")
    assert found == [
        "p.yaml:4: warning: `firmware.erot` is compared nowhere: SKU `lab-gb200` lists no erot "
        "(name them in inventory/skus/lab-gb200.yaml)"
    ]
    found = _read(catalogue, "  cdi: {version: 580.105.08, layers: [running]}\n")
    assert found == ["p.yaml:4: error: `cdi` has no layer `running` (it has ondisk)"]


def test_slots_of_one_machine_may_have_right_versions_of_their_own(catalogue: load.Catalogue) -> None:
    slots = fleets.sku("dgx-h100").slots("gpu")
    given = ", ".join(f"{slot}: 96.00.BC.00.0{index}" for index, slot in enumerate(slots))
    assert _read(catalogue, f"  firmware.gpu: {{instances: {{{given}}}}}\n", sku="dgx-h100") == []
    (pin,) = wishes.pins(load.pinset("p", catalogue))
    assert [pin.at(slot).version for slot in slots] == [f"96.00.BC.00.0{index}" for index in range(len(slots))]
    assert not pin.at(slots[0]).accepts(pin.at(slots[1]).version)
    (short,) = _read(catalogue, f"  firmware.gpu: {{instances: {{{slots[0]}: 96.00.BC.00.01}}}}\n", sku="dgx-h100")
    assert f"nothing is said of slot `{slots[1]}`" in short
    strange = _read(catalogue, "  firmware.gpu: {version: 96.00.BC.00.01, instances: {gpu99: 96.00.BC.00.02}}\n")
    assert "SKU `lab-gb200` has no slot `gpu99`" in strange[0]
    (one,) = _read(catalogue, "  driver: {version: 580.105.08, instances: {gpu0: 580.95.05}}\n")
    assert "`driver` is one per node" in one


def test_a_word_that_says_nothing_changes_no_digest() -> None:
    pin = LockedPin(component="driver", layers=(), version="580.105.08")
    said = pin.model_copy(update={"instances": {"gpu0": "1.0"}})
    assert canonical.job([pin]) == canonical.job([said]), "scope node is not in the job digest"
    assert canonical.wish("os", ["sku"], [pin], {}) != canonical.wish("os", ["sku"], [said], {})
    assert "instances" not in canonical.text([canonical.wish("os", [], [pin], {})])


def test_a_set_without_a_readable_sku_is_still_judged() -> None:
    pinset = Pinset.model_validate(
        {"pinset": "p", "sku": ["nowhere"], "pins": {"driver": {"version": "580.1.1"}, "imex": {"version": "580.1.2"}}}
    )
    assert [one.rule.id for one in lint_rules.by_rules(pinset).breaches] == ["F2"]
