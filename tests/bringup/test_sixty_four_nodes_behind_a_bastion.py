"""A first line on a fleet that has never heard of us: 64 nodes behind a bastion, no checkout, no root there."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab import testing
from lab.faults import Kind
from tests.bringup import servers

pytestmark = [pytest.mark.lab, pytest.mark.registry, pytest.mark.slow]

UVX = Path(sys.executable).with_name("uvx")


def test_one_line_names_the_odd_ones_of_sixty_four(checkout: Path, tmp_path: Path) -> None:
    if not UVX.exists() or not (checkout / ".git").exists():
        pytest.skip("needs uvx in the environment and a git checkout")
    here, home, door = tmp_path / "here", tmp_path / "home", tmp_path / "door"
    for folder in (here, home / ".ssh", door):
        folder.mkdir(parents=True, mode=0o700)
    keys = servers.make_keys(door)
    # A bastion as they are: it shows its own disk to nobody, and refuses floods of logins.
    with servers.sshd(keys, door) as bastion, testing.fresh_lab(tmp_path, nodes=64) as lab:
        _configure(home, lab, bastion)
        silent, other = lab.nodes[6], lab.nodes[40]
        lab.break_node(silent, Kind.SSHD_HUNG)
        lab.run(other, "sh", "-c", "echo 'VERSION_ID=\"99\"' >> /etc/os-release")
        names = ",".join(lab.nodes)
        words = ["--from", f"git+file://{checkout}", "lockstep", "audit", "--hosts", names, "--format", "json"]
        environment = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        for name in [name for name in environment if name.startswith("LOCKSTEP_")] + ["SSH_AUTH_SOCK"]:
            environment.pop(name, None)
        environment["UV_CACHE_DIR"] = os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv"))
        done = subprocess.run([str(UVX), *words], cwd=here, env=environment, capture_output=True, text=True)
        assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
        report = json.loads(done.stdout)
        verdicts = {node["name"]: node["verdict"] for pool in report["pools"] for node in pool["nodes"]}
        assert len(verdicts) == 64
        assert {name for name, verdict in verdicts.items() if verdict == "unreachable"} == {silent}
        assert {name for name, verdict in verdicts.items() if verdict == "skewed"} == {other}
        assert list(here.iterdir()) == []
        assert lab.run(lab.nodes[0], "sh", "-c", "ls /dev/shm").stdout == "", "nothing is left on a node"


def _configure(home: Path, lab: testing.FreshLab, bastion: servers.Sshd) -> None:
    """The user's own ~/.ssh, as it was before."""
    lines = []
    for name in lab.nodes:
        machine = lab.spec().node(name)
        lines += [f"Host {name}", f"  HostName {machine.address}", f"  Port {machine.port}", "  User root"]
        lines += ["  ProxyJump door", f"  IdentityFile {lab.state / 'ssh' / 'id_ed25519'}"]
    lines += ["Host door", f"  HostName {servers.BIND}", f"  Port {bastion.port}", f"  User {getpass.getuser()}"]
    lines += [f"  IdentityFile {bastion.keys.user}"]
    (home / ".ssh" / "config").write_text("\n".join(lines) + "\n")
    known = (lab.state / "known_hosts").read_text()
    known += f"[{servers.BIND}]:{bastion.port} {bastion.keys.public('host')}\n"
    (home / ".ssh" / "known_hosts").write_text(known)
