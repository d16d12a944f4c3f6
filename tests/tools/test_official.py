"""Which pulumi and kubectl of PATH are used as they are, and what `link` puts into an environment."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.base import errors, programs
from lockstep.base import settings as settings_module
from lockstep.base.programs import official, recipes, toolchain

Place = Callable[[str, str], Path]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Puts a small program that says ``text`` into a folder for PATH."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        # A builtin: in some of these tests PATH holds nothing else.
        path.write_text(f"#!/bin/sh\nprintf '%s\\n' '{text}'\n")
        path.chmod(0o755)
        return path

    return write


def _kubectl_says(version: str) -> str:
    return json.dumps({"clientVersion": {"gitVersion": version}})


def test_a_supported_pulumi_with_its_language_host_is_used(place: Place) -> None:
    path = place("pulumi", "v3.181.0")
    host = place("pulumi-language-python", "")
    verdict = official.pulumi(str(path.parent))
    assert verdict == official.Verdict(path, "v3.181.0", "")
    assert official.language_host(path) == host


def test_a_linked_pulumi_has_its_host_beside_the_file_itself(place: Place, tmp_path: Path) -> None:
    path = place("pulumi", "v3.300.1")
    host = place("pulumi-language-python", "")
    links = tmp_path / "links"
    links.mkdir()
    (links / "pulumi").symlink_to(path)
    assert official.pulumi(str(links)).path == links / "pulumi"
    assert official.language_host(links / "pulumi") == host


def test_an_old_pulumi_is_not_used(place: Place) -> None:
    path = place("pulumi", "v3.180.9")
    place("pulumi-language-python", "")
    verdict = official.pulumi(str(path.parent))
    assert verdict.path is None
    assert verdict.reason == f"{path} is v3.180.9, older than 3.181"


def test_a_pulumi_without_its_language_host_is_not_used(place: Place) -> None:
    path = place("pulumi", "v3.274.1")
    assert official.pulumi(str(path.parent)).reason == f"{path} has no pulumi-language-python beside it"


def test_a_pulumi_that_does_not_run_is_not_used(place: Place) -> None:
    path = place("pulumi", "")
    path.write_text("#!/bin/sh\nexit 1\n")
    assert official.pulumi(str(path.parent)).reason == f"{path} does not say its version"


def test_our_own_build_on_path_is_not_official(place: Place) -> None:
    path = place("pulumi", "v3.274.1")
    place("pulumi-language-python", "")
    (path.parent / recipes.NOTE).write_text("{}")
    assert official.pulumi(str(path.parent)).reason == "no pulumi on PATH"


@pytest.mark.parametrize("version", ["v1.36.0", "v1.37.2", "v1.38.0", "v1.37.2-gke.100"])
def test_a_kubectl_within_one_minor_version_is_used(place: Place, version: str) -> None:
    path = place("kubectl", _kubectl_says(version))
    assert official.kubectl(37, str(path.parent)) == official.Verdict(path, version, "")


@pytest.mark.parametrize("version", ["v1.32.4-dispatcher", "v1.35.9", "v1.39.0", "v2.37.0"])
def test_a_kubectl_further_away_is_not_used(place: Place, version: str) -> None:
    path = place("kubectl", _kubectl_says(version))
    verdict = official.kubectl(37, str(path.parent))
    assert verdict.path is None
    assert verdict.reason == f"{path} is {version}, more than 1 minor version away from 1.37"


def test_a_kubectl_that_says_no_version_is_not_used(place: Place) -> None:
    path = place("kubectl", "please install a component first")
    assert official.kubectl(37, str(path.parent)).reason == f"{path} does not say its version"


def test_links_follow_what_is_built_and_make_way_for_an_official_program(
    checkout: Path, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_module.load({"XDG_CACHE_HOME": str(tmp_path / "cache")}, checkout)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    registry = recipes.load(checkout / "tools")
    family = registry.family_of("pulumi")
    assert isinstance(family, recipes.Family)
    mark = recipes.digest(checkout / "tools", registry, family)
    built = settings.cache / "tools" / "pulumi" / f"{mark}-go1.26.8"
    kubectl = toolchain.wheel_folder(checkout / "requirements" / "kubectl.txt", settings.cache) / "bin" / "kubectl"
    for path in (*[built / name for name in ("pulumi", *family.companions, recipes.NOTE)], kubectl):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    links = tmp_path / "links"
    links.mkdir()
    (links / "pulumi").symlink_to("/nonexistent/of/last/year")

    programs.link(links, settings)
    names = ["kubectl", "pulumi", "pulumi-language-python", "pulumi-language-python-exec"]
    assert sorted(path.name for path in links.iterdir()) == names
    # The CLI looks for its host beside its own file: all three must lie in one folder.
    assert {path.resolve().parent for path in links.iterdir() if path.name != "kubectl"} == {built}

    place("pulumi", "v3.200.0")
    place("pulumi-language-python", "")
    programs.link(links, settings)
    assert [path.name for path in links.iterdir()] == ["kubectl"]
    assert programs.find("pulumi", settings) == tmp_path / "bin" / "pulumi"


def test_linking_before_building_names_the_command(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = settings_module.load({"XDG_CACHE_HOME": str(tmp_path / "cache")}, checkout)
    with pytest.raises(errors.EngineError, match="pulumi is not built yet") as caught:
        programs.link(tmp_path, settings)
    assert caught.value.hint == "lockstep tools build pulumi (about 8 min when nothing is cached)"
