"""`lockstep env`: what is exported, what a user's own variables change, and what an earlier one may not."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from lockstep.base import settings
from stacks import exports


@pytest.fixture
def where(tmp_path: Path) -> settings.Settings:
    """A checkout at a path with a blank."""
    root = tmp_path / "a checkout"
    engine = root / ".venv" / "bin" / "pulumi"
    engine.parent.mkdir(parents=True)
    engine.touch(mode=0o755)
    return settings.Settings(root, root / ".lockstep", tmp_path / "cache", tmp_path / "labs")


def place(where: settings.Settings) -> exports.Place:
    """An environment that is no lab and has no cluster."""
    return exports.Place(where.state, {}, fixed=False)


def test_state_lies_in_a_private_local_folder_by_default(where: settings.Settings) -> None:
    values = exports.variables(place(where), where, {"PATH": "/bin"})
    assert values["PULUMI_BACKEND_URL"] == f"file://{where.state}/pulumi"
    assert (where.state / "pulumi").stat().st_mode & 0o077 == 0
    assert values["LOCKSTEP_STATE"] == str(where.state)


def test_the_projects_own_python_comes_first_on_the_path(where: settings.Settings) -> None:
    values = exports.variables(place(where), where, {"PATH": "/usr/bin:/bin"})
    assert values["PATH"] == f"{where.checkout}/.venv/bin:/usr/bin:/bin"


def test_nothing_is_downloaded_or_asked_of_the_network(where: settings.Settings) -> None:
    values = exports.variables(place(where), where, {})
    assert values["PULUMI_SKIP_UPDATE_CHECK"] == "true"
    assert values["PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION"] == "true"
    assert values["PULUMI_DISABLE_REGISTRY_RESOLVE"] == "true"


def test_what_a_user_has_set_is_kept(where: settings.Settings, tmp_path: Path) -> None:
    own = {
        "PULUMI_BACKEND_URL": "s3://bucket/state",
        "PULUMI_HOME": str(tmp_path / "home"),
        "PULUMI_CONFIG_PASSPHRASE_FILE": "/secret/file",
        "LOCKSTEP_STATE": str(tmp_path / "mine"),
    }
    values = exports.variables(place(where), where, own)
    assert {name: values.get(name, own[name]) for name in own} == own
    assert "PULUMI_CONFIG_PASSPHRASE" not in values


def test_what_an_earlier_environment_set_is_nobodys_wish(where: settings.Settings, tmp_path: Path) -> None:
    lab = exports.Place(tmp_path / "labs" / "one", {}, fixed=True)
    first = exports.variables(lab, where, {"PATH": "/bin"})
    second = exports.variables(place(where), where, first)
    assert second["PULUMI_BACKEND_URL"] == f"file://{where.state}/pulumi"
    assert second["LOCKSTEP_STATE"] == str(where.state)
    assert "LOCKSTEP_STATE" not in exports.cleaned(first)


def test_a_labs_state_is_the_labs_whatever_the_user_has_set(where: settings.Settings, tmp_path: Path) -> None:
    lab = exports.Place(tmp_path / "labs" / "one", {}, fixed=True)
    values = exports.variables(lab, where, {"LOCKSTEP_STATE": "/mine"})
    assert values["LOCKSTEP_STATE"] == str(tmp_path / "labs" / "one")


def test_a_shell_takes_every_value_as_it_is(where: settings.Settings) -> None:
    values = {**exports.variables(place(where), where, {"PATH": "/bin"}), "LOCKSTEP_STATE": 'it\'s "here" $HOME `id`'}
    script = f'{exports.shell(values, {})}\nprintf %s "$LOCKSTEP_STATE"'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == values["LOCKSTEP_STATE"]


def test_what_only_the_earlier_environment_had_is_unset(where: settings.Settings) -> None:
    earlier = {exports.MARK: shlex.join(["KUBECONFIG=/lab/kubeconfig"]), "KUBECONFIG": "/lab/kubeconfig"}
    values = exports.variables(place(where), where, earlier)
    assert "KUBECONFIG" not in values
    assert "unset KUBECONFIG" in exports.shell(values, earlier).splitlines()
