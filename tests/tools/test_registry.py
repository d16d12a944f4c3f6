"""`tools/programs.yaml` fits its modules, its modules fit the wheels, and mistakes in it are named."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from lockstep.base import errors
from lockstep.base.programs import recipes


def test_every_family_has_a_module_whose_versions_resolve(checkout: Path) -> None:
    tools = checkout / "tools"
    registry = recipes.load(tools)
    for family in registry.families:
        assert re.fullmatch(r"[0-9a-f]{16}", recipes.digest(tools, registry, family))
        values = recipes.variables(tools, family).values()
        assert [value for value in values if "{" in value] == []
        assert (family.package == ".") == (tools / family.module / "main.go").is_file()
    folders = {path.name for path in tools.iterdir() if path.is_dir()}
    assert folders == {family.module for family in registry.families}


def test_the_modules_need_no_newer_go_than_the_project_says(checkout: Path) -> None:
    for go_mod in (checkout / "tools").glob("*/go.mod"):
        line = next(line for line in go_mod.read_text().splitlines() if line.startswith("go "))
        assert tuple(map(int, line.removeprefix("go ").split("."))) <= (1, 26, 8), go_mod


def test_wheel_and_plugin_of_the_kubernetes_provider_are_one_version(checkout: Path) -> None:
    tools = checkout / "tools"
    family = recipes.load(tools).family_of("pulumi-resource-kubernetes")
    assert isinstance(family, recipes.Family)
    plugin = next(iter(recipes.variables(tools, family).values()))
    engine = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["optional-dependencies"]["engine"]
    assert f"pulumi-kubernetes=={plugin.removeprefix('v')}" in engine


def test_kubernetes_says_the_version_that_its_module_pins(checkout: Path) -> None:
    tools = checkout / "tools"
    family = recipes.load(tools).family_of("kube-apiserver")
    assert isinstance(family, recipes.Family)
    said = {name.rpartition(".")[2]: value for name, value in recipes.variables(tools, family).items()}
    major, minor, _ = said["gitVersion"].removeprefix("v").split(".")
    assert (said["gitMajor"], said["gitMinor"]) == (major, minor)


def test_no_module_file_replaces_a_module_by_a_folder(checkout: Path) -> None:
    # A folder would be copied source; only versions of the same modules may stand in a replace.
    for go_mod in (checkout / "tools").glob("*/go.mod"):
        for line in go_mod.read_text().splitlines():
            if "=>" in line:
                assert re.search(r"=> \S+ v\S+$", line), f"{go_mod}: {line}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("module: hello", "modul: hello"), r"unknown key `families\.0\.modul`"),
        (("seconds: 60", "seconds: soon"), r"`families\.0\.seconds`"),
        (("companions: [hello]", "companions: [later]"), "greeter: later is made by no family before it"),
    ],
)
def test_mistakes_in_the_registry_are_named_with_their_line(
    checkout: Path, tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    text = (checkout / "tests" / "data" / "tools" / recipes.REGISTRY).read_text()
    assert change[0] in text
    (tmp_path / recipes.REGISTRY).write_text(text.replace(*change, 1))
    with pytest.raises(errors.InputError) as caught:
        recipes.load(tmp_path)
    assert re.search(rf"{recipes.REGISTRY}:\d+: error: .*{message}", caught.value.diagnostics())
