"""Bad pinsets, locks, lists and nodes as data: exit 2, every mistake with file and line, nothing written.

tests/data/pinsets/invalid/NAME.yaml: ``given`` (path → text of a checkout), ``locked`` (pinset → OS: a lock of it is
made), ``edited`` (path → old and new text, afterwards), ``run`` (arguments), ``said`` (texts that must stand in what is
said, in order), ``never`` (texts that must not), ``exit`` (2).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lockstep.cli import main
from pinsets import apt, load, locking

CASES = sorted((Path(__file__).parents[1] / "data" / "pinsets" / "invalid").glob("*.yaml"))


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _lay(folder: Path, given: dict[str, str]) -> None:
    for name, text in given.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem.replace("_", " "))
def test_bad_input_is_refused_and_nothing_is_written(
    path: Path, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case: dict[str, Any] = yaml.safe_load(path.read_text())
    for name in ("Pulumi.yaml", "pyproject.toml"):
        (tmp_path / name).write_bytes((checkout / name).read_bytes())
    for folder in ("inventory/fleets", "pinsets/catalog"):
        (tmp_path / folder).mkdir(parents=True)
    _lay(tmp_path, case.get("given", {}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKSTEP_ROOT", str(tmp_path))
    for pinset, os_name in case.get("locked", {}).items():
        catalogue = load.default_catalogue(tmp_path)
        lock = locking.make(load.pinset(pinset, catalogue), os_name, apt.Index(), pinset)
        locking.write(lock, load.lock_path(pinset, os_name, catalogue))
    for name, (old, new) in case.get("edited", {}).items():
        file = tmp_path / name
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))
    before = _tree(tmp_path)
    assert main.run(case["run"]) == case.get("exit", 2)
    said = capsys.readouterr()
    assert said.out == "", "what is refused prints no result"
    rest = said.err
    for text in case["said"]:
        assert text in rest, said.err
        rest = rest.partition(text)[2]
    assert not [text for text in case.get("never", ()) if text in said.err]
    assert _tree(tmp_path) == before


def test_there_are_cases() -> None:
    assert len(CASES) > 20
