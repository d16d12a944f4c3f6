"""`lockstep up` and `env` on wrong files: exit 2 with every place, before a stack, its file or its state is made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FLEET = """\
fleet: wrong-on-purpose
ssh: {{user: root}}
pools:
  - name: one
    sku: lab-gb200
    os: debian-12-amd64
    pinset: {first}
    nodes: {{one-1: {{address: 127.90.99.1}}}}
  - name: two
    sku: lab-gb300
    os: {second}
    pinset: 2026-09-lab-gb300
    nodes: {{two-1: {{address: 127.90.99.2}}}}
"""


def call(checkout: Path, tmp_path: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The command line with a state folder of its own."""
    env = {**os.environ, "LOCKSTEP_STATE": str(tmp_path / "state"), **more}
    if "KUBECONFIG" not in more:
        env.pop("KUBECONFIG", None)
    command = [str(Path(sys.executable).with_name("lockstep")), "--root", str(checkout), *words]
    return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)


def nothing_was_made(checkout: Path, tmp_path: Path) -> bool:
    """No stack file in the checkout, and no stack in the state."""
    made = list((checkout / "stacks").glob("Pulumi.wrong-on-purpose*"))
    return made == [] and [path for path in (tmp_path / "state").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("verb", ["up", "env"])
def test_an_unknown_pinset_and_a_missing_lock_are_both_named_with_their_lines(
    checkout: Path, tmp_path: Path, verb: str
) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(FLEET.format(first="2026-09-nobody-knows", second="debian-11-amd64"))
    done = call(checkout, tmp_path, verb, str(fleet))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "fleet.yaml:7: error:" in done.stderr
    assert "2026-09-nobody-knows" in done.stderr
    assert "fleet.yaml:12: error:" in done.stderr
    assert "lockstep pin lock" in done.stderr
    assert nothing_was_made(checkout, tmp_path)


def test_a_cluster_that_does_not_answer_is_exit_3_at_once(checkout: Path, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(FLEET.format(first="2026-09-lab-gb200", second="debian-12-amd64"))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:9'}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\n"
    )
    done = call(checkout, tmp_path, "up", str(fleet), KUBECONFIG=str(kubeconfig))
    assert done.returncode == 3, done.stdout + done.stderr
    assert "127.0.0.1:9 does not answer" in done.stderr
    assert nothing_was_made(checkout, tmp_path)


def test_a_word_that_is_none_is_refused_before_anything_is_made(checkout: Path, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(FLEET.format(first="2026-09-lab-gb200", second="debian-12-amd64"))
    done = call(checkout, tmp_path, "up", str(fleet), "--allow", "everything")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "'everything' is no kind of disruption" in done.stderr
    assert nothing_was_made(checkout, tmp_path)
