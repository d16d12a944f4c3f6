"""A whole answer of one node → coordinates of the registry and attributes: an HGX box, an AMD node, an older probe."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from bringup import probe
from bringup.parsers import node, records
from inventory.model import SkuFile
from lockstep.base.names import NodeName
from pinsets import components
from pinsets.facts import Coordinate, NodeFacts, Unreadable

HGX = SkuFile(
    sku="hgx",
    accelerator="NVIDIA B200",
    gpus={"0000:1b:00.0": "gpu0", "0000:43:00.0": "gpu1"},
    nics={"0000:1a:00.0": "nic0", "0000:3c:00.0": "nic1"},
    nvlink="node",
)
AMD = SkuFile(sku="mi", vendor="amd", accelerator="AMD Instinct MI300X", gpus={"0000:05:00.0": "gpu0"})


def _facts(texts: Mapping[str, str | int], sku: SkuFile | None) -> NodeFacts:
    """Facts of an answer in which a number is the status of a command that said nothing."""
    lines = []
    for name, text in texts.items():
        out = base64.b64encode(text.encode()).decode() if isinstance(text, str) else ""
        lines.append(
            json.dumps({"id": name, "rc": text if isinstance(text, int) else 0, "ms": 1, "out": out, "err": ""})
        )
    stream = "\n".join([*lines, '{"done": 1}', ""]).encode()
    return node.facts(NodeName("n"), records.read(stream), components.load(), sku=sku, observed_at=1.0)


def _host(**files: str) -> str:
    return "".join(f"@{name}\n" + "".join(f" {line}\n" for line in text.split("\n")) for name, text in files.items())


def _seen(facts: NodeFacts) -> dict[str, str]:
    return {str(coordinate): str(fact.observation) for coordinate, fact in facts.facts.items()}


_GPU = (
    '<gpu id="00000000:{place}:00.0"><product_name>NVIDIA B200</product_name><product_architecture>Blackwell'
    "</product_architecture><vbios_version>97.00.FA.00.09</vbios_version><gsp_firmware_version>{gsp}"
    "</gsp_firmware_version><inforom_version><img_version>G525.0225.00.05</img_version></inforom_version>"
    "<mig_mode><current_mig>Disabled</current_mig><pending_mig>Disabled</pending_mig></mig_mode>"
    "<gpu_power_readings><current_power_limit>1000.00 W</current_power_limit></gpu_power_readings>"
    "<fabric><state>{state}</state><status>Success</status><cliqueId>0</cliqueId>"
    "<clusterUuid>00000000-0000-0000-0000-000000000000</clusterUuid></fabric></gpu>"
)


def _hgx(**changes: str | int) -> dict[str, str | int]:
    gpus = _GPU.format(place="1B", gsp="580.126.20", state="Completed") + _GPU.format(
        place="43", gsp="580.126.20", state=str(changes.pop("state", "Completed"))
    )
    sysfs = "/sys/class/infiniband"
    nic = "".join(
        f"{sysfs}/mlx5_{index}/fw_ver:28.44.1036\n{sysfs}/mlx5_{index}/board_id:MT_0000000838\n"
        f"{sysfs}/mlx5_{index}/device/uevent:PCI_SLOT_NAME=0000:{place}:00.0\n"
        f"{sysfs}/mlx5_{index}/ports/1/rate:400 Gb/sec (4X NDR)\n"
        for index, place in enumerate(("1a", "3c"))
    )
    devlink = {
        f"pci/0000:{place}:00.0": {"versions": {"running": {"fw": "28.44.1036"}, "stored": {"fw": stored}}}
        for place, stored in (("1a", "28.44.1036"), ("3c", "28.47.2682"))
    }
    answer: dict[str, str | int] = {
        "host": _host(
            **{
                "/etc/os-release": 'ID=ubuntu\nVERSION_ID="24.04"',
                "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.20  x",
                "/sys/module/nvidia/version": "580.126.20",
                "/proc/driver/nvidia/params": "A: 1",
                "/proc/cmdline": "ro iommu=pt root=/dev/sda1",
                "modules": "nvidia\nnvidia_peermem\nmlx5_core\nib_core",
                "/sys/module/nvidia_peermem/version": "580.126.20",
                "/sys/module/mlx5_core/version": "25.10-1.7.1",
                "gsp": "580.126.20",
                "compat": "libcuda.so.590.48.01",
                "cpu": "vendor_id\t: AuthenticAMD\nmodel name\t: EPYC",
                "numa": "2 2",
                "page": "KernelPageSize:        4 kB",
                "iommu": "on",
                "toolkits": "13.0\n12.9",
                "uid": "Uid:\t0\t0\t0\t0",
                "kernels": "6.8.0-60-generic",
            }
        ),
        "kernel": "6.8.0-60-generic x86_64\n",
        "holders": "=7 nv-fabricmanage /usr/bin/nv-fabricmanager\n"
        "=8 nvlsm /opt/nvidia/nvlsm/sbin/nvlsm (deleted)\nend\n",
        "module": "filename: /lib/modules/6.8.0-60-generic/updates/dkms/nvidia.ko\nversion: 580.126.20\n"
        "license: Dual MIT/GPL\nvermagic: 6.8.0-60-generic SMP\n"
        "filename: /lib/modules/6.8.0-60-generic/updates/dkms/mlx5_core.ko\nversion: 25.10-1.7.1\n",
        "libraries": "@paths\n libcuda.so.1 /l/libcuda.so.1\n libnvidia-ml.so.1 /l/libnvidia-ml.so.1\n"
        " libibverbs.so.1 /l/libibverbs.so.1\n@real\n /l/libcuda.so.1 /l/libcuda.so.580.126.20\n"
        " /l/libnvidia-ml.so.1 /l/libnvidia-ml.so.580.95.05\n"
        " /l/libibverbs.so.1 /l/libibverbs.so.1.14.50.0\n@strings\n",
        "nics": nic,
        "devlink": json.dumps({"info": devlink}),
        "fabricmanager": "Fabric Manager version is : 580.126.20\n",
        "nvlsm": "OpenSM 2025.06.5_x\n",
        "imex": 127,
        "imex_domain": 127,
        "cdi": "/etc/cdi/nvidia.yaml:libcuda.so.580.95.05\n",
        "smi": f"<nvidia_smi_log><driver_version>580.126.20</driver_version>{gpus}</nvidia_smi_log>",
        "nvlink": "GPU 0: x\n     NETIR: 36:2014:1862\n     MSE: 14:4:0\n",
        "disks": "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/a 10 9 1 91% /\n",
    }
    return answer | changes


def test_an_hgx_box_gives_every_layer_it_has() -> None:
    seen = _seen(_facts(_hgx(), HGX))
    assert seen["driver@running"] == seen["driver@ondisk"] == "580.126.20"
    # The two user-mode libraries differ: that is known, not unreadable.
    assert seen["driver@library"] == "580.126.20,580.95.05"
    assert (seen["driver.flavour@running"], seen["driver.gsp@running"], seen["driver.gsp@ondisk"]) == (
        "open",
        "580.126.20",
        "580.126.20",
    )
    assert (seen["fabricmanager@running"], seen["nvlsm@ondisk"]) == ("580.126.20", "2025.06.5")
    assert "replaced on disk" in seen["nvlsm@running"]
    assert seen["imex@ondisk"] == "absent"
    assert "imex@running" not in seen
    assert seen["cdi@ondisk"] == "580.95.05"
    assert seen["rdma-core@library"] == "50.0"
    assert seen["peermem@running"] == "580.126.20"
    assert seen["cuda.compat@ondisk"] == "590.48.01"
    assert seen["ofed@running"].startswith("25.10-1.7.1")
    assert seen["firmware.nvlink[gpu0]@running"] == "36.2014.1862"
    assert (seen["settings.mig[gpu0]@running"], seen["settings.mig[gpu0]@flashed"]) == ("disabled", "disabled")
    assert seen["settings.page-size@running"] == "4096"


def test_firmware_that_waits_for_a_reset_shows_in_its_slot_only() -> None:
    seen = _seen(_facts(_hgx(), HGX))
    assert (seen["firmware.nic[nic0]@running"], seen["firmware.nic[nic0]@flashed"]) == ("28.44.1036", "28.44.1036")
    assert (seen["firmware.nic[nic1]@running"], seen["firmware.nic[nic1]@flashed"]) == ("28.44.1036", "28.47.2682")


def test_the_flash_of_a_nic_is_known_by_mlxfwmanager_where_the_driver_does_not_tell() -> None:
    version = '<Versions><FW current="28.47.2682"/></Versions>'
    flash = f'<Devices><Device pciName="0000:1a:00.0" psid="MT_0000000838">{version}</Device></Devices>'
    seen = _seen(_facts(_hgx(devlink=1, mlxfwmanager=flash), HGX))
    assert (seen["firmware.nic[nic0]@running"], seen["firmware.nic[nic0]@flashed"]) == ("28.44.1036", "28.47.2682")
    assert seen["firmware.nic[nic1]@flashed"].startswith("unreadable")


def test_attributes_name_nics_gpus_and_the_way_of_rdma() -> None:
    found = _facts(_hgx(), HGX).attributes
    assert (found["nic.count"], found["nic.rates"], found["nic.nic0.psid"]) == ("2", "400", "MT_0000000838")
    assert (found["gpu.product"], found["gpu.architecture"], found["gpus"]) == ("NVIDIA B200", "Blackwell", "gpu0,gpu1")
    assert (found["rdma.path"], found["ofed.origin"], found["cpu.vendor"]) == ("peermem", "dkms", "amd")
    assert (found["driver.next-kernel"], found["cuda.toolkits"]) == ("580.126.20", "12.9,13.0")
    assert (found["daemons"], found["daemon.nvlsm.replaced"]) == ("nv-fabricmanager,nvlsm", "yes")
    assert (found["disk./.used"], found["disk.fullest"]) == ("91", "/ 91")


def test_the_fabric_is_judged_by_the_kind_of_machine() -> None:
    assert _facts(_hgx(), HGX).attributes["fabric.verdict"] == "ok"
    rack = HGX.model_copy(update={"nvlink": "rack"})
    assert "zero cluster uuid" in _facts(_hgx(), rack).attributes["fabric.verdict"]
    late = _facts(_hgx(state="In Progress"), HGX).attributes["fabric.verdict"]
    assert late.startswith("gpu1: not registered")


def test_what_was_looked_for_and_is_not_there_is_empty_and_not_unread() -> None:
    files = {"cpu": "vendor_id\t: GenuineIntel", "modules": "nvidia"}
    found = _facts(_hgx(host=_host(**files), nics="\n", log="#read\n", libraries="@paths\n@ucx\n"), HGX).attributes
    empty = ["imex.nodes", "nic.names", "nic.rates", "nic.links", "kernel.mismatch", "nccl.plugins.needs"]
    empty += ["ucx.gdrcopy", "aws-ofi-nccl.libfabric", "cudnn.libraries"]
    assert {key: found.get(key) for key in empty} == dict.fromkeys(empty, "")
    only_comments = _facts(_hgx(host=_host(**files, **{"/etc/nvidia-imex/nodes_config.cfg": "# none"})), HGX)
    assert only_comments.attributes["imex.nodes"] == ""
    unread = _facts(_hgx(host=_host(modules="nvidia"), nics=-1, log="", libraries=-1), HGX).attributes
    assert [key for key in empty if key in unread] == []


def test_a_nic_that_is_gone_is_absent_and_a_list_that_failed_is_unreadable() -> None:
    gone = _seen(_facts(_hgx(nics="\n"), HGX))
    assert gone["firmware.nic[nic1]@running"] == "absent"
    facts = _facts(_hgx(nics=-1), HGX)
    assert isinstance(facts.observation(Coordinate.parse("firmware.nic[nic1]@running")), Unreadable)
    assert "nic.count" not in facts.attributes


def test_an_amd_node_gives_firmware_and_partition_of_each_gpu() -> None:
    card = "/sys/class/drm/card1/device"
    facts = _facts(
        {
            "host": _host(
                **{"modules": "amdgpu", "/sys/module/amdgpu/version": "6.16.6", "/opt/rocm/.info/version": "7.1.1-38"}
            ),
            "kernel": "6.8.0-60-generic x86_64\n",
            "module": "filename: /lib/modules/6.8.0-60-generic/updates/dkms/amdgpu.ko\nversion: 6.16.6\n",
            "amd": f"{card}/uevent:DRIVER=amdgpu\n{card}/uevent:PCI_SLOT_NAME=0000:05:00.0\n"
            f"{card}/vbios_version:113-M3000100-102\n"
            f"{card}/current_compute_partition:SPX\n{card}/current_memory_partition:NPS1\n",
            "amd_version": '[{"version": "26.2.0+x", "rocm_version": "7.1.1", "amdgpu_version": "6.16.6"}]',
            "amd_firmware": '[{"gpu": 0, "fw_list": [{"fw_id": "PLDM_BUNDLE", "fw_version": "01.25.16.03"}]}]',
            "amd_static": '[{"gpu": 0, "bus": {"bdf": "0000:05:00.0"}, "asic": {"market_name": "MI300X"}}]',
        },
        AMD,
    )
    seen = _seen(facts)
    assert (seen["amdgpu@running"], seen["amdgpu@ondisk"]) == ("6.16.6", "6.16.6")
    assert seen["firmware.ifwi[gpu0]@running"] == "113-M3000100-102"
    assert seen["firmware.pldm[gpu0]@running"].endswith("25.16.03")
    assert seen["settings.partition[gpu0]@running"] == "SPX/NPS1"
    assert seen["rocm@ondisk"].startswith("7.1.1")
    assert facts.attributes["gpus"] == "gpu0"
    assert facts.attributes["gpu.product"] == "MI300X"


def test_what_an_older_probe_did_not_ask_makes_no_fact() -> None:
    seen = _seen(
        _facts({"host": _host(**{"/etc/os-release": "ID=debian\nVERSION_ID=12"}), "kernel": "6.1\nx86_64\n"}, None)
    )
    assert seen["kernel@running"] == "6.1"
    assert {"disks", "settings.env@ondisk", "firmware.nic[nic0]@running", "cdi@ondisk"}.isdisjoint(seen)
    assert not any("not asked for" in value for value in seen.values())


def test_every_coordinate_is_one_of_the_registry() -> None:
    registry = components.load()
    deep = {
        "conf_compute": "CC status: OFF\n",
        "topology": "\tGPU0\tNIC0\nGPU0\t X \tPIX\nNIC0\tPIX\t X \n",
        "mlxfwmanager": "<Devices/>",
        "mlxconfig": "@0000:1a:00.0\nConfigurations:   Default   Current   Next Boot\n    ATS_ENABLED   0   0   1\n",
        "acs": "00:01.0 PCI bridge: x\n  ACSCtl: SrcValid-\n",
    }
    assert _seen(_facts(_hgx(**deep), HGX))["settings.cc[gpu0]@running"] == "disabled"
    for facts in (_facts(_hgx(**deep), HGX), _facts({"host": _host(modules="amdgpu")}, AMD)):
        for coordinate in facts.facts:
            entry = registry[coordinate.component]
            assert coordinate.layer in (*entry.layers, *entry.further), coordinate
            assert (coordinate.instance is not None) == (entry.instance is not None), coordinate


def test_every_record_that_the_tables_pick_is_one_of_the_probe() -> None:
    known = {command.id for command in probe.COMMANDS}
    assert set(_hgx()) <= known
