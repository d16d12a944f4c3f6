"""Waivers as a fleet file writes them: read with their dates, refused with file, line and hint."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from inventory import load
from lockstep.base import errors, settings
from pinsets import checks, waivers
from tests.bringup import answers

GOOD = '{coordinate: "firmware.gpu[gpu3]@running", value: 97.00.c0.00.01, reason: OPS-77, expires: 2026-12-31}'


def _fleet(tmp_path: Path, *written: str) -> list[str]:
    """Errors of a fleet whose first node has these waivers."""
    given = settings.Settings(None, tmp_path / "state", tmp_path / "cache", tmp_path / "labs")
    path = answers.fleet_file(tmp_path, {"n1": f", waivers: [{', '.join(written)}]"})
    with pytest.raises(errors.InputError) as caught:
        load.fleet(str(path), given, more=checks.CHECKS)
    assert caught.value.report is not None
    return [issue.text().rpartition("/")[2] for issue in caught.value.report.errors]


def test_a_waiver_is_read_with_its_normal_value_and_its_last_day(tmp_path: Path) -> None:
    given = settings.Settings(None, tmp_path / "state", tmp_path / "cache", tmp_path / "labs")
    path = answers.fleet_file(tmp_path, {"n1": f", waivers: [{GOOD}]"})
    (node,) = load.fleet(str(path), given, more=checks.CHECKS).nodes
    day = datetime.date(2026, 12, 31)
    assert waivers.current(node.waivers, day) == {"firmware.gpu[gpu3]@running": "97.00.C0.00.01"}
    assert waivers.current(node.waivers, day + datetime.timedelta(days=1)) == {}


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (GOOD.replace("firmware.gpu[", "firmwar.gpu["), "test.yaml:9: error: no component is called `firmwar.gpu`"),
        (GOOD.replace("@running", ""), "is not component[instance]@layer"),
        (GOOD.replace("2026-12-31", "never"), "expires"),
        (GOOD.replace("reason: OPS-77, ", ""), "reason` is missing"),
        (GOOD.replace("OPS-77", '"x"'), "reason"),
        (f"{GOOD}, {GOOD}", "is waived twice"),
    ],
)
def test_what_is_wrong_with_a_waiver_is_said_with_its_line(tmp_path: Path, written: str, said: str) -> None:
    (problem,) = _fleet(tmp_path, written)
    assert said in problem
    assert problem.startswith("test.yaml:9: ")
