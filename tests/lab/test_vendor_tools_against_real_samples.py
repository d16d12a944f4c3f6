"""The stand-in vendor tools against real samples of drivers 580, 590 and 610.

Not marked `lab`: the samples lie outside the repository, so that no tier can require these tests.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from lab import testing


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
