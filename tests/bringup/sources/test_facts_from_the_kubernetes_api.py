"""Facts that kubelets and DRA drivers published: by value, and from a real API server."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from lightkube import codecs
from lightkube.types import PatchType

from bringup.cluster import Cluster
from bringup.cluster_views import DaemonView, DeviceView, NodeView, SliceView
from bringup.sources import kubernetes
from inventory.model import Sku
from lab.control_plane_testing import Plane
from lockstep.base import errors
from lockstep.base.names import NodeName
from pinsets.facts import NodeFacts

BOOTED, LATER, EARLIER = "2026-11-30T10:00:00Z", "2026-11-30T10:01:00Z", "2026-11-30T09:00:00Z"
SKU = Sku.model_validate(
    {"sku": "one", "accelerator": "NVIDIA GB200", "gpus": {"0008:01:00.0": "gpu0", "0009:01:00.0": "gpu1"}}
)


def view(**more: Any) -> NodeView:
    """A Ready Node of a tray."""
    values: dict[str, Any] = {
        "name": "n1",
        "uid": "u",
        "ready": True,
        "unschedulable": False,
        "taints": (),
        "labels": {},
        "annotations": {},
        "boot_id": "b",
        "machine_id": "",
        "system_uuid": "",
        "kernel": "6.8.0-1039-nvidia-64k",
        "os_image": "Ubuntu 24.04.3 LTS",
        "kubelet": "v1.37.1",
        "address": None,
        "in_step": None,
        "cordon_is_ours": False,
        "runtime": "containerd://2.1.4",
        "ready_since": BOOTED,
    }
    return NodeView(**(values | more))


def piece(*versions: str) -> SliceView:
    devices = tuple(
        DeviceView(
            f"gpu-{number}",
            {
                "type": "gpu",
                "productName": "NVIDIA GB200",
                "driverVersion": version,
                "resource.kubernetes.io/pciBusID": f"000{8 + number}:01:00.0",
            },
        )
        for number, version in enumerate(versions)
    )
    return SliceView("s", "gpu.nvidia.com", "n1", 1, devices)


def said(facts: NodeFacts) -> dict[str, str]:
    return {str(at): str(fact.observation) for at, fact in facts.facts.items()}


def of(*slices: SliceView, daemons: tuple[DaemonView, ...] = (), **more: Any) -> dict[str, str]:
    return said(kubernetes.facts_of(NodeName("n1"), view(**more), slices, daemons, 1.0, SKU))


READY = DaemonView("nvidia-dra-driver-gpu-kubelet-plugin", True, LATER)


def test_a_ready_node_tells_kernel_kubelet_runtime_and_its_driver() -> None:
    assert of(piece("580.105.8", "580.105.8"), daemons=(READY,)) == {
        "kernel@running": "6.8.0-1039-nvidia-64k",
        "kubelet@ondisk": "1.37.1",
        "containerd@running": "2.1.4",
        "driver@running": "580.105.08",
        "gpu[gpu0]@running": "NVIDIA GB200",
        "gpu[gpu1]@running": "NVIDIA GB200",
    }


def test_a_driver_of_two_parts_keeps_two() -> None:
    assert of(piece("595.80.0"), daemons=(READY,))["driver@running"] == "595.80"


@pytest.mark.parametrize(
    ("daemons", "reason"),
    [
        ((), "no pod of the DRA driver is Ready"),
        ((DaemonView("x-kubelet-plugin", False, LATER),), "no pod of the DRA driver is Ready"),
        ((DaemonView("x-kubelet-plugin", True, EARLIER),), "became Ready before the Node did"),
    ],
)
def test_a_slice_that_may_be_of_an_earlier_boot_is_unreadable(daemons: tuple[DaemonView, ...], reason: str) -> None:
    told = of(piece("580.105.8"), daemons=daemons)
    assert reason in told["driver@running"]
    assert "gpu[gpu0]@running" not in told


def test_devices_that_name_two_drivers_are_known_by_nobody() -> None:
    assert of(piece("580.105.8", "580.126.20"), daemons=(READY,))["driver@running"] == (
        "unreadable: its devices name 580.105.08, 580.126.20"
    )


def test_a_node_that_is_not_ready_or_not_there_is_unreachable() -> None:
    gone = kubernetes.facts_of(NodeName("n1"), None, (), (), 1.0)
    assert gone.unreachable == "cluster: there is no Node of that name"
    dead = kubernetes.facts_of(NodeName("n1"), view(ready=False), (piece("580.105.8"),), (READY,), 1.0)
    assert "not Ready" in str(dead.unreachable)


@pytest.mark.cluster
@pytest.mark.usefixtures("applied")
def test_a_real_api_server_tells_a_nodes_driver_once_its_plugin_is_ready(plane: Plane) -> None:
    with plane.machine(["GPU-k1"]) as machine, Cluster.from_kubeconfig(plane.kubeconfig) as cluster:
        machine.start_kubelet()
        cluster.wait_ready(machine.name)
        until = time.monotonic() + 60
        while not cluster.resource_slices(machine.name):
            assert time.monotonic() < until
            time.sleep(0.2)
        before = kubernetes.read(cluster, [machine.name])
        told = said(before.nodes[NodeName(machine.name)])
        assert "no pod of the DRA driver is Ready" in told["driver@running"]
        with plane.client() as client:
            name = f"dra-{machine.name}"
            pod = _plugin(name, machine.name)
            client.create(codecs.from_dict(pod))
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2099-01-01T00:00:00Z"}
            status = {"status": {"phase": "Running", "conditions": [ready]}}
            from lightkube.resources.core_v1 import Pod

            client.patch(Pod.Status, name, status, namespace="default", patch_type=PatchType.MERGE)
            after = kubernetes.read(cluster, [machine.name])
            client.delete(Pod, name, namespace="default", grace_period=0)
        told = said(after.nodes[NodeName(machine.name)])
        assert told["driver@running"][0].isdecimal(), told
        assert [key for key in told if key.startswith("gpu[")]
        cluster.delete_node(machine.name)


def _plugin(name: str, node: str) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "gpu-kubelet-plugin", "uid": "1", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": [owner]},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "plugin", "image": "none"}],
            "tolerations": [{"operator": "Exists"}],
        },
    }


@pytest.mark.cluster
def test_a_context_that_is_not_in_the_kubeconfig_is_bad_input(plane: Plane, tmp_path: Path) -> None:
    with pytest.raises(errors.InputError, match="not a usable kubeconfig"):
        Cluster.from_kubeconfig(plane.kubeconfig, "elsewhere")
    with pytest.raises(errors.InputError, match="no kubeconfig"):
        Cluster.from_kubeconfig(tmp_path / "nothing", "elsewhere")
