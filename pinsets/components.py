"""``components.yaml`` → components by name, and the packages that carry them."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from lockstep.base import documents, issues
from lockstep.base.names import ComponentName
from pinsets.model import Component, ComponentsFile

__all__ = ["RPM_FAMILIES", "carriers", "family", "load", "patterns"]

RPM_FAMILIES: Final = frozenset({"rhel", "rocky", "almalinux", "centos", "amzn", "azurelinux", "fedora", "sles"})
"""Families of OS names whose packages are RPMs; every other one is taken for Debian's."""
_PLACEHOLDER = re.compile(r"\{(version|major|minor|cuda)\}")


@functools.cache
def load() -> Mapping[ComponentName, Component]:
    """The registry. Raises `errors.InputError` when the shipped file is damaged."""
    report = issues.Report()
    path = Path(__file__).with_name("components.yaml")
    document = documents.load(path, report, shown="pinsets/components.yaml")
    file = document.model(ComponentsFile, report) if document else None
    report.raise_if_errors("the registry of components")
    assert file is not None  # noqa: S101 - without errors there is a model
    return MappingProxyType({ComponentName(name): component for name, component in file.components.items()})


_LIKE: Final = MappingProxyType(
    {
        "ubuntu": "debian",
        "dgx": "debian",
        **dict.fromkeys(("almalinux", "amzn", "azurelinux", "centos", "fedora", "ol", "rocky", "sles"), "rhel"),
    }
)
"""Distribution → the one whose packages it takes, where the registry has none of its own."""


def family(os_name: str) -> str:
    """``ubuntu-24.04-amd64`` → ``ubuntu``."""
    return os_name.partition("-")[0]


def _templates(component: Component, os_name: str) -> tuple[str, ...]:
    name = family(os_name)
    if name in component.packages:
        return component.packages[name]
    like = _LIKE.get(name)
    return component.packages.get(like, ()) if like else ()


def carriers(component: Component, os_name: str, version: str, cuda: str | None = None) -> tuple[str, ...]:
    """Packages that carry ``version`` of a component on that OS, the one that names the version first.

    ``cuda`` is the version of CUDA pinned beside it; None: packages named by its
    major number are left out.
    """
    parts = version.split(".")
    values = {"version": version, "major": parts[0], "minor": parts[1] if len(parts) > 1 else "0"}
    if cuda is not None:
        values["cuda"] = cuda.split(".")[0]
    return tuple(
        _PLACEHOLDER.sub(lambda match: values[match[1]], template)
        for template in _templates(component, os_name)
        if cuda is not None or "{cuda}" not in template
    )


def patterns(component: Component, os_name: str) -> tuple[str, ...]:
    """The same for any version, ``*`` for what depends on it: as `dpkg-query` takes them."""
    return tuple(_PLACEHOLDER.sub("*", template) for template in _templates(component, os_name))


def named_by_version(component: Component, os_name: str) -> bool:
    """Whether the first carrier's name holds the whole version (kernels): its package version is another number."""
    templates = _templates(component, os_name)
    return bool(templates) and "{version}" in templates[0]
