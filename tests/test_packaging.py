"""The top-level names are ours only inside an isolated environment; the wheel carries code and no fleet."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import stat
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NAMES = PROJECT["tool"]["uv"]["build-backend"]["module-name"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as `uv build` makes it from what git tracks."""
    uv = Path(sys.executable).parent / "uv"
    if not uv.exists():
        found = shutil.which("uv")
        if found is None:
            pytest.skip("no uv in the environment: run make")
        uv = Path(found)
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [uv, "build", "--wheel", "--quiet", "--out-dir", folder, ROOT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return next(folder.glob("lockstep_fleet-*.whl"))


def test_no_other_distribution_claims_our_names() -> None:
    claimed = importlib.metadata.packages_distributions()
    others = {name: [dist for dist in claimed.get(name, []) if dist != "lockstep-fleet"] for name in NAMES}
    assert {name: found for name, found in others.items() if found} == {}


def test_the_wheel_holds_the_listed_packages_and_no_fleet(wheel: Path) -> None:
    files = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert {name.split("/")[0] for name in files} == set(NAMES)
    assert [name for name in files if name.startswith(("inventory/fleets/", "stacks/Pulumi."))] == []
    assert [name for name in files if name.endswith((".pyc", ".so"))] == []


@pytest.mark.parametrize(
    "data",
    ["pinsets/components.yaml", "pinsets/rules/driver.yaml", "pinsets/catalog/", "pinsets/locks/", "inventory/skus/"],
)
def test_catalogue_and_registry_ship_in_the_wheel(wheel: Path, data: str) -> None:
    assert [name for name in zipfile.ZipFile(wheel).namelist() if name.startswith(data)]


def test_the_wheel_runs_from_an_empty_folder_with_base_dependencies_only(wheel: Path, tmp_path: Path) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert uv is not None
    empty = tmp_path / "empty"
    empty.mkdir()
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    base = ROOT / "requirements" / "base.txt"
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", base], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, "--no-deps", wheel], check=True)
    command = tmp_path / "env" / "bin" / "lockstep"
    for words in (["audit", "--help"], ["pin", "list"], ["--version"]):
        done = subprocess.run([command, *words], cwd=empty, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stderr)
    assert list(empty.iterdir()) == []
    names = ("pulumi", "ansible", "lightkube", "grpc", "numpy")
    heavy = f"import importlib.util as u; print([n for n in {names} if u.find_spec(n)])"
    assert subprocess.run([python, "-c", heavy], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_it_cannot_be_uploaded_by_mistake() -> None:
    assert "Private :: Do Not Upload" in PROJECT["project"]["classifiers"]
    assert PROJECT["project"]["requires-python"] == ">=3.11"


def _tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.split("\0") if name]


def test_python_files_carry_no_executable_bit() -> None:
    # Ansible executes an executable .py that it meets as an inventory source.
    marked = [str(path) for path in _tracked() if path.suffix == ".py" and path.stat().st_mode & stat.S_IXUSR]
    assert marked == []


def test_no_binary_and_no_lock_file_of_a_registry_is_tracked() -> None:
    found = []
    for path in _tracked():
        if path.name in ("uv.lock", "package-lock.json", "poetry.lock"):
            found.append(f"{path}: names a registry's host")
        if path.is_file() and b"\0" in path.read_bytes()[:4096]:
            found.append(f"{path}: binary")
    assert found == []


def test_requirement_files_pin_every_line_with_hashes_and_name_no_host() -> None:
    files = sorted((ROOT / "requirements").glob("*.txt"))
    assert files
    for file in files:
        if file.name == "debian.txt":
            continue
        text = file.read_text()
        pins = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
        assert pins, file
        assert all("==" in line for line in pins), file
        assert text.count("--hash=sha256:") >= len(pins), file
        assert "://" not in text, file


def test_modules_in_stacks_shadow_nothing_of_the_standard_library() -> None:
    # Pulumi runs the folder by path, so its files stand before the standard library on sys.path.
    names = {path.stem for path in (ROOT / "stacks").glob("*.py")} - {"__init__", "__main__"}
    assert names & set(sys.stdlib_module_names) == set()
