"""A fleet file with SSH hosts and a kubeconfig, both ways: here they are a lab's, and nothing of ours knows it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import testing
from lockstep.base import programs

pytestmark = [pytest.mark.lab, pytest.mark.cluster, pytest.mark.engine]

LOCKSTEP = Path(sys.executable).with_name("lockstep")
UNVERIFIED = "lockstep.dev/unverified"


@dataclass
class Strange:
    """An environment of which only a fleet file, a kubeconfig and node tokens are given."""

    lab: testing.FreshLab
    checkout: Path
    variables: dict[str, str]

    def run(self, *command: str | Path) -> str:
        """Run a program to its end; its output."""
        done = subprocess.run(
            [str(word) for word in command],
            env=self.variables,
            cwd=self.checkout / "inventory",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Name → Kubernetes Node."""
        said = self.run(programs.find("kubectl"), "get", "nodes", "-o", "json")
        return {item["metadata"]["name"]: item for item in json.loads(said)["items"]}


@pytest.fixture
def strange(copied: Path, tmp_path: Path) -> Iterator[Strange]:
    """Two nodes and a control plane, known by their addresses alone."""
    labs = str(tmp_path / "labs")
    with testing.fresh_lab(
        tmp_path, nodes=2, control_plane=True, edit=lambda text: text.replace("$LOCKSTEP_LABS", labs)
    ) as lab:
        state = tmp_path / "state of its own"
        variables = {name: value for name, value in lab.env.items() if not name.startswith(("LOCKSTEP_", "PULUMI_"))}
        variables |= {
            "LOCKSTEP_ROOT": str(copied),
            "LOCKSTEP_LABS": str(tmp_path / "no labs here"),
            "LOCKSTEP_STATE": str(state),
            "LOCKSTEP_NODE_TOKENS": str(lab.state / "node-tokens"),
            "KUBECONFIG": str(lab.kubeconfig),
        }
        yield Strange(lab, copied, variables)


def test_up_and_plain_pulumi_work_on_one_state_and_nodes_are_admitted(strange: Strange) -> None:
    strange.run(LOCKSTEP, "up", strange.lab.fleet_file)
    nodes = strange.nodes()
    assert set(nodes) == set(strange.lab.nodes)
    for node in nodes.values():
        assert UNVERIFIED not in [taint["key"] for taint in node["spec"].get("taints", [])]
        assert len(node["metadata"]["annotations"]["lockstep.dev/lock-digest"]) == 64
    assert (Path(strange.variables["LOCKSTEP_STATE"]) / "pulumi").is_dir()
    assert not (strange.lab.state / "pulumi").exists()

    name = strange.lab.name
    script = f"""
        eval "$({shlex.quote(str(LOCKSTEP))} env {shlex.quote(str(strange.lab.fleet_file))})"
        pulumi --non-interactive up -s {name} --yes --skip-preview --expect-no-changes
    """
    strange.run("bash", "-ec", script)
    assert strange.nodes().keys() == nodes.keys()

    kept = "".join(
        path.read_text(errors="replace")
        for path in Path(strange.variables["LOCKSTEP_STATE"]).rglob("*")
        if path.is_file() and path.suffix not in (".gz", ".db")
    )
    tokens = [path.read_text().strip() for path in (strange.lab.state / "node-tokens").iterdir()]
    assert tokens
    assert str(strange.lab.kubeconfig) in kept
    assert not [token for token in tokens if token in kept]
