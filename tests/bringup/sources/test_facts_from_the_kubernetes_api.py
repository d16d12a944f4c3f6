"""Facts that kubelets and DRA drivers published: by value, and from a real API server."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightkube import codecs
from lightkube.types import PatchType

from bringup.cluster import Cluster
from bringup.cluster_views import DaemonView, DeviceView, ImageView, NodeView, SliceView
from bringup.sources import kubernetes
from inventory.model import Sku
from lab.control_plane_testing import Plane
from lockstep.base import errors
from lockstep.base.names import NodeName
from lockstep.cli import main
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
        "kubelet@running": "1.37.1",
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


def test_the_gpus_that_are_published_are_listed_by_slot_and_a_missing_one_is_not_among_them() -> None:
    both = piece("580.105.8", "580.105.8")
    assert kubernetes.facts_of(NodeName("n1"), view(), (both,), (READY,), 1.0, SKU).attributes["gpus"] == "gpu0,gpu1"
    one = kubernetes.facts_of(NodeName("n1"), view(), (piece("580.105.8"),), (READY,), 1.0, SKU)
    assert one.attributes["gpus"] == "gpu0"
    partition = DeviceView("gpu-0-mig-9-0-1", {"type": "mig", "driverVersion": "580.105.8"})
    split = dataclasses.replace(both, devices=(*both.devices, partition))
    assert "gpus" not in kubernetes.facts_of(NodeName("n1"), view(), (split,), (READY,), 1.0, SKU).attributes
    assert "gpus" not in kubernetes.facts_of(NodeName("n1"), view(), (both,), (), 1.0, SKU).attributes, "may be old"


def image(name: str, node: str = "n1", *, daemon: bool = False) -> ImageView:
    return ImageView(node, name, daemon)


def versions(*images: ImageView, node: str = "n1") -> dict[str, str]:
    everywhere, by_node = kubernetes.deployed(images)
    found = kubernetes.facts_of(
        NodeName(node), view(name=node), (), (), 1.0, software={**everywhere, **by_node.get(node, {})}
    )
    return {name.removesuffix("@running"): text for name, text in said(found).items() if name.split("@")[0] in SOFTWARE}


SOFTWARE = {"gpu-operator", "network-operator", "dra-driver", "device-plugin", "mig-manager", "nfd", "dcgm-exporter"}


def test_operators_and_drivers_are_told_by_the_images_that_run() -> None:
    found = versions(
        image("nvcr.io/nvidia/gpu-operator:v26.7.0", node="somewhere"),
        image("nvcr.io/nvidia/cloud-native/network-operator:v26.4.0", node="somewhere"),
        image("nvcr.io/nvidia/k8s-dra-driver-gpu:v25.12.0", daemon=True),
        image("nvcr.io/nvidia/k8s-device-plugin:v0.20.0", daemon=True),
        image("nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0-4.8.3-distroless", daemon=True),
        image("registry.k8s.io/nfd/node-feature-discovery:v0.19.0-minimal", daemon=True),
        image("nvcr.io/nvidia/cuda:13.0.1"),
    )
    assert found == {
        "gpu-operator": "26.7.0",
        "network-operator": "26.4.0",
        "dra-driver": "25.12.0",
        "device-plugin": "0.20.0",
        "dcgm-exporter": "4.8.3",
        "nfd": "0.19.0",
        "mig-manager": "absent",
    }


def test_where_nothing_of_it_runs_in_the_cluster_it_is_absent_and_not_unknown() -> None:
    assert set(versions().values()) == {"absent"}


def test_daemons_of_other_nodes_say_nothing_of_this_one() -> None:
    found = versions(image("x/k8s-device-plugin:v0.20.0", node="other", daemon=True))
    assert "device-plugin" not in found


@pytest.mark.parametrize(
    "names",
    [
        ("a/gpu-operator:v26.7.0", "a/gpu-operator:v26.3.0"),
        ("a/gpu-operator:latest",),
        ("a/gpu-operator@sha256:" + "0" * 64,),
        ("a/gpu-operator",),
        ("a/gpu-operator:\x1b[2J",),
    ],
)
def test_two_versions_and_tags_that_are_none_are_known_by_nobody(names: tuple[str, ...]) -> None:
    assert versions(*map(image, names))["gpu-operator"].startswith("unreadable: its pods run images ")


def test_a_registry_with_a_port_and_a_digest_behind_the_tag_do_not_confuse() -> None:
    digest = "@sha256:" + "0" * 64
    assert versions(image(f"mirror.example:5000/nvidia/gpu-operator:v26.7.0{digest}"))["gpu-operator"] == "26.7.0"


@pytest.mark.cluster
@pytest.mark.usefixtures("applied")
def test_a_real_api_server_tells_a_nodes_driver_once_its_plugin_is_ready(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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

            operator = _plugin(f"operator-{machine.name}", machine.name)
            operator["metadata"].pop("ownerReferences")
            operator["spec"]["containers"] = [{"name": "operator", "image": "nvcr.io/nvidia/gpu-operator:v26.7.0"}]
            client.create(codecs.from_dict(operator))
            for each in (name, f"operator-{machine.name}"):
                client.patch(Pod.Status, each, status, namespace="default", patch_type=PatchType.MERGE)
            after = kubernetes.read(cluster, [machine.name])
            monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig))
            context = yaml.safe_load(plane.kubeconfig.read_text())["current-context"]
            code = main.run(["audit", "--kube-context", context, "--format", "json"])
            (pool,) = json.loads(capsys.readouterr().out)["pools"]
            for each in (name, f"operator-{machine.name}"):
                client.delete(Pod, each, namespace="default", grace_period=0)
        told = said(after.nodes[NodeName(machine.name)])
        assert (told["gpu-operator@running"], told["network-operator@running"]) == ("26.7.0", "absent")
        assert told["driver@running"][0].isdecimal(), told
        assert [key for key in told if key.startswith("gpu[")]
        assert machine.name in {node["name"] for node in pool["nodes"] if node["verdict"] == "admit"}, (code, pool)
        assert pool["common"]["driver@running"] == told["driver@running"]
        cluster.delete_node(machine.name)


def _plugin(name: str, node: str) -> dict[str, Any]:
    # Of no group that the garbage collector knows: it would remove a pod whose owner is not there.
    group = "example.dev/v1"
    owner = {"apiVersion": group, "kind": "DaemonSet", "name": "gpu-kubelet-plugin", "uid": "1", "controller": True}
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
