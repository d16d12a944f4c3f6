"""The verbs that only read files: what they print, and with which exit code they leave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockstep.cli import main

DATA = Path(__file__).parents[1] / "data" / "fleets"


@pytest.fixture(autouse=True)
def _in_the_checkout(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout)


def test_check_says_what_it_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["check", "lab"]) == 0
    assert "2 pools, 8 nodes, 2 NVLink domains; nothing wrong" in capsys.readouterr().out


def test_check_prints_every_error_and_leaves_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["check", str(DATA / "invalid" / "everything_at_once.yaml")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert len([line for line in lines if ": error: " in line]) == 7
    assert lines[-1].endswith("7 errors; nothing was touched")


def test_check_gives_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["check", str(DATA / "invalid" / "unknown_sku.yaml"), "--format", "json"]) == 2
    (issue,) = json.loads(capsys.readouterr().out)["issues"]
    assert (issue["line"], issue["severity"], issue["hint"]) == (4, "error", "did you mean `lab-gb200`?")


def test_show_as_json_is_exactly_the_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["show", "lab", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["fleet", "nodes"]
    assert found["fleet"] == "lab"
    assert found["nodes"][4] == {
        "name": "gpu-005",
        "pool": "blackwell",
        "slot": "r1-u05",
        "address": "127.90.0.5",
        "domain": "r1",
        "spare": True,
    }
    assert len(found["nodes"]) == 8


def test_show_as_a_tree_names_every_node(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["show", "lab"]) == 0
    said = capsys.readouterr().out
    assert all(f"gpu-{number:03}" in said for number in (1, 2, 3, 4, 5, 101, 102, 103))
    assert "spare" in said


@pytest.mark.parametrize("words", [["show", "lab", "--format", "xml"], ["show", "nowhere"], ["check", "no/such.yaml"]])
def test_wrong_words_leave_with_two(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(words) == 2
    assert capsys.readouterr().err


def test_pin_query_says_the_value_and_the_line_that_gave_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["pin", "query", "2026-10-lab-gb200", "nccl"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "nccl 2.28.9"
    assert said[1].strip().startswith("from pinsets/catalog/2026-09-lab-gb200.yaml:")


def test_pin_list_show_and_lint_read_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["pin", "list", "--format", "json"]) == 0
    rows = {row["pinset"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["2026-09-lab-gb200"]["locks"] == ["debian-12-amd64"]
    assert main.run(["pin", "show", "2026-10-lab-gb200", "--format", "json"]) == 0
    pins = {pin["component"]: pin["version"] for pin in json.loads(capsys.readouterr().out)["pins"]}
    assert (pins["driver"], pins["nccl"]) == ("580.126.20", "2.28.9")
    assert main.run(["pin", "lint"]) == 0


def test_pin_diff_leaves_with_one_when_a_pin_differs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["pin", "diff", "2026-09-lab-gb200", "2026-10-lab-gb200"]) == 1
    assert "580.126.20" in capsys.readouterr().out
    assert main.run(["pin", "diff", "2026-09-lab-gb200", "2026-09-lab-gb200"]) == 0


def test_import_prints_a_fleet_file_and_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "hosts.ini"
    file.write_text("[gpu]\nn[1:2] ansible_user=root rack=7\n")
    (tmp_path / "group_vars").mkdir()
    assert main.run(["import", "ansible", str(file), "--fleet", "site"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("fleet: site\nssh: {user: root}\npools:\n  - name: gpu\n")
    assert "group_vars/ beside the inventory is not read" in said.err
    assert "`rack`" in said.err
