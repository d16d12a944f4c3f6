"""Packages indexes: versions in Debian's order, closures, signatures, and what may carry a pin."""

from __future__ import annotations

import hashlib
import itertools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.base import errors
from pinsets import apt, debversions, repositories

ORDER = ["1.0~rc1", "1.0", "1.0-1", "1.0-1ubuntu1", "1.0-1.1", "1.0a", "1.0+cuda13", "1.1", "1.10", "2.0", "1:0.1"]


def test_debian_versions_have_one_order() -> None:
    for (left, one), (right, other) in itertools.combinations(enumerate(ORDER), 2):
        assert left < right
        assert debversions.compare(one, other) < 0, (one, other)
        assert debversions.compare(other, one) > 0, (other, one)
    assert debversions.compare("1.0", "1.0-0") == 0
    assert debversions.compare("0:1.0", "1.0") == 0
    assert debversions.compare("1.01", "1.1") == 0


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="dpkg is not installed")
def test_the_order_is_that_of_dpkg() -> None:
    for one, other in itertools.combinations(ORDER, 2):
        done = subprocess.run(["dpkg", "--compare-versions", one, "lt", other], check=False)
        assert done.returncode == 0, (one, other)


def _package(name: str, version: str, **fields: str) -> str:
    extra = "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in fields.items())
    sha256 = hashlib.sha256(f"{name}{version}".encode()).hexdigest()
    return (
        f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nFilename: ./{name}_{version}.deb\n"
        f"Size: 10\nSHA256: {sha256}\n{extra}\n"
    )


def _index(*paragraphs: str) -> apt.Index:
    index = apt.Index()
    index.add(apt.parse_packages("".join(paragraphs), "Packages"), "amd64")
    return index


def _closure(index: apt.Index, name: str, version: str) -> apt.Resolution:
    given = next(package for package in index.versions(name) if package.version == version)
    return apt.resolve(index, {name: given})


def test_a_closure_takes_exact_and_equal_versions_and_leaves_the_image_its_own() -> None:
    index = _index(
        _package("tool", "1.0-1", Depends="base (= 1.0-1), library, libc6 (>= 2.36), sh | bash"),
        *(_package("base", version, Depends="deep") for version in ("1.0-1", "1.1-1")),
        *(_package("library", version) for version in ("0.9-1", "1.0-1", "1.1-1")),
        _package("deep", "7"),
    )
    found = _closure(index, "tool", "1.0-1")
    assert {name: package.version for name, package in found.packages.items()} == {
        "tool": "1.0-1",
        "base": "1.0-1",
        "library": "1.0-1",
        "deep": "7",
    }
    assert found.external == {"libc6 (>= 2.36)", "sh | bash"}
    assert found.problems == []


def test_a_dependency_that_contradicts_a_pin_is_a_problem() -> None:
    index = _index(_package("a", "1", Depends="b (= 2)"), _package("b", "1"), _package("b", "2"))
    one = index.versions("a")[0]
    other = next(package for package in index.versions("b") if package.version == "1")
    found = apt.resolve(index, {"a": one, "b": other})
    assert found.problems == ["a 1 needs b (= 2): b 1 is pinned or needed by another"]


def test_a_version_that_no_repository_has_is_a_problem() -> None:
    found = _closure(_index(_package("a", "1", Depends="b (>= 3)"), _package("b", "2")), "a", "1")
    assert found.problems == ["a 1 needs b (>= 3): no such version is there"]


def test_alternatives_and_virtual_packages_are_satisfied_by_what_is_there() -> None:
    index = _index(
        _package("a", "1", Pre_Depends="x | y", Depends="virtual, exact (= 2)"),
        _package("y", "1"),
        _package("real", "5", Provides="virtual, exact (= 2)"),
    )
    found = _closure(index, "a", "1")
    assert sorted(found.packages) == ["a", "real", "y"]
    assert not found.external
    assert not found.problems


def test_packages_that_cannot_be_installed_beside_each_other_are_a_problem() -> None:
    index = _index(
        _package("a", "2", Depends="b, c, d, e", Provides="mailer", Conflicts="mailer, b (<< 2)", Breaks="c (<= 1)"),
        _package("b", "1"),
        _package("c", "2"),
        _package("d", "1", Provides="mailer"),
        _package("e", "1", Conflicts="absent, a (<< 2)"),
    )
    assert _closure(index, "a", "2").problems == [
        "a 2 cannot be installed beside d 1 (it conflicts with mailer)",
        "a 2 cannot be installed beside b 1 (it conflicts with b (<< 2))",
    ]


