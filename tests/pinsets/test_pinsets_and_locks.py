"""Pinset files: inheritance, lint, and locks that are exact, committed and never stale unseen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inventory import load as fleets
from lab import packages as lab_packages
from lockstep.base import errors, issues, settings
from pinsets import apt, canonical, load, lock_jobs, locking, repositories

OS = "debian-12-amd64"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lab's package repository, built anew."""
    folder = tmp_path_factory.mktemp("repository")
    lab_packages.build(folder)
    lab_packages.index(folder)
    return folder


@pytest.fixture
def catalogue(tmp_path: Path) -> load.Catalogue:
    """An empty catalogue."""
    (tmp_path / "catalog").mkdir()
    return load.Catalogue(tmp_path / "catalog", tmp_path / "locks")


def _write(catalogue: load.Catalogue, name: str, pins: str, more: str = "") -> None:
    text = f"pinset: {name}\nsku: [lab-gb200]\n{more}pins:\n{pins}"
    (catalogue.pinsets / f"{name}.yaml").write_text(text)


def _issues(catalogue: load.Catalogue, name: str) -> list[str]:
    report = issues.Report()
    load.read_pinset(name, catalogue, report)
    return [issue.text().replace(f"{catalogue.pinsets}/", "") for issue in report.ordered()]


def test_a_base_gives_what_a_pinset_does_not_say_and_every_value_has_its_line(catalogue: load.Catalogue) -> None:
    _write(catalogue, "a", "  driver: {version: 580.95.05}\n  nccl: {version: 2.28.9}\n")
    _write(catalogue, "b", "  driver: {version: 580.105.08}\n", "base: a\n")
    _write(catalogue, "c", "  cuda: {version: 13.0.2}\n", "base: b\n")
    found = load.resolved("c", catalogue)
    assert {name: pin.version for name, pin in found.pinset.pins.items()} == {
        "cuda": "13.0.2",
        "driver": "580.105.08",
        "nccl": "2.28.9",
    }
    assert {name: str(origin).rpartition("/")[2] for name, origin in found.origins.items()} == {
        "cuda": "c.yaml:5",
        "driver": "b.yaml:5",
        "nccl": "a.yaml:5",
    }
    assert found.chain == ("c", "b", "a")


def test_a_base_that_goes_round_in_a_circle_is_named(catalogue: load.Catalogue) -> None:
    _write(catalogue, "a", "  {}\n", "base: b\n")
    _write(catalogue, "b", "  {}\n", "base: a\n")
    assert _issues(catalogue, "a") == ["b.yaml:3: error: `base` goes round in a circle: a → b → a"]


def test_a_base_that_is_not_there_is_named(catalogue: load.Catalogue) -> None:
    _write(catalogue, "2026-09-x", "  {}\n", "base: 2026-08-x\n")
    assert _issues(catalogue, "2026-09-x") == [
        "2026-09-x.yaml:3: error: there is no pinset `2026-08-x` (did you mean `2026-09-x`?)"
    ]


@pytest.mark.parametrize(
    ("pin", "reason"),
    [
        ("driver: {version: '>=580'}", "`driver`: a range is no version: '>=580'"),
        ("driver: {version: '580.95.05, 580.105.08'}", "a range is no version"),
        ("driver: {version: '580.95 - 580.105'}", "a range is no version"),
        ("driver: {version: '580.*'}", "a wildcard is no version"),
        ("driver: {version: 580.x}", "a wildcard is no version"),
        ("driver: {version: latest}", "a moving name is no version"),
        ("driver: {version: '580'}", "a branch is no version"),
        ("driver: {version: ''}", "the version is empty"),
        ("driver: {version: 580.95.05, package: '~580'}", "a range is no version"),
        ("driver: {version: 580.95}", "write it in quotes"),
        ("driver: {version: 580.95.05, accept: ['>1'], source: x}", "a range is no version"),
        ("driver: {version: 580.95.05, accept: [580.105.08]}", "`accept` needs `source`"),
        ("driver: {}", "give `version` (exact)"),
        ("drivr: {version: 580.95.05}", "unknown component `drivr` (did you mean `driver`?)"),
        ("gpu: {version: '1.0'}", "`gpu` is not pinned"),
        ("driver: {version: 580.95.05, layer: [running]}", "(did you mean `layers`?)"),
        ("driver: {version: 580.95.05, layers: [runing]}", "got 'runing'"),
        ("driver: {version: 580.95.05, enforce: maybe}", "got 'maybe'"),
    ],
)
def test_what_is_no_exact_pin_is_refused_with_its_line(catalogue: load.Catalogue, pin: str, reason: str) -> None:
    _write(catalogue, "p", f"  nccl: {{version: 2.28.9}}\n  {pin}\n")
    found = _issues(catalogue, "p")
    assert len(found) == 1, found
    assert found[0].startswith("p.yaml:5: error: "), found
    assert reason in found[0]


