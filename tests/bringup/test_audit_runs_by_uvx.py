"""The front door: `uvx --from git+file://CHECKOUT lockstep audit …`, base dependencies only, nothing left behind."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bringup.servers import BIND, Sshd

pytestmark = pytest.mark.registry

UVX = Path(sys.executable).with_name("uvx")
OFFLINE = ("error sending request", "Failed to fetch", "dns error", "Could not connect", "timed out")
ENGINE = ("pulumi", "pulumi_kubernetes", "grpc", "ansible", "ansible_runner", "lightkube", "numpy", "jinja2")


def _uvx(checkout: Path, here: Path, *words: str) -> subprocess.CompletedProcess[str]:
    if not UVX.exists() or not (checkout / ".git").exists():
        pytest.skip("needs uvx in the environment and a git checkout")
    source = ["--from", f"git+file://{checkout}"]
    done = subprocess.run([str(UVX), *source, *words], cwd=here, capture_output=True, text=True, env=os.environ)
    if done.returncode != 0 and any(word in done.stderr for word in OFFLINE):
        pytest.skip(f"no package registry: {done.stderr.strip().splitlines()[-1]}")
    return done


def test_a_first_audit_needs_one_line_and_no_engine(checkout: Path, sshd: Sshd, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    code = f"import importlib.util as u; print([name for name in {ENGINE!r} if u.find_spec(name)])"
    assert _uvx(checkout, here, "python", "-c", code).stdout.strip() == "[]"

    (tmp_path / "known_hosts").write_text(f"[{BIND}]:{sshd.port} {sshd.keys.public('host')}\n")
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        "fleet: first\n"
        f"ssh: {{user: {getpass.getuser()}, port: {sshd.port}, identity: {{file: {sshd.keys.user}}},\n"
        "      known_hosts: known_hosts}\n"
        "pools:\n  - {name: blackwell, sku: lab-gb200, os: debian-12-amd64, pinset: 2026-09-lab-gb200,\n"
        f"     nodes: {{gpu-001: {{address: {BIND}}}}}}}\n"
    )
    done = _uvx(checkout, here, "lockstep", "audit", str(fleet))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "gpu-001 drifted" in done.stdout or "gpu-001 unreadable" in done.stdout
    assert list(here.iterdir()) == []
