"""What a module says it offers is what it has."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

PACKAGES = ("lockstep", "inventory", "pinsets", "placement", "manifests", "bringup", "stacks", "lab")


def _modules() -> list[str]:
    names = []
    for package in PACKAGES:
        names.append(package)
        found = importlib.import_module(package)
        for entry in pkgutil.walk_packages(found.__path__, f"{package}."):
            if not entry.name.endswith("__main__") and "stand_ins" not in entry.name:
                names.append(entry.name)
    return names


@pytest.mark.parametrize("name", _modules())
def test_all_is_sorted_and_every_name_in_it_exists(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    exported = getattr(module, "__all__", None)
    if exported is None:
        return
    assert sorted(exported) == list(exported) or sorted(exported, key=_natural) == list(exported)
    assert [entry for entry in exported if not hasattr(module, entry)] == []


def _natural(name: str) -> tuple[int, str]:
    """ruff's order: CONSTANTS, Classes, functions."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)
