"""The arrows of ARCHITECTURE.md: import-linter's contracts, and the files that alone may touch a heavy library."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("lockstep", "inventory", "pinsets", "placement", "manifests", "bringup", "stacks", "lab")

ALONE: dict[str, tuple[str, ...]] = {
    "paramiko": ("bringup/transport/",),
    "ansible_runner": ("bringup/playbooks.py",),
    "securesystemslib": ("pinsets/signing.py",),
    "sqlalchemy": ("lockstep/base/journal",),
    "ruamel": ("lockstep/base/",),
    "ClusterShell": ("lockstep/base/hostranges.py",),
    "lightkube": ("bringup/cluster", "placement/controller/", "placement/ledger/", "lab/"),
    "jinja2": ("manifests/",),
    "pulumi": ("stacks/",),
    "pulumi_kubernetes": ("stacks/",),
    "grpc": ("stacks/",),
    "typer": ("lockstep/cli/",),
    "rich": ("lockstep/cli/",),
}


def _sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def _imports(source: Path) -> Iterator[tuple[str, int]]:
    """Top-level names that a file imports, late imports inside functions included, with the line."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.split(".")[0], node.lineno


def strangers(files: dict[str, list[tuple[str, int]]]) -> list[str]:
    """``path:line imports NAME`` for each import of a heavy library outside its own place."""
    return [
        f"{path}:{line} imports {name}; it belongs to {', '.join(ALONE[name])}"
        for path, found in files.items()
        for name, line in found
        if name in ALONE and not path.startswith(ALONE[name])
    ]


def test_each_heavy_library_is_imported_in_its_own_place_only() -> None:
    files = {str(source.relative_to(ROOT)): list(_imports(source)) for source in _sources()}
    assert len(files) > 20
    assert strangers(files) == []


def test_a_planted_import_is_found() -> None:
    assert strangers({"pinsets/compare.py": [("paramiko", 3)]}) == [
        "pinsets/compare.py:3 imports paramiko; it belongs to bringup/transport/"
    ]


def test_the_contracts_between_folders_are_kept() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_each_folder_says_what_it_is_and_what_it_may_import(package: str) -> None:
    text = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text()))
    assert text
    assert len(text) > 40