@pytest.mark.parametrize(
    "pin",
    [
        "driver: {version: '595.80'}",
        "nccl: {version: '22809'}",
        "kernel: {version: 6.1.0-41-amd64, package: 6.1.158-1}",
        "firmware.bmc: {version: gb200nvl-24.08-2}",
        "container-toolkit: {version: 1.18.0~rc.1-1}",
        "firmware.gpu: {version: 97.00.B9.00.69, accept: [97.00.C0.00.01], source: release notes}",
    ],
)
def test_exact_versions_of_every_form_are_taken(catalogue: load.Catalogue, pin: str) -> None:
    _write(catalogue, "p", f"  {pin}\n")
    assert _issues(catalogue, "p") == []


def test_an_unknown_pinset_names_the_one_that_was_meant() -> None:
    with pytest.raises(errors.InputError) as caught:
        load.pinset("2026-09-lab-gb20")
    assert "did you mean `2026-09-lab-gb200`?" in caught.value.diagnostics()


@pytest.mark.parametrize(
    "name", [path.stem.partition("@")[0] for path in sorted(load.default_catalogue().locks.glob(f"*@{OS}.json"))]
)
def test_every_committed_lock_is_what_a_fresh_repository_gives(name: str, repository: Path) -> None:
    index = apt.Index()
    index.add(repositories.packages(repositories.Source(f"file:{repository}"), "amd64"), "amd64")
    made = locking.make(load.pinset(name), OS, index, name)
    committed = load.lock_path(name, OS).read_text()
    assert canonical.to_json(made) == committed, "run `lockstep pin lock lab` against this repository"
    assert load.lock(name, OS) == made
    for package in made.packages:
        assert (repository / package.filename).stat().st_size == package.size


def _locked(catalogue: load.Catalogue, repository: Path, name: str) -> lock_jobs.Made:
    found = lock_jobs.Sources(apt=(repositories.Source(f"file:{repository}"),))
    (made,) = lock_jobs.run([lock_jobs.Target(name, OS)], found, catalogue)
    return made


def test_a_pin_that_does_not_mean_the_package_brings_none(catalogue: load.Catalogue, repository: Path) -> None:
    _write(
        catalogue,
        "p",
        "  driver: {version: 595.91.07, layers: [running], source: an operator's container}\n"
        "  container-toolkit: {version: 1.20.0, layers: [ondisk]}\n",
    )
    lock = _locked(catalogue, repository, "p").lock
    assert lock.packages == ()
    assert {pin.component for pin in lock.pins} == {"driver", "container-toolkit"}


def test_a_lock_holds_the_closure_and_says_what_carries_a_pin(catalogue: load.Catalogue, repository: Path) -> None:
    _write(catalogue, "p", "  container-toolkit: {version: 1.18.1}\n")
    lock = _locked(catalogue, repository, "p").lock
    assert {package.name: package.pinned for package in lock.packages} == {
        "libnvidia-container-tools": False,
        "libnvidia-container1": False,
        "nvidia-container-toolkit": True,
        "nvidia-container-toolkit-base": False,
    }
    assert {package.version for package in lock.packages} == {"1.18.1-1"}
    assert _locked(catalogue, repository, "p").written is False


def test_the_address_of_a_repository_is_not_in_the_digest(
    catalogue: load.Catalogue, repository: Path, tmp_path: Path
) -> None:
    _write(catalogue, "p", "  nccl: {version: 2.28.9}\n")
    first = _locked(catalogue, repository, "p").lock
    mirror = tmp_path / "mirror"
    mirror.symlink_to(repository)
    assert _locked(catalogue, mirror, "p").lock == first


def test_a_missing_a_stale_and_an_edited_lock_are_refused(catalogue: load.Catalogue, repository: Path) -> None:
    _write(catalogue, "p", "  nccl: {version: 2.28.9}\n")
    with pytest.raises(errors.InputError, match="there is no lock") as caught:
        load.lock("p", OS, catalogue)
    assert caught.value.hint == "lockstep pin lock FLEET --pinset p"
    assert caught.value.exit_code is errors.ExitCode.BAD_INPUT
    made = _locked(catalogue, repository, "p")
    assert load.lock("p", OS, catalogue) == made.lock
    _write(catalogue, "p", "  nccl: {version: 2.28.9, why: Words do not make a lock stale.}\n")
    assert load.lock("p", OS, catalogue) == made.lock
    _write(catalogue, "p", "  nccl: {version: 2.27.7}\n")
    with pytest.raises(errors.InputError, match="the lock is stale"):
        load.lock("p", OS, catalogue)
    _write(catalogue, "p", "  nccl: {version: 2.28.9}\n")
    edited = json.loads(made.path.read_text())
    edited["packages"][0]["sha256"] = "0" * 64
    made.path.write_text(json.dumps(edited))
    with pytest.raises(errors.InputError, match="edited by hand or damaged"):
        load.lock("p", OS, catalogue)
    made.path.write_text("{")
    with pytest.raises(errors.InputError, match="this is no lock"):
        load.lock("p", OS, catalogue)


