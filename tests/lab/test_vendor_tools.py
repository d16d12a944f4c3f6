"""The stand-in vendor tools against each other, and against what the system around them says."""

from __future__ import annotations

import time

import pytest

from lab import testing

pytestmark = pytest.mark.lab


def test_the_fabric_of_a_rack_is_one_for_its_trays_and_not_zero(
    lab: testing.FreshLab, gpu_node: str, new_node: str
) -> None:
    answers = {
        line
        for node in (gpu_node, new_node)
        for line in lab.run(
            node, "nvidia-smi", "--query-gpu=fabric.clusterUuid,fabric.cliqueId", "--format=csv,noheader"
        ).stdout.splitlines()
    }
    assert len(answers) == 1
    assert not answers.pop().startswith("00000000-0000")


def test_the_query_form_differs_between_the_lines_as_the_vendor_s_does(
    lab: testing.FreshLab, gpu_node: str, new_node: str
) -> None:
    query = ("nvidia-smi", "--query-gpu=kmd_version", "--format=csv,noheader")
    assert lab.run(new_node, *query).stdout.splitlines() == ["610.57.04"] * 4
    old = lab.run(gpu_node, *query, check=False)
    assert (old.returncode, old.stdout.splitlines()[0]) == (2, 'Field "kmd_version" is not a valid field to query.')
    shown = lab.run(gpu_node, "nvidia-smi", "--version").stdout.splitlines()
    assert shown == [
        "NVIDIA-SMI version  : 580.105.08",
        "NVML version        : 580.105",
        "DRIVER version      : 580.105.08",
        "CUDA Version        : 13.0",
    ]
    header, first = lab.run(
        gpu_node, "nvidia-smi", "--query-gpu=index,memory.total,display_active,power.draw", "--format=csv", "-i", "0"
    ).stdout.splitlines()
    assert header == "index, memory.total [MiB], display_active, power.draw [W]"
    assert first == "0, 189471 MiB, Disabled, 150.00 W"
    bare = lab.run(
        gpu_node, "nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits", "-i", "1"
    ).stdout
    assert bare == "189471\n"


def test_what_is_read_without_nvml_agrees_with_what_is_loaded(lab: testing.FreshLab, gpu_node: str) -> None:
    assert lab.run(gpu_node, "uname", "-r").stdout == "6.1.0-41-amd64\n"
    assert lab.run(gpu_node, "cat", "/proc/sys/kernel/osrelease").stdout == "6.1.0-41-amd64\n"
    first = lab.run(gpu_node, "cat", "/proc/driver/nvidia/version").stdout.splitlines()[0]
    assert "NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build" in first
    assert lab.run(gpu_node, "cat", "/sys/module/nvidia/version").stdout == "580.105.08\n"
    for kernel in ("6.1.0-40-amd64", "6.1.0-41-amd64"):
        shown = lab.run(gpu_node, "modinfo", "-k", kernel, "-F", "vermagic", "nvidia").stdout
        assert shown.startswith(f"{kernel} SMP")
    assert lab.run(gpu_node, "modinfo", "-F", "license", "nvidia").stdout == "Dual MIT/GPL\n"
    assert lab.run(gpu_node, "dkms", "status").stdout.splitlines() == [
        "nvidia/580.105.08, 6.1.0-40-amd64, x86_64: installed",
        "nvidia/580.105.08, 6.1.0-41-amd64, x86_64: installed",
    ]
    listed = lab.run(gpu_node, "ldconfig", "-p").stdout
    for library in ("libnvidia-ml.so.1", "libcuda.so.1", "libnccl.so.2"):
        assert f"{library} (libc6,x86-64) =>" in listed


def _until_ready(lab: testing.FreshLab, node: str) -> None:
    """Daemons start after sshd, as on a real node."""
    limit = time.monotonic() + 60
    while lab.run(node, "nvidia-imex-ctl", "-q", check=False).stdout != "READY\n":
        assert time.monotonic() < limit
        time.sleep(0.1)


def test_the_imex_daemon_runs_after_boot_and_its_tool_answers(lab: testing.FreshLab, gpu_node: str) -> None:
    _until_ready(lab, gpu_node)
    assert '"status":"UP"' in lab.run(gpu_node, "nvidia-imex-ctl", "-N", "-j").stdout
    lab.run(gpu_node, "systemctl", "stop", "nvidia-imex")
    stopped = lab.run(gpu_node, "nvidia-imex-ctl", "-N", "-j", check=False)
    assert (stopped.returncode, stopped.stdout) == (1, "")
    lab.run(gpu_node, "/etc/init.d/nvidia-imex", "start")
    assert lab.run(gpu_node, "systemctl", "is-active", "nvidia-imex").stdout == "active\n"


def test_a_reload_loads_what_lies_on_disk_without_a_boot(lab: testing.FreshLab, gpu_node: str) -> None:
    before = lab.boot_id(gpu_node)
    lab.run(gpu_node, "sh", "-ec", "systemctl stop nvidia-imex; modprobe -r nvidia")
    gone = lab.run(gpu_node, "nvidia-smi", check=False)
    assert (gone.returncode, "couldn't communicate with the NVIDIA driver" in gone.stdout) == (9, True)
    assert lab.run(gpu_node, "ls", "/proc/driver/nvidia", check=False).returncode != 0
    lab.run(gpu_node, "modprobe", "nvidia")
    assert lab.run(gpu_node, "nvidia-smi", "-L").stdout.count("UUID: GPU-") == 4
    assert lab.boot_id(gpu_node) == before
