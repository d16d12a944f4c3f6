"""`tests/conftest.py` itself: a required tier that is skipped or empty fails the run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CASE = """
import pytest

@pytest.mark.lab
def test_needs_a_lab():
    pytest.skip("not today")

def test_needs_nothing():
    pass

@pytest.mark.registry
def test_of_the_registry():
    pass

@pytest.mark.slow
def test_takes_long():
    raise AssertionError("only when asked for")
"""


def _run(folder: Path, checkout: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    (folder / "tests").mkdir(parents=True)
    shutil.copy(checkout / "tests" / "conftest.py", folder / "tests" / "conftest.py")
    (folder / "tests" / "test_case.py").write_text(CASE)
    shutil.copy(checkout / "pyproject.toml", folder / "pyproject.toml")
    env = {key: value for key, value in os.environ.items() if key != "LOCKSTEP_REQUIRE_TIERS"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]
    return subprocess.run(command, cwd=folder, env={**env, **environ}, capture_output=True, text=True, check=False)


def test_a_skip_is_only_a_skip_where_nothing_is_required(tmp_path: Path, checkout: Path) -> None:
    done = _run(tmp_path, checkout)
    assert done.returncode == 0, done.stdout
    assert "2 passed, 1 skipped, 1 deselected" in done.stdout


def test_a_skip_in_a_required_tier_fails_with_its_reason(tmp_path: Path, checkout: Path) -> None:
    done = _run(tmp_path, checkout, LOCKSTEP_REQUIRE_TIERS="lab")
    assert done.returncode == 1
    assert "lab must run (LOCKSTEP_REQUIRE_TIERS) but: " in done.stdout
    assert "1 failed, 2 passed, 1 deselected" in done.stdout


def test_a_required_tier_without_a_test_fails(tmp_path: Path, checkout: Path) -> None:
    done = _run(tmp_path, checkout, "-k", "nothing", LOCKSTEP_REQUIRE_TIERS="engine")
    assert done.returncode == 1
    assert "no test of these required tiers ran: engine" in done.stdout


def test_an_unknown_tier_is_a_usage_error(tmp_path: Path, checkout: Path) -> None:
    done = _run(tmp_path, checkout, LOCKSTEP_REQUIRE_TIERS="labs")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no tier is called labs" in done.stderr


def test_slow_tests_run_when_asked_for(tmp_path: Path, checkout: Path) -> None:
    done = _run(tmp_path, checkout, "-m", "slow")
    assert done.returncode == 1
    assert "only when asked for" in done.stdout


@pytest.mark.parametrize("words", [(), ("-n", "2", "--dist", "loadfile")])
def test_a_tier_of_which_a_test_ran_in_any_process_is_satisfied(
    tmp_path: Path, checkout: Path, words: tuple[str, ...]
) -> None:
    done = _run(tmp_path, checkout, *words, "-k", "of_the_registry", LOCKSTEP_REQUIRE_TIERS="registry")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    lacking = _run(tmp_path / "lacking", checkout, *words, "-k", "nothing", LOCKSTEP_REQUIRE_TIERS="registry")
    assert lacking.returncode == 1, lacking.stdout
    assert "no test of these required tiers ran: registry" in lacking.stdout
