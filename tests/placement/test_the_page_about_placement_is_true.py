"""docs/placement.md: its files are taken by the verbs as they stand there, and it names every gate."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lockstep.cli import main
from placement import gates

PAGE = Path(__file__).parents[2] / "docs" / "placement.md"


def _file(folder: Path, heading: str, name: str) -> str:
    """The first block of YAML under ``heading``, as a file."""
    under = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n", 1)[1]
    found = re.search(r"```yaml\n(.*?)```", under, re.DOTALL)
    assert found is not None
    (folder / name).write_text(found[1])
    return str(folder / name)


def test_the_request_and_the_situation_are_taken_and_every_gate_of_them_bites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = _file(tmp_path, "A request", "train.yaml")
    Path(request).write_text(Path(request).read_text().replace("regions: [eu]", "regions: []"))
    words = ["--nvl72", "2", "--request", request, "--situation", _file(tmp_path, "A situation", "now.yaml")]
    assert main.run(["place", "explain", *words]) == 0
    said = capsys.readouterr().out
    assert "train: placed" in said
    for gate in ("health.node", "telemetry.freshness", "tenancy"):
        assert gate in said


def test_the_jobs_are_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = _file(tmp_path, "Jobs to replay", "jobs.yaml")
    assert main.run(["place", "simulate", "--nvl72", "2", "--jobs", jobs]) == 0
    assert "2 / 0 / 0" in capsys.readouterr().out


def test_every_gate_stands_on_the_page() -> None:
    named = set(
        re.findall(r"`([a-z.-]+)`", PAGE.read_text(encoding="utf-8").split("1. **Gates**", 1)[1].split("2. ", 1)[0])
    )
    assert {gate.id for gate in (*gates.DEVICE_GATES, *gates.REQUEST_GATES)} <= named
