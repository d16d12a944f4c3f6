"""The stand-in kubelet where it belongs: installed by apt in a real lab node, started at boot, dead with the node."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bringup.cluster import Cluster
from lab import control_plane, faults, testing

pytestmark = [pytest.mark.lab, pytest.mark.cluster]

DRIVER = ("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "libnvidia-ml1", "libcuda1")
PACKAGES = ("linux-image-6.1.0-41-amd64", *(f"{name}=580.105.08-1" for name in DRIVER), "kubelet=1.37.0-1.1")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[testing.FreshLab]:
    with testing.fresh_lab(tmp_path, nodes=1, control_plane=True) as found:
        yield found


def until(condition: Callable[[], Any], what: str, seconds: float = 180) -> Any:
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, what
        time.sleep(0.3)
    return found


def test_a_lab_node_joins_publishes_its_gpus_reboots_loses_one_and_dies(lab: testing.FreshLab) -> None:
    (name,) = lab.nodes
    lab.run(name, "apt-get", "update", "-q")
    lab.run(name, "apt-get", "install", "-qy", *PACKAGES)
    first_boot = reboot(lab, name)
    kubeconfig = control_plane.node_kubeconfig(lab.state, name)
    write = "mkdir -p /var/lib/kubelet && umask 077 && cat >/var/lib/kubelet/kubeconfig"
    lab.run(name, "sh", "-ec", write, stdin=kubeconfig)
    lab.run(name, "/etc/init.d/kubelet", "restart")

    with Cluster.from_kubeconfig(lab.kubeconfig) as cluster:
        node = cluster.wait_ready(name, boot_id=first_boot, seconds=180)
        assert node.unverified
        assert node.kubelet == "v1.37.0"
        assert node.kernel == "6.1.0-41-amd64"
        assert node.os_image.startswith("Debian GNU/Linux 12")
        assert node.address is not None
        assert node.address.startswith("127.90.")
        (piece,) = until(lambda: cluster.resource_slices(name), "no slice")
        assert [device.name for device in piece.devices] == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
        attributes = piece.devices[0].attributes
        assert attributes["driverVersion"] == "580.105.8"
        assert attributes["productName"] == "NVIDIA GB200"
        assert attributes["cudaComputeCapability"] == "10.0.0"
        assert attributes["resource.kubernetes.io/pciBusID"] == "0008:01:00.0"
        uuids = {device.attributes["uuid"] for device in piece.devices}
        assert len(uuids) == 4

        cluster.admit(name, "ab" * 32, boot_id=first_boot)
        lab.break_node(name, faults.Kind.GPU_LOST, slot="gpu2")
        second_boot = reboot(lab, name)
        again = cluster.wait_ready(name, boot_id=second_boot, seconds=180)
        assert again.admitted, "a reboot does not take the admission away: whoever reboots a node vacates it first"
        until(lambda: len(cluster.resource_slices(name)[0].devices) == 3, "the lost GPU is still published")
        left = {device.attributes["uuid"] for device in cluster.resource_slices(name)[0].devices}
        assert left < uuids

        lab.mend_node(name)
        lab.power_off(name)
        until(lambda: (view := cluster.node(name)) and view.ready is None, "a dead node is still Ready")
        lab.power_on(name)
        cluster.wait_ready(name, boot_id=lab.boot_id(name), seconds=180)
        until(lambda: len(cluster.resource_slices(name)[0].devices) == 4, "the GPU is not published again")


def reboot(lab: testing.FreshLab, name: str) -> str:
    """The boot id after a reboot."""
    before = lab.boot_id(name)
    lab.run(name, "shutdown", "-r", "now")
    return str(until(lambda: (now := lab.boot_id(name)) != before and now, "the node does not reboot"))
