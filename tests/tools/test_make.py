"""The Makefile's few words and what they run, in order."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

WORDS = ("lab", "test", "check", "slow", "docs")


def _make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *words], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def fresh(checkout: Path, tmp_path: Path) -> Path:
    """A clone without its environment: what make reads, and nothing else."""
    shutil.copy(checkout / "Makefile", tmp_path)
    shutil.copy(checkout / "pyproject.toml", tmp_path)
    shutil.copytree(checkout / "requirements", tmp_path / "requirements")
    return tmp_path


def test_make_alone_explains_its_words(checkout: Path) -> None:
    done = _make(checkout)
    assert done.returncode == 0
    assert [line.split()[1] for line in done.stdout.splitlines()] == list(WORDS)


@pytest.mark.parametrize(
    ("word", "steps"),
    [
        ("lab", ["venv.sh", "debian.sh", "tools build", "lab up", "up lab", "audit lab"]),
        ("test", ["venv.sh", "debian.sh", "tools build", "pytest"]),
        ("slow", ["venv.sh", "debian.sh", "tools build", "pytest", "-m slow"]),
        ("check", ["venv.sh", "ruff format --check", "ruff check", "mypy", "lint-imports", "generate.py --check"]),
        ("docs", ["venv.sh", "generate.py"]),
    ],
)
def test_in_a_fresh_clone_each_word_does_everything_in_order(fresh: Path, word: str, steps: list[str]) -> None:
    said = _make(fresh, "-n", word).stdout
    places = [said.find(step) for step in steps]
    assert -1 not in places, said
    assert places == sorted(places), said


def test_a_step_that_is_done_is_not_done_again_until_its_files_change(fresh: Path) -> None:
    said = _make(fresh, "-n", "docs").stdout
    stamp = re.search(r"touch (\S+)", said)
    assert stamp is not None
    (fresh / ".venv").mkdir()
    (fresh / stamp[1]).touch()
    assert "venv.sh" not in _make(fresh, "-n", "docs").stdout
    with (fresh / "requirements" / "all.txt").open("a") as file:
        file.write("# changed\n")
    assert "venv.sh" in _make(fresh, "-n", "docs").stdout


def test_an_old_python_is_refused_with_the_way_out(fresh: Path, tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = _make(fresh, "docs", f"PYTHON={old}")
    assert done.returncode != 0
    assert f"{old} is missing or older than 3.11; name another: make PYTHON=…" in done.stderr
    assert not (fresh / ".venv").exists()


def test_the_project_names_one_place_for_debian_packages(checkout: Path) -> None:
    text = (checkout / "requirements" / "debian.txt").read_text()
    names = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert names == sorted(set(names))
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", name) for name in names)
