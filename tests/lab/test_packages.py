"""The stand-in packages: same bytes anywhere, readable by dpkg, what the committed locks name."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from lab import debs, elf, packages


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    packages.build(folder)
    packages.index(folder)
    return folder


def _members(path: Path) -> dict[str, bytes]:
    """The members of an ar archive."""
    raw, at, found = path.read_bytes(), 8, {}
    while at < len(raw):
        head = raw[at : at + 60]
        size = int(head[48:58])
        found[head[:16].decode().strip()] = raw[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    return found


def test_two_builds_in_different_folders_give_the_same_bytes(built: Path, tmp_path: Path) -> None:
    again = tmp_path / "a folder with another name"
    paths = packages.build(again)
    assert len(paths) > 50
    for path in paths:
        assert path.read_bytes() == (built / path.name).read_bytes(), path.name


def test_every_package_that_a_committed_lock_names_has_its_sha256(built: Path, checkout: Path) -> None:
    compared = 0
    for file in sorted((checkout / "pinsets" / "locks").glob("*-lab-*.json")):
        for entry in json.loads(file.read_text())["packages"]:
            content = (built / Path(entry["filename"]).name).read_bytes()
            assert hashlib.sha256(content).hexdigest() == entry["sha256"], f"{file.name}: {entry['filename']}"
            compared += 1
    assert compared > 0


def test_members_are_stored_plain_owned_by_root_and_dated_alike(built: Path) -> None:
    for path in sorted(built.glob("*.deb")):
        members = _members(path)
        assert list(members) == ["debian-binary", "control.tar", "data.tar"]
        for name in ("control.tar", "data.tar"):
            with tarfile.open(fileobj=io.BytesIO(members[name])) as archive:
                for entry in archive:
                    assert (entry.uid, entry.gid, entry.uname, entry.gname) == (0, 0, "root", "root"), entry.name
                    assert entry.mtime == debs.SOURCE_DATE_EPOCH
                    assert entry.mode in (0o644, 0o755, 0o777)


def test_dpkg_reads_every_package_and_agrees_with_its_name(built: Path) -> None:
    paths = sorted(built.glob("*.deb"))
    for path in paths:
        shown = subprocess.run(
            ["dpkg-deb", "--show", "--showformat=${Package}_${Version}_${Architecture}", str(path)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"{shown.stdout}.deb" == path.name
        subprocess.run(["dpkg-deb", "--contents", str(path)], capture_output=True, check=True)


def test_the_index_names_every_package_once_with_its_size_and_digest(built: Path) -> None:
    paragraphs = (built / "Packages").read_text().strip().split("\n\n")
    named = {}
    for paragraph in paragraphs:
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines())
        named[fields["Filename"].removeprefix("./")] = (int(fields["Size"]), fields["SHA256"])
    expected = {
        path.name: (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()) for path in built.glob("*.deb")
    }
    assert named == expected
    release = (built / "Release").read_text()
    index = (built / "Packages").read_bytes()
    assert f" {hashlib.sha256(index).hexdigest()} {len(index)} Packages" in release


def test_every_family_has_several_versions_in_both_driver_lines() -> None:
    versions: dict[str, list[str]] = {}
    for package in packages.all_packages():
        versions.setdefault(package.name, []).append(package.version)
    for name in ("nvidia-driver-cuda", "nvidia-fabricmanager", "nvidia-imex"):
        assert {"580", "610"} <= {version.split(".")[0] for version in versions[name]}
    for name in ("libnccl2", "nvidia-container-toolkit", "kubelet", "kubeadm", "linux-image-amd64"):
        assert len(set(versions[name])) >= 3, name


def test_a_stand_in_library_is_an_elf_file_with_its_soname() -> None:
    content = elf.shared_object("libx.so.7", b"hello")
    assert content.startswith(b"\x7fELF")
    assert b"libx.so.7\0" in content
    assert content.endswith(b"hello")
