"""RPM repositories as createrepo_c makes them: versions, closures, boolean requirements, checksums, signatures."""

from __future__ import annotations

import gzip
import hashlib
import re
import shutil
import subprocess
import xml.sax.saxutils as saxutils
from collections.abc import Iterator
from pathlib import Path

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from lockstep.base import errors
from lockstep.cli import main
from pinsets import fetching, load, lock_jobs, rpm, rpm_closure, rpm_repositories

pytestmark = pytest.mark.debian

SPEC = Path(__file__).parents[1] / "data" / "rpm" / "fleet.spec"
OS = "rocky-9-amd64"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of two drivers and two NCCLs, made by rpmbuild and createrepo_c."""
    if shutil.which("rpmbuild") is None or shutil.which("createrepo_c") is None:
        pytest.skip("rpmbuild (Debian: rpm) and createrepo_c (Debian: createrepo-c) are not installed")
    work = tmp_path_factory.mktemp("rpm")
    for driver, nccl in (("580.105.08", "2.28.9"), ("580.126.20", "2.27.5")):
        defines = {"_topdir": f"{work}/{driver}", "_rpmdir": f"{work}/repository", "_build_id_links": "none"}
        defines |= {"driver": driver, "nccl": nccl, "_buildhost": "localhost"}
        options = [word for name, value in defines.items() for word in ("--define", f"{name} {value}")]
        subprocess.run(
            ["rpmbuild", "-bb", "--quiet", "--target", "x86_64", *options, str(SPEC)], check=True, capture_output=True
        )
    subprocess.run(["createrepo_c", "--quiet", str(work / "repository")], check=True)
    return work / "repository"


@pytest.fixture
def repository(built: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(built, tmp_path / "repository"))


@pytest.fixture
def catalogue(tmp_path: Path) -> load.Catalogue:
    (tmp_path / "catalog").mkdir()
    return load.Catalogue(tmp_path / "catalog", tmp_path / "locks")


def _lock(catalogue: load.Catalogue, repository: Path, pins: str) -> lock_jobs.Made:
    (catalogue.pinsets / "p.yaml").write_text(f"pinset: p\nsku: [lab-b300]\npins:\n{pins}")
    found = lock_jobs.Sources(rpm=(fetching.Source(f"file:{repository}"),))
    (made,) = lock_jobs.run([lock_jobs.Target("p", OS)], found, catalogue)
    return made


def _refused(catalogue: load.Catalogue, repository: Path, pins: str) -> str:
    with pytest.raises(errors.InputError) as caught:
        _lock(catalogue, repository, pins)
    assert not catalogue.locks.exists(), "nothing is written"
    return caught.value.diagnostics()


def test_a_lock_over_a_real_rpm_repository_holds_exact_files_and_the_closure(
    catalogue: load.Catalogue, built: Path
) -> None:
    lock = _lock(catalogue, built, "  driver: {version: 580.105.08}\n").lock
    assert {package.name: (package.version, package.pinned) for package in lock.packages} == {
        "nvidia-driver-cuda": ("3:580.105.08-1.el9", True),
        "kmod-nvidia-open-dkms": ("3:580.105.08-1.el9", True),
        "libnvidia-ml": ("3:580.105.08-1.el9", True),
        # By its path, and of the driver's version although a newer one is there.
        "nvidia-persistenced": ("3:580.105.08-1.el9", False),
    }
    for package in lock.packages:
        data = (built / package.filename).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (package.sha256, package.size)
    assert lock.external == ("/bin/sh", "dkms >= 3 or kernel-devel", "libc.so.6(GLIBC_2.34)(64bit)")


def test_a_condition_that_becomes_true_asks_for_more(catalogue: load.Catalogue, built: Path) -> None:
    lock = _lock(catalogue, built, "  driver: {version: 580.126.20}\n  nvlsm: {version: 2025.06.5}\n").lock
    assert {package.name: package.version for package in lock.packages}["nvidia-fabric-manager"] == "3:580.126.20-1.el9"


def test_a_kernel_is_found_by_what_uname_prints(catalogue: load.Catalogue, built: Path) -> None:
    lock = _lock(catalogue, built, "  kernel: {version: 5.14.0-570.12.1.el9_6.x86_64}\n").lock
    assert [package.version for package in lock.packages] == ["5.14.0-570.12.1.el9_6"]


def test_the_same_repository_gives_the_same_lock(catalogue: load.Catalogue, built: Path) -> None:
    first = _lock(catalogue, built, "  nccl: {version: 2.28.9}\n")
    again = _lock(catalogue, built, "  nccl: {version: 2.28.9}\n")
    assert first.lock == again.lock
    assert (first.written, again.written) == (True, False)


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        (
            "  cuda: {version: 13.0.2, layers: [package]}\n",
            "cuda-toolkit-13-0 cannot carry a pin: its description says",
        ),
        ("  nccl: {version: 2.20.5}\n", "package libnccl has no version 2.20.5"),
        ("  dcgm: {version: 4.5.2}\n", "no repository of the fleet has package"),
        (
            "  efa: {version: 3.1.0, layers: [package]}\n",
            "`without` in '(rdma-core without rdma-core-legacy)' is not handled",
        ),
        (
            "  driver: {version: 580.105.08}\n  nvlsm: {version: 2025.06.5}\n  fabricmanager: {version: 580.126.20}\n"
            "rules: {F1: this test is about packages alone}\n",
            "needs nvidia-fabric-manager = 3:580.105.08: nvidia-fabric-manager 3:580.126.20-1.el9 is pinned",
        ),
    ],
)
def test_what_cannot_be_locked_is_said_and_nothing_written(
    catalogue: load.Catalogue, built: Path, pins: str, message: str
) -> None:
    assert message in _refused(catalogue, built, pins)


def test_an_os_of_rpms_needs_an_rpm_repository(catalogue: load.Catalogue) -> None:
    (catalogue.pinsets / "p.yaml").write_text("pinset: p\nsku: [lab-b300]\npins:\n  nccl: {version: 2.28.9}\n")
    with pytest.raises(errors.InputError, match="names no rpm repository, which rocky-9-amd64 needs"):
        list(lock_jobs.run([lock_jobs.Target("p", OS)], lock_jobs.Sources(), catalogue))


def test_the_verb_locks_a_fleet_of_rpm_hosts(
    built: Path,
    checkout: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("Pulumi.yaml", "pyproject.toml"):
        shutil.copy(checkout / name, tmp_path)
    for folder in ("inventory/fleets", "pinsets/catalog"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pinsets/catalog/p.yaml").write_text(
        "pinset: p\nsku: [lab-b300]\npins:\n  driver: {version: 580.105.08}\n"
        "  fabricmanager: {version: 580.105.08, layers: [package]}\n"
    )
    (tmp_path / "inventory/fleets/f.yaml").write_text(
        f"fleet: f\nrepositories:\n  - {{rpm: 'file:{built}'}}\npools:\n  - name: p\n    sku: lab-b300\n"
        f"    os: {OS}\n    pinset: p\n    nodes:\n      n1: {{}}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKSTEP_ROOT", str(tmp_path))
    assert main.run(["check", "f"]) == 2, "there is no lock yet"
    capsys.readouterr()
    assert main.run(["pin", "lock", "f"]) == 0
    said = capsys.readouterr().out
    assert f"p@{OS}.json: written; 5 packages" in said
    assert "left to the OS image: /bin/sh, dkms >= 3 or kernel-devel" in said
    assert main.run(["check", "f"]) == 0
    capsys.readouterr()
    assert main.run(["pin", "export", "dnf", "p"]) == 0
    assert "nvidia-fabric-manager-3:580.105.08-1.el9.*" in capsys.readouterr().out


def _primary(repository: Path) -> Path:
    (found,) = (repository / "repodata").glob("*primary.xml.gz")
    return found


def _repack(repository: Path, name: str, data: bytes) -> None:
    """The primary index under another name, with repomd.xml fitting to it."""
    old = _primary(repository)
    repomd = repository / "repodata" / "repomd.xml"
    was = hashlib.sha256(old.read_bytes()).hexdigest()
    text = repomd.read_text().replace(was, hashlib.sha256(data).hexdigest())
    repomd.write_text(re.sub(r'href="repodata/[^"]*primary\.xml\.gz"', f'href="repodata/{name}"', text))
    old.unlink()
    (repository / "repodata" / name).write_bytes(data)


def test_an_index_packed_with_zstd_is_the_same(repository: Path, built: Path) -> None:
    _repack(repository, "primary.xml.zst", zstd.compress(gzip.decompress(_primary(repository).read_bytes())))
    source = fetching.Source(f"file:{repository}")
    assert rpm_repositories.read(source).packages == rpm_repositories.read(fetching.Source(f"file:{built}")).packages


@pytest.mark.parametrize("name", ["primary.xml.zst", "primary.xml.gz", "primary.xml.xz", "primary.xml.bz2"])
def test_a_damaged_index_is_refused(repository: Path, name: str) -> None:
    _repack(repository, name, b"damaged")
    with pytest.raises(errors.InputError, match=r"primary\.xml\.\w+ cannot be unpacked"):
        rpm_repositories.read(fetching.Source(f"file:{repository}"))


def test_an_index_that_does_not_have_its_checksum_is_refused(repository: Path) -> None:
    _primary(repository).write_bytes(gzip.compress(b"<metadata/>"))
    with pytest.raises(errors.InputError, match=r"does not have the checksum its repomd\.xml gives"):
        rpm_repositories.read(fetching.Source(f"file:{repository}"))


def test_a_repository_without_sha256_is_refused(repository: Path) -> None:
    subprocess.run(["createrepo_c", "--quiet", "-s", "sha512", str(repository)], check=True)
    with pytest.raises(errors.InputError, match="lists no sha256 for repodata"):
        rpm_repositories.read(fetching.Source(f"file:{repository}"))


def test_module_streams_are_said_to_be_not_looked_at(repository: Path, catalogue: load.Catalogue) -> None:
    streams = repository / "modules.yaml"
    streams.write_text("document: modulemd-defaults\nversion: 1\ndata: {module: nvidia-driver, stream: open-dkms}\n")
    subprocess.run(["modifyrepo_c", "--mdtype=modules", str(streams), str(repository / "repodata")], check=True)
    (note,) = _lock(catalogue, repository, "  nccl: {version: 2.28.9}\n").notes
    assert "module streams, which are not looked at" in note
    assert "module_hotfixes=1" in note


@pytest.fixture
def key(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """(GnuPG home, armoured public key)."""
    if shutil.which("gpg") is None or shutil.which("gpgv") is None:
        pytest.skip("gpg and gpgv are not installed")
    home = tmp_path / "gnupg"
    home.mkdir(mode=0o700)
    base = ["gpg", "--homedir", str(home), "--batch", "--quiet"]
    made = [*base, "--passphrase", "", "--quick-generate-key", "test <test@localhost>", "ed25519", "sign", "0"]
    subprocess.run(made, check=True)
    public = tmp_path / "key.asc"
    public.write_bytes(subprocess.run([*base, "--armor", "--export"], check=True, capture_output=True).stdout)
    yield home, public
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "gpg-agent"], check=False)


def test_a_signed_repomd_is_proved_with_the_fleets_key(repository: Path, key: tuple[Path, Path]) -> None:
    home, public = key
    source = fetching.Source(f"file:{repository}", key=public)
    with pytest.raises(errors.InputError, match=r"has no repodata/repomd\.xml\.asc"):
        rpm_repositories.read(source)
    repomd = repository / "repodata" / "repomd.xml"
    sign = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--detach-sign", "--armor", str(repomd)]
    subprocess.run(sign, check=True)
    assert len(rpm_repositories.read(source).packages) == 18
    repomd.write_text(repomd.read_text().replace("<revision>", "<revision>1"))
    with pytest.raises(errors.InputError, match="is not signed by"):
        rpm_repositories.read(source)


# Boolean requirements, without a repository.


def _package(
    name: str, version: str, *requires: str, provides: tuple[rpm.Entry, ...] = (), **more: object
) -> rpm.Package:
    def entry(text: str) -> rpm.Entry:
        words = text.split()
        return rpm.Entry(*words) if len(words) == 3 and not text.startswith("(") else rpm.Entry(text)

    return rpm.Package(
        name=name,
        version=version,
        architecture="x86_64",
        filename=f"{name}.rpm",
        sha256=hashlib.sha256(f"{name}{version}".encode()).hexdigest(),
        size=1,
        installed=1,
        requires=tuple(map(entry, requires)),
        provides=(rpm.Entry(name, "=", version), *provides),
        **more,  # type: ignore[arg-type]
    )


def _closure(*packages: rpm.Package) -> tuple[set[str], set[str], list[str]]:
    """Closure of the first one over all."""
    index = rpm_closure.Index()
    index.add(packages, "x86_64")
    found = index.resolve({packages[0].name: packages[0]})
    return {f"{one.name} {one.version}" for one in found.packages.values()}, found.external, found.problems


@pytest.mark.parametrize(
    ("requirement", "chosen"),
    [
        ("(b and c)", {"b 2-1", "c 1-1"}),
        ("(missing or c)", {"c 1-1"}),
        ("(c or b)", {"c 1-1"}),
        ("(b if a)", {"b 2-1"}),
        ("(b if missing)", set()),
        ("(b if missing else c)", {"c 1-1"}),
        ("(b >= 1 with b < 2)", {"b 1-1"}),
        ("((b and c) if (a or missing))", {"b 2-1", "c 1-1"}),
        ("(libx.so.1()(64bit) or missing)", {"c 1-1"}),
    ],
)
def test_boolean_requirements_are_decided(requirement: str, chosen: set[str]) -> None:
    found, _, problems = _closure(
        _package("a", "9-1", requirement),
        _package("b", "1-1"),
        _package("b", "2-1"),
        _package("c", "1-1", provides=(rpm.Entry("libx.so.1()(64bit)"),)),
    )
    assert found == {"a 9-1", *chosen}
    assert problems == []


@pytest.mark.parametrize(
    "requirement", ["(b without c)", "(b unless c)", "(b and c or d)", "(b", "(b and)", "(b) c", "((b and c) with d)"]
)
def test_a_boolean_requirement_that_is_not_handled_is_a_problem(requirement: str) -> None:
    _, _, problems = _closure(_package("a", "1-1", requirement), _package("b", "1-1"))
    assert len(problems) == 1
    assert problems[0].startswith(f"a 1-1 needs {requirement}: ")


def test_a_long_chain_of_requirements_is_followed_to_its_end() -> None:
    chain = [_package(f"p{n}", "1-1", f"p{n + 1}", f"(p{n + 2} if p{n + 1})") for n in range(1500)]
    found, external, problems = _closure(*chain)
    assert len(found) == 1500
    assert external == {"p1500"}
    assert problems == []


def test_packages_that_conflict_or_replace_each_other_are_a_problem() -> None:
    _, _, problems = _closure(
        _package("a", "2-1", "b", "old", conflicts=(rpm.Entry("b", "<", "2"),), obsoletes=(rpm.Entry("old"),)),
        _package("b", "1-1"),
        _package("old", "1-1"),
    )
    assert problems == ["a 2-1 conflicts with b 1-1", "a 2-1 replaces old 1-1"]


@given(st.text(alphabet="ab()<>= ifelsandorwth", max_size=30))
def test_no_text_makes_the_reader_of_boolean_requirements_fail_otherwise(text: str) -> None:
    try:
        rpm_closure.parse_rich(text)
    except rpm_closure.RichError:
        return


@given(st.binary(max_size=200), st.text(max_size=40))
def test_no_metadata_makes_the_readers_fail_otherwise(data: bytes, text: str) -> None:
    quoted = saxutils.quoteattr("".join(one for one in text if one.isprintable()))
    primary = (
        '<metadata xmlns="http://linux.duke.edu/metadata/common" xmlns:rpm="http://linux.duke.edu/metadata/rpm">'
        f"<package type='rpm'><name>a</name><arch>x86_64</arch><version epoch={quoted} ver={quoted} rel={quoted}/>"
        f"<checksum type='sha256'>{'0' * 64}</checksum><size package={quoted} installed='1'/>"
        f"<location href={quoted}/><format><rpm:requires><rpm:entry name={quoted} flags='GE' ver={quoted}/>"
        "</rpm:requires></format></package></metadata>"
    ).encode()
    said = []
    for read, content in ((rpm.parse_repomd, data), (rpm.parse_primary, data), (rpm.parse_primary, primary)):
        try:
            read(content, "place")
        except ValueError as error:
            said.append(str(error))
    assert all(text.startswith("place") for text in said)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<!DOCTYPE x [<!ENTITY a 'b'>]><x/>", "a document type"),
        (b"not xml", "is no XML"),
        (b"<repomd/>", "lists no files"),
        (b'<repomd xmlns="http://linux.duke.edu/metadata/repo"><data type="primary"/></repomd>', "names no file"),
        (
            b'<repomd xmlns="http://linux.duke.edu/metadata/repo"><data type="primary">'
            b'<location href="../../etc/passwd"/></data></repomd>',
            "leads out of the repository",
        ),
    ],
)
def test_metadata_that_lies_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rpm.parse_repomd(data, "repomd.xml")
