"""The pod that reads a node without SSH: what the API server says of it, and that its command gives the same answer."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bringup import probe
from bringup.parsers import node as node_parser
from bringup.parsers import records
from lockstep.base import errors
from lockstep.base.names import NodeName
from lockstep.cli import main
from manifests import pod_probe
from pinsets import components
from pinsets.facts import Coordinate, Version

if TYPE_CHECKING:
    from lab.control_plane_testing import Plane

IMAGE = f"busybox@sha256:{'0' * 64}"


def _objects(*nodes: str) -> list[dict[str, Any]]:
    return pod_probe.objects(nodes, probe.script(components.load()), image=IMAGE, namespace="lockstep-probe")


def _container(objects: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = objects[1]["spec"]["containers"][0]
    return found


def _as_kubernetes_expands(value: str) -> str:
    """As its expansion reads a value from the left: ``$$`` is ``$``, ``$(NAME)`` is a variable, other ``$`` stay."""
    assert re.search(r"(?<!\$)(\$\$)*\$\(", value) is None, "a variable of Kubernetes"
    return value.replace("$$", "$")


def test_the_pods_command_gives_the_probes_answer() -> None:
    container = _container(_objects("gpu-1"))
    script = _as_kubernetes_expands(container["env"][0]["value"])
    assert script == probe.script(components.load())
    command = container["command"]
    assert command[:2] == ["chroot", "/host"]
    done = subprocess.run(
        command[2:], env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LOCKSTEP_PROBE": script}, capture_output=True
    )
    answer = records.read(done.stdout)
    assert answer.complete, done.stderr
    facts = node_parser.facts(NodeName("n"), answer, components.load(), sku=None, observed_at=1.0)
    assert isinstance(facts.observation(Coordinate.parse("kernel@running")), Version)


def test_names_that_no_node_has_are_refused() -> None:
    with pytest.raises(errors.InputError, match="no node of Kubernetes"):
        _objects("gpu_1; rm")


def test_a_pod_holds_no_token_ends_by_itself_and_asks_no_scheduler() -> None:
    for found in _objects("gpu-1", "gpu-2")[1:]:
        spec = found["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["restartPolicy"] == "Never"
        assert spec["activeDeadlineSeconds"] <= 120
        assert found["metadata"]["name"] == f"probe-{spec['nodeName']}"


def test_the_verb_prints_a_list_that_kubectl_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["probe", "pods", "--node", "gpu-[1-3]", "--image", IMAGE]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert [item["kind"] for item in items] == ["Namespace", "Pod", "Pod", "Pod"]


@pytest.mark.cluster
def test_a_real_api_server_takes_it(plane: Plane, tmp_path: Path) -> None:
    from lockstep.base import programs

    namespace, *pods = _objects("gpu-1", "gpu-2")
    plane.apply([namespace])
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    done = subprocess.run(
        [
            str(programs.find("kubectl")),
            "--kubeconfig",
            str(plane.kubeconfig),
            "apply",
            "--dry-run=server",
            "-f",
            str(path),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("server dry run") == 2
