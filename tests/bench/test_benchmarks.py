"""The list of benchmarks and the form of a row; no benchmark runs here."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
from pathlib import Path

import pytest

import bench
from bench import rows
from bench.__main__ import main, names

HELPERS = {"__init__", "__main__", "api_stub", "preview_peer", "processes", "rows"}
HELPERS |= {f"audit_ssh_{part}" for part in ("bad", "client", "peers", "site", "sweep")}


def test_every_file_is_a_benchmark_in_the_list_or_a_known_helper(capsys: pytest.CaptureFixture[str]) -> None:
    files = {path.stem for path in Path(bench.__path__[0]).glob("*.py")}
    assert set(names()) == files - HELPERS
    assert main([]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == sorted(names())
    assert all(len(line.split()) > 3 for line in shown), "each says what it measures"


@pytest.mark.parametrize("name", sorted(names()))
def test_a_benchmark_takes_quick_and_does_nothing_when_imported(name: str) -> None:
    module = importlib.import_module(f"bench.{name}")
    assert list(inspect.signature(module.rows).parameters) == ["quick"]
    assert inspect.isgeneratorfunction(module.rows)
    assert module.__all__
    assert "rows" in module.__all__


@pytest.mark.parametrize(("what", "unit"), [(what, unit) for what, units in rows.UNITS.items() for unit in units])
def test_a_row_of_each_measurement_is_shown_with_its_factor_and_written(what: str, unit: str, tmp_path: Path) -> None:
    row = rows.Row("100", what, unit, 2.0, 5.0, "a peer")
    assert rows.table([row]).splitlines()[1].split() == ["100", what, unit, "2", "5", "a", "peer", "2.5"]
    rows.write([row], tmp_path / "rows.json")
    assert json.loads((tmp_path / "rows.json").read_text()) == [dataclasses.asdict(row)]


def test_a_row_without_a_peer_has_no_factor() -> None:
    assert rows.table([rows.Row("8", "wall", "s", 250.4)]).splitlines()[1].split() == [
        "8",
        "wall",
        "s",
        "250",
        "–",
        "–",
    ]


@pytest.mark.parametrize(
    ("what", "unit", "peer", "peer_name"),
    [
        ("wall", "ms", None, None),
        ("speed", "s", None, None),
        ("cpu", "s", 1.0, None),
        ("cpu", "s", None, "a peer"),
    ],
)
def test_a_row_of_another_form_is_refused(what: str, unit: str, peer: float | None, peer_name: str | None) -> None:
    with pytest.raises(ValueError, match=r"no known measurement|with its name"):
        rows.Row("1", what, unit, 1.0, peer, peer_name)


def test_an_unknown_benchmark_is_a_usage_error_that_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["nothing"])
    assert ended.value.code == 2
    assert "audit_ssh" in capsys.readouterr().err
