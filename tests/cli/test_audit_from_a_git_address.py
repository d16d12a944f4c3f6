"""`uvx --from git+URL lockstep audit`: the front door, from a commit, with wheels and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("pulumi", "pulumi_kubernetes", "grpc", "ansible_runner", "lightkube", "numpy", "scipy", "jinja2")


@pytest.fixture(scope="module")
def uvx(checkout: Path) -> list[str]:
    """The command up to the program's own words."""
    found = shutil.which("uvx", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        pytest.skip("no uvx in the environment: run make")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=False)
    if head.returncode != 0:
        pytest.skip("not a git checkout")
    return [found, "--quiet", "--python", sys.executable, "--from", f"git+file://{checkout}@{head.stdout.strip()}"]


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def test_audit_runs_from_an_empty_folder_and_leaves_it_empty(uvx: list[str], empty: Path) -> None:
    done = subprocess.run([*uvx, "lockstep", "audit", "--help"], cwd=empty, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--hosts" in done.stdout
    assert list(empty.iterdir()) == []


def test_it_brings_no_engine_along(uvx: list[str], empty: Path) -> None:
    probe = f"import importlib.util as u; print([n for n in {HEAVY} if u.find_spec(n)])"
    done = subprocess.run([*uvx, "python", "-c", probe], cwd=empty, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_verbs_that_need_a_checkout_say_so(uvx: list[str], empty: Path) -> None:
    done = subprocess.run([*uvx, "lockstep", "tools", "status"], cwd=empty, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "works inside a checkout" in done.stderr


def test_verbs_that_need_more_than_an_audit_say_what_brings_it(uvx: list[str], empty: Path) -> None:
    words = [*uvx, "lockstep", "up", "lab"]
    done = subprocess.run(words, cwd=empty, capture_output=True, text=True, check=False)
    assert done.returncode in (2, 5)
    assert "Traceback" not in done.stderr
    assert "works inside a checkout" in done.stderr or "lockstep-fleet[" in done.stderr