@pytest.mark.parametrize(
    ("fields", "carries"),
    [
        ({}, True),
        ({"Section": "metapackages"}, False),
        ({"Section": "non-free/metapackages"}, False),
        ({"Description": "NVIDIA driver (transitional dummy package)"}, False),
        ({"Description": "Linux for 64-bit PCs (meta-package)"}, False),
        ({"Description": "metadata tools"}, True),
    ],
)
def test_meta_and_transitional_packages_carry_no_pin(fields: dict[str, str], carries: bool) -> None:
    (package,) = apt.parse_packages(_package("a", "1", **fields), "Packages")
    assert (package.carries_nothing is None) is carries


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Package: a\nVersion: 1\n", "a has no field"),
        (_package("a", "1").replace("Size: 10", "Size: ten"), "a: invalid literal"),
        (_package("a", "1", Depends="b (~ 1)"), "cannot read the dependency"),
        (_package("a", "1").replace("SHA256: ", "SHA256: x"), "is no sha256"),
    ],
)
def test_a_damaged_index_names_the_package(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        apt.parse_packages(text, "Packages")


def test_one_name_and_version_with_two_checksums_is_refused() -> None:
    index = _index(_package("a", "1"))
    twin = _package("a", "1").replace(hashlib.sha256(b"a1").hexdigest(), "0" * 64)
    with pytest.raises(ValueError, match="two checksums"):
        index.add(apt.parse_packages(twin, "Packages"), "amd64")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A flat repository of one package, not signed."""
    folder = tmp_path / "repository"
    folder.mkdir()
    packages = _package("a", "1").encode()
    (folder / "Packages").write_bytes(packages)
    _release(folder)
    return folder


def _release(folder: Path) -> None:
    data = (folder / "Packages").read_bytes()
    (folder / "Release").write_text(f"Suite: lab\nSHA256:\n {hashlib.sha256(data).hexdigest()} {len(data)} Packages\n")


@pytest.fixture
def key(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """(GnuPG home, armoured public key)."""
    if shutil.which("gpg") is None or shutil.which("gpgv") is None:
        pytest.skip("gpg and gpgv are not installed")
    home = tmp_path / "gnupg"
    home.mkdir(mode=0o700)
    base = ["gpg", "--homedir", str(home), "--batch", "--quiet"]
    subprocess.run(
        [*base, "--passphrase", "", "--quick-generate-key", "test <test@localhost>", "ed25519", "sign", "0"], check=True
    )
    public = tmp_path / "key.asc"
    public.write_bytes(subprocess.run([*base, "--armor", "--export"], check=True, capture_output=True).stdout)
    yield home, public
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "gpg-agent"], check=False)


def _sign(folder: Path, home: Path) -> None:
    command = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--yes", "--clearsign", "--output"]
    subprocess.run([*command, str(folder / "InRelease"), str(folder / "Release")], check=True)


def test_an_unsigned_repository_is_read_where_the_fleet_names_no_key(repository: Path) -> None:
    (package,) = repositories.packages(repositories.Source(f"file:{repository}"), "amd64")
    assert (package.name, package.filename) == ("a", "a_1.deb")


def test_a_signed_index_is_proved_with_the_fleets_key(repository: Path, key: tuple[Path, Path]) -> None:
    home, public = key
    _sign(repository, home)
    source = repositories.Source(f"file:{repository}", key=public)
    assert [package.name for package in repositories.packages(source, "amd64")] == ["a"]


def test_a_changed_release_file_is_refused(repository: Path, key: tuple[Path, Path]) -> None:
    home, public = key
    _sign(repository, home)
    signed = repository / "InRelease"
    signed.write_text(signed.read_text().replace("Suite: lab", "Suite: lob"))
    with pytest.raises(errors.InputError, match="is not signed by"):
        repositories.packages(repositories.Source(f"file:{repository}", key=public), "amd64")


def test_an_unsigned_repository_is_refused_where_the_fleet_names_a_key(
    repository: Path, key: tuple[Path, Path]
) -> None:
    with pytest.raises(errors.InputError, match=r"neither InRelease nor Release with Release\.gpg"):
        repositories.packages(repositories.Source(f"file:{repository}", key=key[1]), "amd64")


def test_an_index_that_does_not_have_its_checksum_is_refused(repository: Path) -> None:
    (repository / "Packages").write_text(_package("a", "2"))
    with pytest.raises(errors.InputError, match="does not have the checksum"):
        repositories.packages(repositories.Source(f"file:{repository}"), "amd64")


def test_a_repository_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(errors.InputError, match="there is no"):
        repositories.packages(repositories.Source(f"file:{tmp_path / 'none'}"), "amd64")
    with pytest.raises(errors.InputError, match="cannot be fetched"):
        repositories.packages(repositories.Source("http://127.0.0.1:9"), "amd64")
