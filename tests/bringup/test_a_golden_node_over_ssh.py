"""`lockstep pin from-node` reads a machine through a real sshd, with and without a fleet file."""

from __future__ import annotations

import getpass
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.bringup import answers
from tests.bringup.servers import BIND, Sshd

LOCKSTEP = Path(sys.executable).with_name("lockstep")


@pytest.fixture
def place(sshd: Sshd, tmp_path: Path) -> Path:
    """A home whose ssh configuration leads every host to the test's sshd, and an empty folder to stand in."""
    ssh = tmp_path / "home" / ".ssh"
    ssh.mkdir(parents=True)
    (tmp_path / "here").mkdir()
    (ssh / "known_hosts").write_text(f"[{BIND}]:{sshd.port} {sshd.keys.public('host')}\n")
    (ssh / "config").write_text(
        f"Host *\n  HostName {BIND}\n  Port {sshd.port}\n  User {getpass.getuser()}\n"
        f"  IdentityFile {sshd.keys.user}\n  IdentitiesOnly yes\n"
    )
    return tmp_path


def _run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {"HOME": str(place / "home"), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    return subprocess.run(
        [str(LOCKSTEP), "pin", "from-node", *arguments],
        env=environ,
        cwd=place / "here",
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_host_gives_the_versions_that_it_runs_with_their_source(place: Path) -> None:
    done = _run(place, "gpu-001", "--sku", "lab-gb200", "--name", "golden")
    assert done.returncode == 0, done.stderr
    found = yaml.safe_load(done.stdout)
    assert found["pinset"] == "golden"
    assert found["source"].startswith("node gpu-001, read 2")
    assert found["pins"]["kernel"]["version"] == platform.release()
    assert found["pins"]["kernel"]["source"]
    assert "os" in found["pins"]
    assert "dgx-os: absent on the node" in done.stdout, "what is not there is listed, not pinned"
    assert list((place / "here").iterdir()) == []


def test_a_node_of_a_fleet_needs_no_lock_and_takes_its_pools_sku(place: Path, sshd: Sshd) -> None:
    ssh = f"{{user: {getpass.getuser()}, port: {sshd.port}, identity: {{file: {sshd.keys.user}}}}}"
    path = answers.fleet_file(place / "here", {"gpu-001": ""}, ssh)
    done = _run(place, "gpu-001", "--fleet", str(path), "--name", "golden")
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["sku"] == [yaml.safe_load(path.read_text())["pools"][0]["sku"]]


def test_a_host_that_does_not_answer_is_not_measured(place: Path) -> None:
    (place / "home" / ".ssh" / "known_hosts").write_text("")
    done = _run(place, "gpu-001", "--sku", "lab-gb200", "--name", "golden")
    assert done.returncode == 3
    assert "gpu-001 did not answer: host key unknown" in done.stderr
    assert done.stdout == ""
