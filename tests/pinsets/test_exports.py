"""Exports: real apt takes the preferences, YAML reads back, and nothing that moves is written."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from lab import packages as lab_packages
from lockstep.cli import main
from pinsets import exporting, load
from pinsets.model import Lock, LockedPackage, Pinset

PINSET = "2026-09-lab-gb200"
OS = "debian-12-amd64"


@pytest.fixture(scope="module")
def pinset() -> Pinset:
    return load.pinset(PINSET)


@pytest.fixture(scope="module")
def lock() -> Lock:
    return load.lock(PINSET, OS)


def _apt(root: Path, *words: str) -> str:
    options = {
        "Dir::State": root / "state",
        "Dir::State::status": root / "status",
        "Dir::Cache": root / "cache",
        "Dir::Etc": root / "etc",
        "Dir::Log": root / "log",
        "APT::Architecture": "amd64",
        "APT::Sandbox::User": "root",
    }
    given = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    done = subprocess.run([words[0], *given, *words[1:]], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.skipif(shutil.which("apt-cache") is None, reason="apt is not installed")
def test_real_apt_chooses_the_locks_version_although_a_newer_one_is_there(
    pinset: Pinset, lock: Lock, tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    lab_packages.build(repository)
    lab_packages.index(repository)
    for folder in ("state/lists/partial", "cache/archives/partial", "etc/preferences.d", "etc/apt.conf.d", "log"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "status").touch()
    (tmp_path / "etc" / "sources.list").write_text(f"deb [trusted=yes] file:{repository} ./\n")
    _apt(tmp_path, "apt-get", "update")
    newest = _apt(tmp_path, "apt-cache", "policy", "nvidia-imex")
    assert "Candidate: 580.105.08-1" not in newest
    (tmp_path / "etc" / "preferences.d" / "lockstep").write_text(exporting.render("apt", pinset, lock))
    for package in lock.packages:
        said = _apt(tmp_path, "apt-cache", "policy", package.name)
        assert f"Candidate: {package.version}\n" in said, said


def test_apt_and_dnf_say_which_lock_they_are_from(pinset: Pinset, lock: Lock) -> None:
    text = exporting.render("apt", pinset, lock)
    assert lock.full in text
    assert f"# apt-mark hold {' '.join(package.name for package in lock.packages)}\n" in text
    assert text.count("Pin-Priority: 1001") == len(lock.packages)
    with pytest.raises(ValueError, match="apt needs exact packages"):
        exporting.render("apt", pinset, None)
    with pytest.raises(ValueError, match="whose packages are Debian's"):
        exporting.render("dnf", pinset, lock)


def test_dnfs_lines_have_epoch_version_and_release(pinset: Pinset, lock: Lock) -> None:
    packages = tuple(
        LockedPackage(name=name, version=version, filename=f"{name}.rpm", sha256="0" * 64, size=1, pinned=True)
        for name, version in (("libnccl", "2.28.9-1+cuda13.0"), ("nvidia-driver-cuda", "3:580.105.08-1.el9"))
    )
    lines = exporting.render("dnf", pinset, lock.model_copy(update={"packages": packages})).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "libnccl-0:2.28.9-1+cuda13.0.*",
        "nvidia-driver-cuda-3:580.105.08-1.el9.*",
    ]


def test_ansibles_variables_read_back(pinset: Pinset, lock: Lock) -> None:
    found = yaml.safe_load(exporting.render("ansible", pinset, lock))
    assert all(name.startswith("lockstep_") for name in found)
    assert found["lockstep_lock"] == lock.full
    assert found["lockstep_versions"]["driver"] == "580.105.08"
    assert {(one["name"], one["version"], one["sha256"]) for one in found["lockstep_packages"]} == {
        (package.name, package.version, package.sha256) for package in lock.packages
    }
    bare = yaml.safe_load(exporting.render("ansible", pinset, None))
    assert set(bare) == {"lockstep_pinset", "lockstep_versions"}


def test_the_operators_values_are_those_of_its_own_release() -> None:
    found = yaml.safe_load(exporting.render("gpu-operator", load.pinset("gpu-operator-26.7.0"), None))
    assert found["driver"] == {"version": "595.91.07"}
    assert found["toolkit"] == {"version": "v1.20.0"}
    assert found["dcgm"] == {"version": "4.6.0-1"}
    assert found["dcgmExporter"] == {"version": "4.6.0-4.8.3"}


def test_a_containers_arguments_are_exact_and_name_the_job_digest(pinset: Pinset, lock: Lock) -> None:
    text = exporting.render("container", pinset, lock)
    arguments = dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))
    assert arguments["NCCL_VERSION"] == "2.28.9"
    assert arguments["NCCL_PACKAGE"] == "libnccl2=2.28.9-1+cuda13.0"
    assert arguments["LOCKSTEP_JOB_DIGEST"] == lock.job


@pytest.mark.parametrize("form", sorted(exporting.FORMS))
def test_the_verb_writes_a_file_or_prints(
    form: str, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(checkout)
    if form in ("dnf", "gpu-operator"):
        expected = {"dnf": 2, "gpu-operator": 0}[form]
        assert main.run(["pin", "export", form, PINSET]) == expected
        return
    assert main.run(["pin", "export", form, PINSET]) == 0
    printed = capsys.readouterr().out
    assert main.run(["pin", "export", form, PINSET, "--os", OS, "--output", str(tmp_path / "file")]) == 0
    assert (tmp_path / "file").read_text() == printed
