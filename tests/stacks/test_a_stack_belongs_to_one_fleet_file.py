"""A second fleet file of the same name is refused: to the stack its nodes would be the first one's pools, changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .engines import FLEET

pytestmark = pytest.mark.engine


def call(checkout: Path, folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """`lockstep WORDS` with a state folder of its own and no cluster."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_", "PULUMI_", "KUBE"))}
    return subprocess.run(
        [Path(sys.executable).with_name("lockstep"), *words],
        cwd=folder,
        env={**own, "LOCKSTEP_ROOT": str(checkout), "LOCKSTEP_STATE": str(folder / "state")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Two files of one fleet name."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "toy.yaml").write_text(FLEET)
    return tmp_path / "a" / "toy.yaml", tmp_path / "b" / "toy.yaml"


@pytest.mark.parametrize("verb", ["up", "env"])
def test_a_path_that_the_stack_does_not_name_is_refused_with_place_and_remedy(
    copied: Path, tmp_path: Path, files: tuple[Path, Path], verb: str
) -> None:
    first, second = files
    made = call(copied, tmp_path, "env", first)
    assert made.returncode == 0, made.stderr
    stack = copied / "stacks" / "Pulumi.toy.yaml"
    before = stack.read_text()
    assert f"lockstep:fleet: {first}" in before
    refused = call(copied, tmp_path, verb, second)
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert f"stack toy is made for the fleet file {first}, and {second} was named" in refused.stderr
    assert "stacks/Pulumi.toy.yaml" in refused.stderr
    assert f"set `lockstep:fleet: {second}` there" in refused.stderr
    assert stack.read_text() == before
    stack.write_text(before.replace(str(first), str(second)))
    remedied = call(copied, tmp_path, "env", second)
    assert remedied.returncode == 0, remedied.stderr


def test_a_named_fleets_stack_is_not_taken_over_by_a_file_elsewhere(
    copied: Path, tmp_path: Path, files: tuple[Path, Path]
) -> None:
    named = Path(shutil.copy(files[0], copied / "inventory" / "fleets" / "toy.yaml"))
    refused = call(copied, tmp_path, "env", files[1])
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert f"stack toy is made for the fleet file {named}" in refused.stderr
    assert not (copied / "stacks" / "Pulumi.toy.yaml").exists()
    by_path = call(copied, tmp_path, "env", named)
    assert by_path.returncode == 0, by_path.stderr
    assert "fleet" not in (copied / "stacks" / "Pulumi.toy.yaml").read_text()


def test_a_path_in_the_stack_file_may_be_relative_to_the_checkout(
    copied: Path, tmp_path: Path, files: tuple[Path, Path]
) -> None:
    first, second = files
    relative = os.path.relpath(first, copied)
    stack = copied / "stacks" / "Pulumi.toy.yaml"
    stack.write_text(f"config:\n  lockstep:fleet: {relative}\n")
    accepted = call(copied, tmp_path, "env", first)
    assert accepted.returncode == 0, accepted.stderr
    assert f"lockstep:fleet: {relative}" in stack.read_text()
    assert call(copied, tmp_path, "env", second).returncode == 2