@pytest.mark.parametrize(
    ("pin", "message"),
    [
        ("driver: {version: 580.1.1}", "package nvidia-driver-cuda has no version 580.1.1"),
        ("nccl: {version: 2.28.9, package: 2.28.9-2}", "package libnccl2 has no version 2.28.9-2"),
        ("nvlsm: {version: 2025.06.5}", "no repository of the fleet has package nvlsm"),
    ],
)
def test_what_no_repository_has_is_named_and_nothing_is_written(
    catalogue: load.Catalogue, repository: Path, pin: str, message: str
) -> None:
    _write(catalogue, "p", f"  {pin}\n")
    with pytest.raises(errors.InputError) as caught:
        _locked(catalogue, repository, "p")
    assert message in caught.value.diagnostics()
    assert not catalogue.locks.exists()


def test_a_meta_package_carries_no_pin(catalogue: load.Catalogue) -> None:
    _write(catalogue, "p", "  nccl: {version: 2.28.9}\n")
    text = (
        "Package: libnccl2\nVersion: 2.28.9-1\nArchitecture: amd64\nFilename: a.deb\nSize: 1\n"
        f"SHA256: {'0' * 64}\nSection: metapackages\n"
    )
    index = apt.Index()
    index.add(apt.parse_packages(text, "Packages"), "amd64")
    with pytest.raises(errors.InputError) as caught:
        locking.make(load.pinset("p", catalogue), OS, index, "p")
    assert "libnccl2 cannot carry a pin: its section is metapackages" in caught.value.diagnostics()


def test_a_toolkit_that_is_a_meta_package_says_what_to_pin_and_that_can_be_locked(catalogue: load.Catalogue) -> None:
    text = (
        "Package: cuda-toolkit-13-0\nVersion: 13.0.2-1\nArchitecture: amd64\nFilename: t.deb\nSize: 1\n"
        f"SHA256: {'0' * 64}\nDescription: CUDA Toolkit 13.0 meta-package\n\n"
        "Package: cuda-cudart-13-0\nVersion: 13.0.96-1\nArchitecture: amd64\nFilename: c.deb\nSize: 1\n"
        f"SHA256: {'1' * 64}\nDescription: CUDA Runtime native Libraries\n"
    )
    index = apt.Index()
    index.add(apt.parse_packages(text, "Packages"), "amd64")
    _write(catalogue, "meta", "  cuda: {version: 13.0.2}\n")
    with pytest.raises(errors.InputError) as caught:
        locking.make(load.pinset("meta", catalogue), OS, index, "meta")
    assert "pin `cuda` with `layers: [ondisk]`" in caught.value.diagnostics()
    pins = (
        "  cuda: {version: 13.0.2, layers: [ondisk]}\n  cuda.runtime: {version: 13.0.96, layers: [library, package]}\n"
    )
    _write(catalogue, "p", pins)
    lock = locking.make(load.pinset("p", catalogue), OS, index, "p")
    assert [(package.name, package.version, package.pinned) for package in lock.packages] == [
        ("cuda-cudart-13-0", "13.0.96-1", True)
    ]


def test_two_revisions_of_one_version_need_the_exact_one(catalogue: load.Catalogue) -> None:
    _write(catalogue, "p", "  nccl: {version: 2.28.9}\n")
    text = "".join(
        f"Package: libnccl2\nVersion: 2.28.9-{revision}\nArchitecture: amd64\nFilename: {revision}.deb\nSize: 1\n"
        f"SHA256: {revision * 64}\n\n"
        for revision in "12"
    )
    index = apt.Index()
    index.add(apt.parse_packages(text, "Packages"), "amd64")
    with pytest.raises(errors.InputError) as caught:
        locking.make(load.pinset("p", catalogue), OS, index, "p")
    assert "has 2.28.9-2, 2.28.9-1 (give the exact one as `package:`)" in caught.value.diagnostics()


def test_targets_are_the_pools_pinsets_or_those_that_fit_their_skus() -> None:
    fleet = fleets.fleet("lab", settings.load({"HOME": "/root"}, Path(__file__).parents[2]))
    catalogue = load.default_catalogue()
    assert lock_jobs.targets(fleet, catalogue) == [
        lock_jobs.Target("2026-09-lab-gb200", OS),
        lock_jobs.Target("2026-09-lab-gb300", OS),
    ]
    assert lock_jobs.targets(fleet, catalogue, ["2026-10-lab-gb200"]) == [lock_jobs.Target("2026-10-lab-gb200", OS)]
    with pytest.raises(errors.InputError, match="no pool of fleet lab has SKU lab-b300"):
        lock_jobs.targets(fleet, catalogue, ["2026-09-lab-b300"])
