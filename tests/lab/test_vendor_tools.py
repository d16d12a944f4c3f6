"""The stand-in vendor tools against real samples of drivers 580, 590 and 610, and against each other."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from lab import testing
from tests.lab.conftest import bring_up

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def new_node(lab: testing.FreshLab) -> str:
    """A node with driver 610.57.04 loaded."""
    node = lab.nodes[1]
    names = ("nvidia-driver-cuda", "libnvidia-ml1", "libcuda1", "nvidia-kernel-open-dkms", "nvidia-fabricmanager")
    bring_up(lab, node, *(f"{name}=610.57.04-1" for name in names))
    return node


def _shape(text: str) -> str:
    """A line with every digit and hexadecimal capital as 9 and runs of blanks kept."""
    return re.sub(r"[0-9A-F]", "9", text)


def _paths(root: ElementTree.Element, above: str = "") -> set[str]:
    here = f"{above}/{root.tag}"
    return {here}.union(*(_paths(child, here) for child in root))


def test_the_xml_of_580_uses_only_elements_of_a_real_one_and_its_constant_values(
    lab: testing.FreshLab, gpu_node: str, samples: Path
) -> None:
    ours = ElementTree.fromstring(lab.run(gpu_node, "nvidia-smi", "-q", "-x").stdout)
    real = ElementTree.parse(samples / "facts/nvidia-smi/hardware/qx-gb200.xml").getroot()
    assert _paths(ours) <= _paths(real)
    assert [card.get("id") for card in ours.iter("gpu")] == [
        f"0000{address}" for address in ("0008:01:00.0", "0009:01:00.0", "0018:01:00.0", "0019:01:00.0")
    ]
    a, b = ours.find("gpu"), real.find("gpu")
    assert a is not None
    assert b is not None
    for path in (
        "product_name",
        "product_architecture",
        "addressing_mode",
        "vbios_version",
        "board_part_number",
        "gpu_part_number",
        "inforom_version/img_version",
        "c2c_mode",
        "pci/pci_device_id",
        "fb_memory_usage/total",
        "fabric/state",
        "fabric/status",
        "fabric/health/summary",
        "platformInfo/peer_type",
    ):
        assert a.findtext(path) == b.findtext(path), path
    assert [ours.findtext(tag) for tag in ("driver_version", "cuda_version", "attached_gpus")] == [
        "580.105.08",
        "13.0",
        "4",
    ]


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


@pytest.mark.parametrize("name", ["version", "L", "table"])
def test_texts_of_610_have_the_form_of_a_real_one(
    lab: testing.FreshLab, new_node: str, samples: Path, name: str
) -> None:
    words = {"version": ["--version"], "L": ["-L"], "table": []}[name]
    ours = lab.run(new_node, "nvidia-smi", *words).stdout.splitlines()
    real = (samples / f"facts/nvidia-smi/rtx2080s_610.57.04/{name}.txt").read_text().splitlines()
    if name == "version":
        assert ours == real
    elif name == "L":
        pattern = re.compile(r"GPU \d: NVIDIA [\w ]+ \(UUID: GPU-[0-9a-f-]{36}\)")
        assert all(pattern.fullmatch(line) for line in [*ours, *real])
        assert len(ours) == 4
    else:
        assert {len(line) for line in ours[1:] if line} == {len(line) for line in real[1:] if line} == {91}
        assert ours[2] == real[2]
        assert ours[3:8] == real[3:8]
        assert _shape(ours[8])[42:68] == _shape(real[8])[42:68]
        assert ours[9][42:68] == "|       0MiB / 189471MiB |"


def test_the_query_texts_of_610_begin_as_a_real_one_and_use_its_labels(
    lab: testing.FreshLab, new_node: str, samples: Path
) -> None:
    # The sample was cut out of a longer output and lacks the first, empty line.
    ours = lab.run(new_node, "nvidia-smi", "-q").stdout.splitlines()[1:]
    real = (samples / "facts/nvidia-smi/rtx2080s_610.57.04/q.txt").read_text().splitlines()
    assert [line for line in ours[:8] if "Timestamp" not in line] == [
        line for line in real[:8] if "Timestamp" not in line
    ]
    # A Turing card has no such ECC counters; a Hopper card shows their labels.
    real += (samples / "facts/nvidia-smi/h200x1_590.48.01/q.txt").read_text().splitlines()
    labels = {line.split(":")[0].rstrip() for line in real}
    for line in ours:
        label = line.split(":")[0].rstrip()
        assert label in labels or label.startswith("GPU 0000"), line


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
