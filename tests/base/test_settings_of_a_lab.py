"""A lab's fleet is read with the lab's own state, unless the environment says otherwise."""

from __future__ import annotations

from pathlib import Path

from lockstep.base import settings


def test_a_labs_state_is_its_own_unless_the_environment_names_another(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "LOCKSTEP_LABS": str(tmp_path / "labs")}
    (tmp_path / "labs" / "lab").mkdir(parents=True)
    (tmp_path / "labs" / "lab" / "lab.json").write_text("{}")
    plain = settings.load(environ, tmp_path)
    assert plain.of_fleet("lab").state == tmp_path / "labs" / "lab"
    assert plain.of_fleet("prod").state == plain.state == tmp_path / ".lockstep"
    named = settings.load(environ | {"LOCKSTEP_STATE": str(tmp_path / "elsewhere")}, tmp_path)
    assert named.of_fleet("lab").state == tmp_path / "elsewhere"
