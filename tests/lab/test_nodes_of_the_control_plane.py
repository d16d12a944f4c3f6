"""Nodes as the cluster sees them: registered from inside, ready while pid 1 lives, and unable to help themselves."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bringup.cluster import Cluster
from lab import control_plane
from lab.control_plane_testing import Machine, Plane

pytestmark = pytest.mark.cluster

UNVERIFIED = "lockstep.dev/unverified"


@pytest.fixture
def cluster(plane: Plane) -> Iterator[Cluster]:
    with Cluster.from_kubeconfig(plane.kubeconfig) as found:
        yield found


@pytest.fixture
def machine(plane: Plane, cluster: Cluster) -> Iterator[Machine]:
    """A machine with two GPUs and a running kubelet."""
    with plane.machine(["GPU-a", "GPU-b"]) as found:
        found.start_kubelet()
        yield found
    cluster.delete_node(found.name)


def until(condition: Callable[[], Any], what: str, seconds: float = 180) -> Any:
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, what
        time.sleep(0.2)
    return found


def ask_as_node(plane: Plane, name: str, method: str, path: str, body: object = None) -> httpx2.Response:
    """A request with a node's own token."""
    context = ssl.create_default_context(cafile=str(plane.state / "control-plane" / "pki" / "ca.crt"))
    token = control_plane.node_token(plane.state, name).get_secret_value()
    kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
    with httpx2.Client(verify=context, trust_env=False) as client:
        return client.request(method, plane.server + path, headers=headers, content=json.dumps(body).encode())


def test_a_node_registers_itself_tainted_and_is_ready_while_it_lives(cluster: Cluster, machine: Machine) -> None:
    node = cluster.wait_ready(machine.name)
    assert [taint.key for taint in node.taints] == [UNVERIFIED]
    assert node.unverified
    assert not node.admitted
    assert node.labels["lab.lockstep.dev/alive"] == "true"
    assert node.address == "127.0.0.1"
    assert node.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert node.kernel
    assert node.os_image


def test_its_gpus_are_published_in_the_form_of_the_vendors_driver(cluster: Cluster, machine: Machine) -> None:
    (piece,) = until(lambda: cluster.resource_slices(machine.name), "no slice")
    assert (piece.driver, piece.pool, piece.generation) == ("gpu.nvidia.com", machine.name, 1)
    assert [device.name for device in piece.devices] == ["gpu-0", "gpu-1"]
    assert dict(piece.devices[0].attributes) == {
        "type": "gpu",
        "uuid": "GPU-a",
        "productName": "NVIDIA GB200",
        "brand": "NVIDIA",
        "architecture": "Blackwell",
        "addressingMode": "ATS",
        "driverVersion": "580.105.8",
        "cudaDriverVersion": "13.0.0",
        "resource.kubernetes.io/pciBusID": "0008:01:00.0",
    }


def test_a_lost_gpu_leaves_the_slice_with_a_new_generation(cluster: Cluster, machine: Machine) -> None:
    until(lambda: cluster.resource_slices(machine.name), "no slice")
    machine.set_gpus(["GPU-a"])
    machine.look_again()
    until(lambda: len(cluster.resource_slices(machine.name)[0].devices) == 1, "the lost GPU is still published")
    (piece,) = cluster.resource_slices(machine.name)
    assert piece.generation == 2
    machine.set_gpus([])
    machine.look_again()
    until(lambda: not cluster.resource_slices(machine.name), "a slice without devices is still published")


def test_a_dead_node_turns_not_ready_and_comes_back(cluster: Cluster, machine: Machine) -> None:
    cluster.wait_ready(machine.name)
    cluster.admit(machine.name, "ab" * 32)
    machine.power_off()
    until(lambda: (node := cluster.node(machine.name)) and not node.ready, "a dead node is still Ready", seconds=180)
    node = cluster.node(machine.name)
    assert node is not None
    assert node.ready is None
    assert "lab.lockstep.dev/alive" not in node.labels
    machine.power_on()
    assert cluster.wait_ready(machine.name).in_step is True


