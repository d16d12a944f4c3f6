"""The hashed requirement files fit what pyproject.toml asks for; `make requirements` writes them anew."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def _wanted(project: dict[str, object], file: str) -> list[str]:
    meta = project["project"]
    assert isinstance(meta, dict)
    if file == "base":
        return list(meta["dependencies"])
    if file == "all":
        return [*meta["dependencies"], *(line for lines in meta["optional-dependencies"].values() for line in lines)]
    groups = project["dependency-groups"]
    assert isinstance(groups, dict)
    return list(groups[file])


@pytest.mark.parametrize("file", ["base", "all", "uv", "go", "kubectl"])
def test_every_declared_dependency_is_pinned_at_an_allowed_version(checkout: Path, file: str) -> None:
    project = tomllib.loads((checkout / "pyproject.toml").read_text())
    text = (checkout / "requirements" / f"{file}.txt").read_text()
    pins = dict(re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;]+)", text, re.MULTILINE))
    for line in _wanted(project, file):
        requirement = Requirement(line)
        pinned = pins.get(canonicalize_name(requirement.name))
        assert pinned is not None, f"{requirement.name} is not in {file}.txt: make requirements"
        assert requirement.specifier.contains(pinned, prereleases=True), (
            f"{requirement} but {pinned}: make requirements"
        )


def test_what_audit_installs_holds_no_engine(checkout: Path) -> None:
    text = (checkout / "requirements" / "base.txt").read_text()
    for name in ("pulumi", "ansible-core", "ansible-runner", "lightkube", "grpcio", "numpy", "jinja2"):
        assert not re.search(rf"^{name}==", text, re.MULTILINE), name
