"""Secrets come by reference and print as stars; paths come from the environment, once."""

from __future__ import annotations

import sys
from pathlib import Path

import pydantic
import pytest

from lockstep.base import credentials, errors, settings


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hunter2\n")
    file.chmod(0o644)
    with pytest.raises(errors.InputError, match="read by others") as caught:
        credentials.resolve(credentials.Reference(file=file), place="bmc")
    assert caught.value.hint == f"chmod 600 {file}"
    file.chmod(0o600)
    secret = credentials.resolve(credentials.Reference(file=file), place="bmc")
    assert secret.get_secret_value() == "hunter2"
    assert "hunter2" not in repr(secret)
    assert "hunter2" not in str(secret)


def test_an_environment_variable_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BMC_PASSWORD", raising=False)
    with pytest.raises(errors.InputError, match="BMC_PASSWORD is not set"):
        credentials.resolve(credentials.Reference(env="BMC_PASSWORD"), place="bmc")
    monkeypatch.setenv("BMC_PASSWORD", "x")
    assert credentials.resolve(credentials.Reference(env="BMC_PASSWORD"), place="bmc").get_secret_value() == "x"


def test_a_command_that_fails_does_not_show_half_a_secret() -> None:
    script = "print('half a secret'); raise SystemExit(3)"
    with pytest.raises(errors.InputError) as caught:
        credentials.resolve(credentials.Reference(command=(sys.executable, "-c", script)), place="bmc")
    assert "half a secret" not in caught.value.diagnostics()
    assert "ended with 3" in caught.value.diagnostics()


@pytest.mark.parametrize("given", [{}, {"env": "A", "file": "b"}, {"command": []}])
def test_a_reference_is_exactly_one_of_the_three(given: dict[str, object]) -> None:
    with pytest.raises(pydantic.ValidationError):
        credentials.Reference.model_validate(given)


def test_the_checkout_is_found_above_and_state_lies_in_it(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").touch()
    (tmp_path / "inventory").mkdir()
    below = tmp_path / "docs" / "adr"
    below.mkdir(parents=True)
    found = settings.load({"HOME": "/home/a"}, below)
    assert (found.checkout, found.state) == (tmp_path, tmp_path / ".lockstep")
    assert found.cache == Path("/home/a/.cache/lockstep")
    assert found.labs == Path("/var/lib/lockstep/labs")


def test_the_environment_moves_state_cache_and_labs(tmp_path: Path) -> None:
    env = {"LOCKSTEP_STATE": "/s", "XDG_CACHE_HOME": "/c", "LOCKSTEP_LABS": "/l", "HOME": "/h"}
    found = settings.load(env, tmp_path)
    assert (found.state, found.cache, found.labs) == (Path("/s"), Path("/c/lockstep"), Path("/l"))
    with pytest.raises(errors.InputError, match="works inside a checkout"):
        found.need_checkout("lab")


def test_a_root_without_a_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InputError, match="no checkout"):
        settings.load({"LOCKSTEP_ROOT": str(tmp_path)}, tmp_path)


def test_a_checkout_of_another_version_is_refused_with_both(tmp_path: Path) -> None:
    (tmp_path / "inventory").mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: lockstep\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "lockstep-fleet"\nversion = "9.9.9"\n')
    found = settings.load({"LOCKSTEP_ROOT": str(tmp_path)})
    with pytest.raises(errors.InputError, match=r"version 9\.9\.9") as caught:
        found.need_checkout("up")
    assert caught.value.hint is not None
    assert ".venv/bin/lockstep" in caught.value.hint
