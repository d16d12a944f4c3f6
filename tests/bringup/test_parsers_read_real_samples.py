"""Every real nvidia-smi sample parses: versions, GPUs with VBIOS and addresses, fabric. The samples stay in place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bringup.parsers import host, nvidia
from bringup.parsers.records import Record
from pinsets.facts import Unreadable

XML = {
    "a100-sxm4-v12.xml": ("535.54.03", 1, "92.00.36.00.02", None),
    "q-x_h100x8_570.86.15.xml": ("570.86.15", 8, "96.00.A5.00.01", "00000000-0000-0000-0000-000000000000"),
    "rtx-3080-v13.xml": ("595.58.03", 1, "94.02.71.40.72", None),
    "hardware/qx-a100.xml": ("570.148.08", 1, "92.00.45.00.03", None),
    "hardware/qx-b200.xml": ("580.105.08", 8, "97.00.FA.00.09", "00000000-0000-0000-0000-000000000000"),
    "hardware/qx-gb200.xml": ("580.173.02", 4, "97.00.B9.00.69", "00000001-0000-0000-0000-000000000001"),
    "hardware/qx-gb300.xml": ("580.173.02", 4, "97.10.4A.00.1A", "00000001-0000-0000-0000-000000000001"),
    "hardware/qx-h100.xml": ("580.105.08", 8, "96.00.99.00.01", "00000000-0000-0000-0000-000000000000"),
    "hardware/qx-l40s.xml": ("595.91.07", 1, "95.02.66.00.15", None),
    "hardware/qx-t4.xml": ("595.91.07", 1, "90.04.96.00.02", None),
}


def _record(path: Path) -> Record:
    return Record("smi", 0, 1, path.read_bytes(), b"")


@pytest.mark.parametrize("name", XML)
def test_the_xml_of_every_branch_gives_driver_gpus_and_fabric(samples: Path, name: str) -> None:
    driver, count, vbios, cluster = XML[name]
    smi = nvidia.smi(_record(samples / "facts/nvidia-smi" / name))
    assert isinstance(smi, nvidia.Smi), smi
    assert smi.driver == driver
    assert len(smi.gpus) == count
    assert smi.gpus[0].vbios == vbios
    assert len({gpu.address for gpu in smi.gpus}) == count
    assert nvidia.fabric(smi.gpus).get("fabric.cluster-uuid") == cluster


def test_all_samples_in_the_folder_are_known_here(samples: Path) -> None:
    folder = samples / "facts/nvidia-smi"
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.xml")} == set(XML)


@pytest.mark.parametrize(
    ("folder", "cuda"),
    [
        ("h200x1_590.48.01", "13.1"),
        ("l40s_595.80", "13.2"),
        ("rtx2080s_595.71.05", "13.2"),
        ("rtx2080s_610.57.04", "13.3"),
    ],
)
def test_names_and_notes_of_every_branch_are_read_as_its_text_form_prints_them(
    samples: Path, folder: str, cuda: str
) -> None:
    """Real keys and values of `-q`, put into XML as nvidia-smi names elements (for 610 that naming is inferred)."""
    text = (samples / "facts/nvidia-smi" / folder / "q.txt").read_text()
    head = [line.partition(" : ") for line in text.partition("Attached GPUs")[0].splitlines() if " : " in line]
    elements = "".join(
        f"<{key.strip().lower().replace(' ', '_')}>{value.strip()}</{key.strip().lower().replace(' ', '_')}>"
        for key, _, value in head
    )
    smi = nvidia.smi(Record("smi", 0, 1, f"<nvidia_smi_log>{elements}</nvidia_smi_log>".encode(), b""))
    assert isinstance(smi, nvidia.Smi)
    assert (smi.driver, smi.cuda) == (folder.rpartition("_")[2], cuda)


def test_a_lost_gpu_is_unreadable_and_its_neighbour_is_not(samples: Path) -> None:
    smi = nvidia.smi(_record(samples / "facts/synthetic/qx-gb200-lost.xml"))
    assert isinstance(smi, nvidia.Smi)
    assert [gpu.lost for gpu in smi.gpus] == [False, True]
    assert smi.gpus[0].vbios == "96.00.9E.00.01"
    assert smi.gpus[1].vbios == Unreadable("GPU is lost")


def test_the_one_line_samples_give_what_is_expected_of_them(samples: Path) -> None:
    cases = json.loads((samples / "facts/synthetic/oneliners.json").read_text())
    seen = 0
    for case in cases:
        record = Record("x", 0, 1, case["output"].encode(), b"")
        if case["fact"] == "nvidia.kmod.running":
            found, flavour = nvidia.module_running({"/proc/driver/nvidia/version": case["output"]})
            assert (found, flavour) == (case["expect"]["version"], case["expect"]["flavour"])
        elif case["fact"] == "nvidia.kmod.ondisk":
            assert nvidia.module_ondisk(record)[0] == case["expect"]["version"]
        elif case["fact"] in ("fabricmanager.installed", "imex.installed", "nvct"):
            assert nvidia.tool_version(record, "version") == case["expect"]["version"]
        elif case["fact"] == "nvidia.smi":
            smi = nvidia.smi(Record("smi", 9, 1, case["output"].encode(), b""))
            assert isinstance(smi, Unreadable) or smi.gpus == ()
        else:
            continue
        seen += 1
    assert seen >= 8


def test_the_os_release_sample_is_read(samples: Path) -> None:
    text = (samples / "facts/host/os-release_ubuntu2204.txt").read_text()
    found = host.os_release({"/etc/os-release": text})
    assert not isinstance(found, Unreadable)
    assert (found["ID"], found["VERSION_ID"]) == ("ubuntu", "22.04")


def test_the_dmidecode_of_a_real_machine_gives_its_serial(samples: Path) -> None:
    # `dmidecode -s` prints the value alone; the table's own line shows the same one.
    table = (samples / "facts/host/dmidecode_xe9680.txt").read_text()
    value = next(line.split(":")[1].strip() for line in table.splitlines() if "Serial Number" in line)
    assert host.serial({}, Record("serial", 0, 1, f"{value}\n".encode(), b"")) == value
