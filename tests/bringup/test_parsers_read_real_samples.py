"""Every sample in the folder of samples parses to the right facts. The samples stay in place; nothing is copied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bringup.parsers import host, machine, nic_tools, nics, nvfwupd, smi, smi_text
from bringup.parsers.records import Record
from pinsets.facts import ABSENT, Unreadable
from tests.bringup import one_liners

ZERO = "00000000-0000-0000-0000-000000000000"
RACK = "00000001-0000-0000-0000-000000000001"
XML = {
    "a100-sxm4-v12.xml": ("535.54.03", "12.2", 1, "92.00.36.00.02", None),
    "q-x_h100x8_570.86.15.xml": ("570.86.15", "12.8", 8, "96.00.A5.00.01", ZERO),
    "rtx-3080-v13.xml": ("595.58.03", "13.2", 1, "94.02.71.40.72", None),
    "hardware/qx-a100.xml": ("570.148.08", "12.8", 1, "92.00.45.00.03", None),
    "hardware/qx-b200.xml": ("580.105.08", "13.0", 8, "97.00.FA.00.09", ZERO),
    "hardware/qx-gb200.xml": ("580.173.02", "13.0", 4, "97.00.B9.00.69", RACK),
    "hardware/qx-gb300.xml": ("580.173.02", "13.0", 4, "97.10.4A.00.1A", RACK),
    "hardware/qx-h100.xml": ("580.105.08", "13.0", 8, "96.00.99.00.01", ZERO),
    "hardware/qx-l40s.xml": ("595.91.07", "13.2", 1, "95.02.66.00.15", None),
    "hardware/qx-t4.xml": ("595.91.07", "13.2", 1, "90.04.96.00.02", None),
}
DETAILS = {
    "a100-sxm4-v12.xml": ("Ampere", "G506.0212.00.01", {"power-limit": "500", "clocks": "graphics=1275;memory=1593"}),
    "hardware/qx-gb300.xml": (
        "Blackwell",
        "G548.0301.00.03",
        {"power-limit": "1400", "ecc": "enabled", "mig": "disabled", "clocks": "graphics=2070;memory=3996"},
    ),
    "hardware/qx-t4.xml": ("Turing", None, {"power-limit": "70", "ecc": "enabled"}),
}
TEXT = {
    "h100mig_590.48.01": ("590.48.01", "13.1", "NVIDIA H100 80GB HBM3", "enabled", 4),
    "h200x1_590.48.01": ("590.48.01", "13.1", "NVIDIA H200", "disabled", 0),
    "l40s_595.80": ("595.80", "13.2", "NVIDIA L40S", None, 0),
    "rtx2080s_595.71.05": ("595.71.05", "13.2", "NVIDIA GeForce RTX 2080 SUPER", None, 0),
    "rtx2080s_610.57.04": ("610.57.04", "13.3", "NVIDIA GeForce RTX 2080 SUPER", None, 0),
}


def _record(path: Path) -> Record:
    return Record("x", 0, 1, path.read_bytes(), b"")


def _smi(path: Path) -> smi.Smi:
    found = smi.smi(_record(path))
    assert isinstance(found, smi.Smi), found
    return found


@pytest.mark.parametrize("name", XML)
def test_the_xml_of_every_branch_gives_driver_gpus_and_fabric(samples: Path, name: str) -> None:
    driver, cuda, count, vbios, cluster = XML[name]
    found = _smi(samples / "facts/nvidia-smi" / name)
    assert (found.driver, found.cuda, len(found.gpus)) == (driver, cuda, count)
    assert found.gpus[0].vbios == vbios
    assert len({gpu.address for gpu in found.gpus}) == count
    assert smi.fabric(found.gpus).get("fabric.cluster-uuid") == cluster
    assert {gpu.gsp for gpu in found.gpus} == {driver}


@pytest.mark.parametrize("name", DETAILS)
def test_architecture_inforom_and_settings_are_read(samples: Path, name: str) -> None:
    architecture, inforom, settings = DETAILS[name]
    gpu = _smi(samples / "facts/nvidia-smi" / name).gpus[0]
    assert gpu.architecture == architecture
    if inforom is not None:
        assert gpu.inforom == inforom
    assert {key: gpu.settings.get(key) for key in settings} == settings


def test_a_tray_tells_its_place_and_the_health_of_its_fabric(samples: Path) -> None:
    gpu = _smi(samples / "facts/nvidia-smi/hardware/qx-gb300.xml").gpus[0]
    assert (gpu.tray, gpu.module, gpu.addressing, gpu.recovery) == ("15", "2", "ATS", None)
    fabric = smi.fabric_of(gpu)
    assert (fabric["state"], fabric["status"], fabric["clique"], fabric["health"]) == (
        "Completed",
        "Success",
        "32766",
        "Healthy",
    )


def test_all_xml_samples_in_the_folder_are_known_here(samples: Path) -> None:
    folder = samples / "facts/nvidia-smi"
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.xml")} == set(XML)
    assert {path.parent.name for path in folder.rglob("q.txt")} == set(TEXT)


@pytest.mark.parametrize("folder", TEXT)
def test_the_text_forms_of_every_branch_agree(samples: Path, folder: str) -> None:
    driver, cuda, product, mig, instances = TEXT[folder]
    place = samples / "facts/nvidia-smi" / folder
    found = smi_text.query(_record(place / "q.txt"))
    assert isinstance(found, smi.Smi), found
    (gpu,) = found.gpus
    assert (found.driver, found.cuda, gpu.product, gpu.gsp) == (driver, cuda, product, driver)
    assert gpu.settings.get("mig") == mig
    versions = smi_text.versions(_record(place / "version.txt"))
    assert isinstance(versions, dict)
    assert (versions["driver"], versions["cuda"]) == (driver, cuda)
    listed = smi_text.listed(_record(place / "L.txt"))
    assert not isinstance(listed, Unreadable)
    assert [(one["product"], one["mig"]) for one in listed] == [(product, str(instances))]
    rows = smi_text.table(_record(place / "query-gpu.csv.txt"))
    assert not isinstance(rows, Unreadable), rows
    assert rows[0]["driver_version"] == driver or rows[0].get("kmd_version") == driver
    assert rows[0]["vbios_version"] == gpu.vbios
    assert smi.address(rows[0]["pci.bus_id"]) == gpu.address
    assert smi_text.topology(_record(place / "topo-m.txt")) == {}


def test_the_text_form_gives_fabric_inforom_and_power_as_the_xml_would(samples: Path) -> None:
    found = smi_text.query(_record(samples / "facts/nvidia-smi/h200x1_590.48.01/q.txt"))
    assert isinstance(found, smi.Smi)
    (gpu,) = found.gpus
    assert (gpu.inforom, gpu.vbios, gpu.architecture) == ("G520.0280.02.02", "96.00.A5.00.03", "Hopper")
    assert gpu.settings["power-limit"] == "700"
    assert (gpu.settings["ecc"], gpu.settings["ecc.next"]) == ("enabled", "enabled")
    assert smi.fabric_of(gpu) == {"cluster-uuid": ZERO, "clique": "0", "state": "Completed", "status": "Success"}


def test_the_header_table_of_610_is_no_list_of_gpus_and_says_so(samples: Path) -> None:
    found = smi_text.query(_record(samples / "facts/nvidia-smi/rtx2080s_610.57.04/table.txt"))
    assert isinstance(found, Unreadable)


def test_nvlink_rates_are_read_per_link(samples: Path) -> None:
    links = smi_text.nvlink_links(_record(samples / "facts/nvidia-smi/nvlink-status_a100.txt"))
    assert isinstance(links, dict)
    assert len(links) == 8
    assert all(set(of_gpu.values()) == {"25 GB/s"} and len(of_gpu) == 12 for of_gpu in links.values())


def test_a_lost_gpu_is_unreadable_and_its_neighbour_is_not(samples: Path) -> None:
    found = _smi(samples / "facts/synthetic/qx-gb200-lost.xml")
    assert [gpu.lost for gpu in found.gpus] == [False, True]
    assert found.gpus[0].vbios == "96.00.9E.00.01"
    assert found.gpus[1].vbios == Unreadable("GPU is lost")


def test_a_degraded_fabric_shows_in_its_health(samples: Path) -> None:
    found = _smi(samples / "facts/synthetic/qx-gb200-fabric-degraded.xml")
    health = [smi.fabric_of(gpu).get("health") for gpu in found.gpus]
    assert set(health) - {"Healthy", None}


def _cases(samples: Path, name: str) -> list[dict[str, Any]]:
    return list(json.loads((samples / "facts/synthetic" / name).read_text()))


def test_every_one_line_sample_gives_what_is_expected_of_it(samples: Path) -> None:
    for case in _cases(samples, "oneliners.json"):
        assert one_liners.read(case) == case["expect"], (case["fact"], case["command"])


def test_every_fabric_state_is_judged_as_expected(samples: Path) -> None:
    for case in _cases(samples, "fabric_states.json"):
        assert one_liners.fabric(case) == one_liners.fabric_expected(case["verdict"]), case


def test_the_os_release_sample_is_read(samples: Path) -> None:
    text = (samples / "facts/host/os-release_ubuntu2204.txt").read_text()
    found = host.os_release({"/etc/os-release": text})
    assert not isinstance(found, Unreadable)
    assert (found["ID"], found["VERSION_ID"]) == ("ubuntu", "22.04")


def test_the_dmidecode_of_a_real_machine_gives_its_serial(samples: Path) -> None:
    table = machine.dmi_table((samples / "facts/host/dmidecode_xe9680.txt").read_text())
    assert table == {"manufacturer": "Dell Inc.", "product": "PowerEdge XE9680", "serial": "0000001"}
    # `dmidecode -s` prints the value alone.
    assert host.serial({}, Record("serial", 0, 1, f"{table['serial']}\n".encode(), b"")) == table["serial"]


def test_the_nics_of_an_hgx_box_are_read_from_sysfs(samples: Path) -> None:
    tree = json.loads((samples / "facts/nic/sysfs_infiniband_h100.json").read_text())
    found = nics.of_tree(tree)
    assert [nic.name for nic in found] == [f"mlx5_{index}" for index in (0, 1, 4, 5, 6, 7, 8, 9)]
    assert {(nic.firmware, nic.psid, nic.type) for nic in found} == {("28.41.1000", "MT_0000000838", "MT4129")}
    lines = "".join(f"{path}:{text}\n" for path, text in tree.items())
    assert nics.nics(Record("nics", 0, 1, lines.encode(), b"")) == found


def test_mstflint_tells_the_flash_from_what_runs(samples: Path) -> None:
    plain = nic_tools.mstflint((samples / "facts/nic/mstflint_q.txt").read_text())
    pending = nic_tools.mstflint((samples / "facts/nic/mstflint_q_reset_pending.txt").read_text())
    assert plain == nics.Stored("20.35.1012", "20.35.1012", "MT_0000000228")
    assert pending == nics.Stored("20.34.1002", "20.35.1012", "MT_0000000228")


def test_mlxfwmanager_reads_cards_and_says_which_cannot_be_opened(samples: Path) -> None:
    folder = samples / "facts/nic"
    mixed = nic_tools.mlxfwmanager(_record(folder / "mlxfwmanager_mixed_devices_xml.xml"))
    assert isinstance(mixed, dict)
    assert {where: (card.firmware, card.psid) for where, card in mixed.items()} == {
        "0000:dc:00.0": ("32.42.1000", "MT_0000001010"),
        "0000:9d:00.0": (Unreadable("Failed to open device"), None),
        "0000:9c:00.0": ("32.42.1000", "MT_0000001010"),
    }
    for name in ("mlxfwmanager_dpu_failed_xml.xml", "mlxfwmanager_dpu_failed_xml2.xml"):
        failed = nic_tools.mlxfwmanager(_record(folder / name))
        assert isinstance(failed, dict)
        assert [card.firmware for card in failed.values()] == [Unreadable("Failed to open device")]


def _parts(samples: Path, name: str) -> nvfwupd.Shown:
    found = nvfwupd.show_version(_record(samples / "facts/nvfwupd" / name))
    assert isinstance(found, nvfwupd.Shown), found
    return found


def test_nvfwupd_reads_a_compute_tray_a_switch_tray_and_a_dgx(samples: Path) -> None:
    tray = {part.name: part.version for part in _parts(samples, "gb300_compute_show_version.txt").parts}
    assert len(tray) == 32
    assert tray["FW_CPLD_0"] == "0x00 0x0c 0x06 0x04"
    assert (tray["HGX_FW_GPU_0"], tray["HGX_FW_GPU_2"]) == ("97.10.12.00.00", "97.10.06.00.00")
    assert tray["HGX_FW_CPU_0"] == "3.0.4_dot"
    older = {part.name: part.version for part in _parts(samples, "gb200_compute_show_version.txt").parts}
    assert (older["HGX_FW_FPGA_0"], older["FW_BMC_0"]) == ("312e3041", "gb200nvl-24.08-2")
    assert older["FW_ERoT_BMC_0"] == "01.03.0183.0000_n04"
    switch = _parts(samples, "gb200_switch_show_version.txt")
    by_name = {part.name: part.version for part in switch.parts}
    assert switch.switch
    assert switch.model == "N5110_LD"
    assert (by_name["ASIC"], by_name["BIOS"], by_name["transceiver"]) == ("35.2014.1660", "0ACTV_00.01.012", ABSENT)
    dgx = _parts(samples, "dgxh100_show_version.json")
    versions = {part.name: part.version for part in dgx.parts}
    assert (dgx.model, versions["HostBIOS_0"], versions["CX7_0"]) == ("DGXH100", "01.05.03", "28.42.1000")
    # Each slot has its own right version: two bridges of one machine differ and are both right.
    assert (versions["PCIeSwitch_0"], versions["PCIeSwitch_1"]) == ("0.0.7", "1.0.7")


def test_every_placed_part_of_nvfwupd_belongs_to_a_component_of_the_registry(samples: Path) -> None:
    from pinsets import components

    registry = components.load()
    for path in (samples / "facts/nvfwupd").iterdir():
        shown = _parts(samples, path.name)
        placed = [nvfwupd.place(part, shown.switch) for part in shown.parts]
        assert {where[0] for where in placed if where is not None} <= {str(name) for name in registry}
        assert sum(where is not None for where in placed) >= 0.6 * len(placed)


def test_the_firmware_partitions_of_an_amd_nic_are_read(samples: Path) -> None:
    found = nic_tools.nicctl(_record(samples / "facts/amd/nicctl_show_card.json"))
    assert found == {
        place: nics.Stored("1.117.1-a-7", "1.117.1-a-7", "POLLARA-1Q400P") for place in ("0000:44:00.0", "0000:84:00.0")
    }


def test_amd_s_tools_are_read_whatever_they_print_in_front(samples: Path) -> None:
    from bringup.parsers import amd

    banner = amd.version(_record(samples / "facts/synthetic/amd-smi_version_banner.txt"))
    assert isinstance(banner, amd.Versions)
    assert (banner.tool, banner.rocm, banner.amdgpu, banner.inbox) == ("26.0.0", "7.0.0", "6.14.14", False)
    short = amd.version(_record(samples / "facts/synthetic/amd-smi_version.json"))
    assert isinstance(short, amd.Versions)
    assert (short.library, short.rocm) == ("1.2.3", "6.1.0")
    old = amd.firmware(_record(samples / "facts/synthetic/amd-smi_firmware_fw_name.json"))
    assert old == {0: {"SMU": "55.33", "VBIOS": "V1"}}
    skew = amd.firmware(_record(samples / "facts/synthetic/amd-smi_firmware_skew.json"))
    assert isinstance(skew, dict)
    assert [amd.pldm(values) for values in skew.values()] == ["01.25.03.12", "01.25.03.12", "01.25.02.04"]
    for name, driver in (("rocm602", "6.3.6"), ("rocm571", "6.2.4")):
        found, cards = amd.rocm_smi(_record(samples / f"facts/amd/rocm-smi_mi100_{name}.json"))
        assert found == driver
        assert cards
        assert all(card["vbios"].startswith("113-") for card in cards.values())