def test_a_kubelet_that_starts_again_keeps_taints_and_does_not_tell_of_gpus_twice(
    cluster: Cluster, machine: Machine
) -> None:
    cluster.wait_ready(machine.name)
    until(lambda: cluster.resource_slices(machine.name), "no slice")
    cluster.admit(machine.name, "ab" * 32)
    machine.start_kubelet()
    machine.look_again()
    time.sleep(2)
    node = cluster.node(machine.name)
    assert node is not None
    assert not node.taints
    assert cluster.resource_slices(machine.name)[0].generation == 1


def test_a_node_that_is_deleted_registers_again_only_with_a_new_kubelet(cluster: Cluster, machine: Machine) -> None:
    first = cluster.wait_ready(machine.name)
    cluster.admit(machine.name, "ab" * 32)
    assert not cluster.delete_node(machine.name, uid="another one's")
    assert cluster.delete_node(machine.name, uid=first.uid)
    machine.look_again()
    time.sleep(1)
    assert cluster.node(machine.name) is None
    machine.power_off()
    machine.power_on()
    machine.start_kubelet()
    second = cluster.wait_ready(machine.name)
    assert second.uid != first.uid
    assert second.unverified
    until(lambda: cluster.resource_slices(machine.name), "the new Node has no slice")


def test_a_node_cannot_lift_its_taint_nor_touch_another_node(plane: Plane, cluster: Cluster, machine: Machine) -> None:
    cluster.wait_ready(machine.name)
    with plane.machine() as second:
        second.start_kubelet()
        cluster.wait_ready(second.name)
        own, other = f"/api/v1/nodes/{machine.name}", f"/api/v1/nodes/{second.name}"
        touched = ask_as_node(plane, machine.name, "PATCH", other, {"metadata": {"labels": {"a": "b"}}})
        assert touched.status_code == 403
        cluster.delete_node(second.name)
    lifted = ask_as_node(plane, machine.name, "PATCH", own, {"spec": {"taints": None}})
    assert lifted.status_code == 403
    assert "taint" in lifted.json()["message"]
    assert ask_as_node(plane, machine.name, "DELETE", own).status_code == 403
    assert ask_as_node(plane, machine.name, "GET", "/api/v1/secrets").status_code == 403
    foreign = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "foreign"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "gpu-199",
            "pool": {"name": "gpu-199", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    }
    made = ask_as_node(plane, machine.name, "POST", "/apis/resource.k8s.io/v1/resourceslices", foreign)
    assert made.status_code == 403
    node = cluster.node(machine.name)
    assert node is not None
    assert node.unverified


@pytest.mark.usefixtures("applied")
@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("", {"metadata": {"labels": {"lockstep.dev/lock": "0123456789abcdef"}}}),
        ("", {"metadata": {"annotations": {"lockstep.dev/lock-digest": "ab" * 32}}}),
        ("/status", {"status": {"conditions": [{"type": "lockstep.dev/InStep", "status": "True"}]}}),
    ],
    ids=["label", "annotation", "condition"],
)
def test_a_node_cannot_say_of_itself_that_it_is_in_step(
    plane: Plane,
    cluster: Cluster,
    machine: Machine,
    path: str,
    change: dict[str, Any],
) -> None:
    cluster.wait_ready(machine.name)
    place = f"/api/v1/nodes/{machine.name}{path}"

    def answer() -> httpx2.Response | None:
        found = ask_as_node(plane, machine.name, "PATCH", place, change)
        # A policy is enforced within a second of being made, not at once.
        return found if found.status_code != 200 else None

    denied = until(answer, "the node wrote our mark")
    assert denied.status_code in (403, 422)
    assert "a node may not change" in denied.json()["message"]
    # What is a node's own to say it still says.
    harmless = {"metadata": {"labels": {"example.com/rack": "r1"}}}
    assert ask_as_node(plane, machine.name, "PATCH", f"/api/v1/nodes/{machine.name}", harmless).status_code == 200
