"""`lockstep audit` as a program: hosts without a fleet file, forms, exit codes, nothing left behind."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.bringup import answers
from tests.bringup.servers import BIND, Sshd

ENGINE = ("pulumi", "pulumi_kubernetes", "grpc", "ansible", "ansible_runner", "lightkube", "numpy", "scipy", "jinja2")
READING = ("paramiko", "pydantic", "sqlalchemy", "ruamel", "bringup.reading")

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
        [str(LOCKSTEP), "audit", *arguments], env=environ, cwd=place / "here", capture_output=True, text=True
    )


def test_hosts_need_no_fleet_file_and_nothing_is_written(place: Path) -> None:
    done = _run(place, "--hosts", "gpu-[001-003]")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 nodes: 3 admit" in done.stdout
    assert "kernel" in done.stdout
    assert done.stderr == "", "no progress where no person looks"
    assert list((place / "here").iterdir()) == []
    assert sorted(path.name for path in (place / "home").rglob("*")) == [".ssh", "config", "known_hosts"]


def test_the_nodes_of_a_partition_are_read_over_ssh_at_slurms_addresses(place: Path) -> None:
    """The words of sinfo are played here; the real one is in sources/test_hosts_of_a_slurm_partition."""
    (place / "bin").mkdir()
    sinfo = place / "bin" / "sinfo"
    sinfo.write_text(f"#!/bin/sh\n[ \"$4\" = gpu ] && printf 'gpu-1|{BIND}|idle\\ngpu-2|{BIND}|drained\\n'\n")
    sinfo.chmod(0o755)
    environ = {"HOME": str(place / "home"), "PATH": f"{place / 'bin'}:{os.environ['PATH']}", "LANG": "C.UTF-8"}
    words = [str(LOCKSTEP), "audit", "--slurm", "gpu", "--format", "json"]
    done = subprocess.run(words, env=environ, cwd=place / "here", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (pool,) = json.loads(done.stdout)["pools"]
    assert {node["name"]: node["verdict"] for node in pool["nodes"]} == {"gpu-1": "admit", "gpu-2": "admit"}


def test_a_host_that_does_not_answer_is_told_with_its_reason(place: Path) -> None:
    with (place / "home" / ".ssh" / "config").open("r+") as file:
        text = file.read()
        file.seek(0)
        file.write("Host gone\n  Port 1\n" + text)
    done = _run(place, "--hosts", "gpu-[001-002],gone", "--timeout", "10")
    assert done.returncode == 3
    assert "unreachable" in done.stdout
    assert "refused: nothing listens on port 1" in done.stdout


def test_an_unknown_host_key_is_refused(place: Path) -> None:
    (place / "home" / ".ssh" / "known_hosts").write_text("")
    done = _run(place, "--hosts", "gpu-001")
    assert done.returncode == 3
    assert "host key unknown" in done.stdout
    assert "SHA256:" in done.stdout


def test_json_and_junit_are_whole_documents(place: Path) -> None:
    data = json.loads(_run(place, "--hosts", "gpu-[001-002]", "--format", "json").stdout)
    assert data["fleet"] is None
    assert [node["name"] for node in data["pools"][0]["nodes"]] == ["gpu-001", "gpu-002"]
    root = ElementTree.fromstring(_run(place, "--hosts", "gpu-001", "--format", "junit").stdout)
    assert root.get("tests") == "1"


def test_a_snapshot_is_saved_only_when_asked_for(place: Path) -> None:
    done = _run(place, "--hosts", "gpu-001", "--save", "here.jsonl.gz")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (place / "here").iterdir()] == ["here.jsonl.gz"]


def test_a_fleet_file_is_read_over_ssh(place: Path, sshd: Sshd) -> None:
    ssh = f"{{user: {getpass.getuser()}, port: {sshd.port}, identity: {{file: {sshd.keys.user}}}}}"
    path = answers.fleet_file(place / "here", {"gpu-001": "", "gpu-002": ", state: held, holder: ops"}, ssh)
    done = _run(place, str(path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "burnin: none" in done.stdout
    assert "apart: gpu-002 (held by ops)" in done.stdout
    assert f"expected {answers.lock_version('driver')}" in done.stdout
    assert [path.name for path in (place / "here").iterdir()] == ["test.yaml"], "no state folder beside it"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give a FLEET, or one of --hosts"),
        (("lab", "--hosts", "x"), "give a FLEET, or one of --hosts"),
        (("--hosts", "x", "--pool", "p"), "need a FLEET"),
        (("--hosts", "gpu-[001"), "not a host range"),
        (("--hosts", "x", "--format", "yaml"), "yaml"),
        (("nowhere.yaml",), "nowhere.yaml"),
        (("--from-dir", ".", "--transport", "openssh", "--deep"), "--deep, --transport: nothing is read over SSH"),
        (("--prometheus", "http://x", "--accept-new-host-keys"), "nothing is read over SSH"),
        (("lab", "--facts", "snapshot", "--timeout", "3"), "--timeout: nothing is read over SSH"),
        (("--kube-context", "x", "--shard", "1/2"), "nothing is read from nodes"),
        (("--hosts", "x", "--statements", "s"), "goes with --sign"),
    ],
)
def test_wrong_usage_is_exit_code_two(place: Path, arguments: tuple[str, ...], said: str) -> None:
    done = _run(place, *arguments)
    assert done.returncode == 2
    assert said in done.stderr


def test_no_library_of_the_engine_is_imported() -> None:
    code = (
        "import sys\nfrom lockstep.cli import main, audit, audit_table, probe, progress\n"
        "from bringup import audit, reading, report, report_junit, hostkeys, assignments\n"
        "from bringup.transport import ssh\n"
        f"print(sorted(set({ENGINE!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_help_imports_no_engine_and_no_reading() -> None:
    code = (
        "import sys\nfrom lockstep.cli import main\nmain.run(['audit', '--help'])\n"
        f"print(sorted(set({READING!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "lockstep audit --hosts" in done.stdout


def test_probe_print_shows_the_script_that_is_sent(place: Path) -> None:
    from bringup import probe
    from pinsets import components

    done = subprocess.run([str(LOCKSTEP), "probe", "print"], capture_output=True, text=True, check=True)
    assert done.stdout == probe.script(components.load())
