"""What every source of facts can give at all: the coordinates and attributes of rich readings, source by source."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from bringup import probe
from bringup.cluster_views import DaemonView, DeviceView, NodeView, SliceView
from bringup.parsers import nvfwupd
from bringup.parsers.records import Record
from bringup.redfish import bmc, source
from bringup.sources import kubernetes
from bringup.sources import nvfwupd as printed
from inventory.model import Sku
from lockstep.base.names import NodeName
from pinsets import components
from pinsets.facts import Coordinate, NodeFacts, Unreadable

from . import test_an_answer_becomes_facts as answers
from .redfish.test_what_a_bmcs_inventory_means import node

__all__ = ["attributes", "given", "only_deep"]

_CARD = "/sys/class/drm/card1/device"
_RICH: Mapping[str, str] = {
    "packages": "#dpkg\ndatacenter-gpu-manager-4-cuda13\t1:4.4.2-1\tii \tamd64\n",
    "nics": "/sys/class/infiniband/mlx5_0/fw_ver:28.44.1036\n/sys/class/infiniband/mlx5_0/board_id:MT_0000000838\n"
    "/sys/class/infiniband/mlx5_0/device/uevent:PCI_SLOT_NAME=0000:1a:00.0\n"
    "/sys/class/infiniband/mlx5_0/ports/1/rate:400 Gb/sec (4X NDR)\n"
    "/sys/class/infiniband/mlx5_0/ports/1/link_layer:InfiniBand\n",
    "ofed": "MLNX_OFED_LINUX-5.8-1.1.2.1:\n",
    "mft": "mstflint, mft 4.34.0-145, git SHA x\n",
    "ucx": "# Library version: 1.17.0\n",
    "libfabric": "fi_info: 1.22.0\nlibfabric: 1.22.0amzn4.0\nlibfabric api: 1.22\n",
    "toolkit": "NVIDIA Container Toolkit CLI version 1.18.1\n",
    "containerd": "containerd github.com/containerd/containerd v2.1.4 x\n",
    "runc": "runc version 1.3.0\n",
    "kubelet": "Kubernetes v1.34.2\n",
    "kubeadm": "v1.34.2\n",
    "imex": "IMEX version is: 580.126.20\n",
    "dcgm": "Version : 4.4.2\nBuild ID : 1\n",
    "holders": "=7 nv-fabricmanage /usr/bin/nv-fabricmanager\n=8 nvlsm /opt/nvidia/nvlsm/sbin/nvlsm\n"
    "=9 nvidia-imex /usr/bin/nvidia-imex\n=10 nv-hostengine /usr/bin/nv-hostengine\n"
    "=11 containerd /usr/bin/containerd\n"
    "#imex 10 20\nend\n",
    "log": "#read\n",
    "module": "filename: /lib/modules/6.8.0-60-generic/kernel/drivers/infiniband/core/ib_core.ko\nversion: 1\n"
    "filename: /lib/modules/6.8.0-60-generic/updates/dkms/nvidia.ko\nversion: 580.126.20\nlicense: Dual MIT/GPL\n",
    "libraries": "@paths\n libcuda.so.1 /usr/local/cuda/compat/libcuda.so.1\n libnccl.so.2 /l/libnccl.so.2\n"
    " libnccl-net.so /l/libnccl-net.so\n libfabric.so.1 /l/libfabric.so.1\n libibverbs.so.1 /l/libibverbs.so.1\n"
    " libmlx5.so.1 /l/libmlx5.so.1\n libefa.so.1 /l/libefa.so.1\n libnvidia-nscq.so.2 /l/libnvidia-nscq.so.2\n"
    "@ucx\n /l/ucx/libuct_cuda_gdrcopy.so.0\n@real\n"
    " /usr/local/cuda/compat/libcuda.so.1 /usr/local/cuda/compat/libcuda.so.590.48.01\n"
    " /l/libnccl.so.2 /l/libnccl.so.2.28.9\n /l/libnvidia-nscq.so.2 /l/libnvidia-nscq.so.580.126.20\n"
    "@strings\n /l/libnccl-net.so:aws-ofi-nccl 1.17.2\n /l/libnccl-net.so:FABRIC_1.8\n /l/libfabric.so.1:FABRIC_1.8\n"
    " /l/libibverbs.so.1:IBVERBS_1.14\n /l/libmlx5.so.1:MLX5_1.25\n /l/libefa.so.1:EFA_1.3\n"
    " /l/ucx/libuct_cuda_gdrcopy.so.0:gdr_get_info_v2\n@cudnn\n #define CUDNN_MAJOR 9\n #define CUDNN_MINOR 17\n"
    " #define CUDNN_PATCHLEVEL 0\n",
    "conf_compute": "CC status: OFF\n",
    "mlxconfig": "@0000:1a:00.0\nConfigurations:   Default   Current   Next Boot\n    ATS_ENABLED   0   0   1\n",
    "acs": "00:01.0 PCI bridge: x\n  ACSCtl: SrcValid-\n",
}
_FILES: Mapping[str, str] = {
    "/etc/os-release": "ID=ubuntu\nVERSION_ID=24.04",
    "/etc/dgx-release": 'DGX_SWBUILD_VERSION="7.4.0"',
    "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.20  x",
    "/sys/module/nvidia/version": "580.126.20",
    "/proc/driver/nvidia/params": "CoherentGPUMemoryMode: driver",
    "/usr/local/cuda/version.json": '{"cuda": {"version": "13.0.2"}}',
    "/opt/amazon/efa_installed_packages": "# EFA installer version: 1.47.0",
    "/etc/nvidia-imex/nodes_config.cfg": "10.0.0.1",
    "/opt/hpcx-v2.25/VERSION": "v2.25.1",
    "/proc/cmdline": "iommu=pt",
    "/sys/class/dmi/id/bios_version": "1.5.6",
    "modules": "nvidia\nnvidia_peermem\nmlx5_core\nib_core",
    "cpu": "vendor_id\t: AuthenticAMD\nmodel name\t: EPYC",
    "numa": "2 2",
    "page": "KernelPageSize:        4 kB",
    "iommu": "on",
    "compat": "libcuda.so.590.48.01",
    "gsp": "580.126.20",
    "kernels": "6.8.0-60-generic",
    "uid": "Uid:\t0\t0\t0\t0",
}
_GPU = (
    '<gpu id="00000000:1B:00.0"><product_name>NVIDIA B200</product_name><product_architecture>Blackwell'
    "</product_architecture><vbios_version>97.00.FA.00.09</vbios_version><gsp_firmware_version>580.126.20"
    "</gsp_firmware_version><ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Enabled</pending_ecc></ecc_mode>"
    "<inforom_version><img_version>G525.0225.00.05</img_version></inforom_version>"
    "<mig_mode><current_mig>Disabled</current_mig><pending_mig>Disabled</pending_mig></mig_mode>"
    "<applications_clocks><graphics_clock>1965 MHz</graphics_clock><mem_clock>3996 MHz</mem_clock>"
    "</applications_clocks>"
    "<gpu_power_readings><current_power_limit>1000.00 W</current_power_limit></gpu_power_readings>"
    "<fabric><state>Completed</state><status>Success</status><cliqueId>0</cliqueId>"
    "<clusterUuid>00000000-0000-0000-0000-000000000000</clusterUuid></fabric></gpu>"
)


def _ssh(left_out: Collection[str] = ()) -> list[NodeFacts]:
    nvidia = answers._hgx(
        **{name: text for name, text in _RICH.items() if name not in left_out},
        host=answers._host(**_FILES),
        smi=f"<nvidia_smi_log><driver_version>1</driver_version>{_GPU}</nvidia_smi_log>",
    )
    amd = {
        "host": answers._host(
            **{"modules": "amdgpu", "/sys/module/amdgpu/version": "6.16.6", "/opt/rocm/.info/version": "7.1.1-38"}
        ),
        "kernel": "6.8.0-60-generic x86_64\n",
        "module": "filename: /lib/modules/6.8.0-60-generic/updates/dkms/amdgpu.ko\nversion: 6.16.6\n",
        "amd": f"{_CARD}/uevent:DRIVER=amdgpu\n{_CARD}/uevent:PCI_SLOT_NAME=0000:05:00.0\n"
        f"{_CARD}/vbios_version:113-M3000100-102\n"
        f"{_CARD}/current_compute_partition:SPX\n{_CARD}/current_memory_partition:NPS1\n",
        "amd_version": '[{"version": "26.2.0+x", "rocm_version": "7.1.1", "amdgpu_version": "6.16.6"}]',
        "amd_firmware": '[{"gpu": 0, "fw_list": [{"fw_id": "PLDM_BUNDLE", "fw_version": "01.25.16.03"}]}]',
        "amd_static": '[{"gpu": 0, "bus": {"bdf": "0000:05:00.0"}, "asic": {"market_name": "MI300X"}}]',
    }
    return [answers._facts(nvidia, answers.HGX), answers._facts(amd, answers.AMD)]


_PARTS = (
    *("HGX_FW_GPU_0", "HGX_InfoROM_GPU_0", "HGX_FW_BMC_0", "FW_BMC_0", "UEFI", "FW_CPLD_0", "FW_ERoT_BMC_0"),
    *("HGX_FW_FPGA_0", "HGX_FW_NVSwitch_0", "HGX_FW_PCIeRetimer_0", "HGX_FW_PCIeSwitch_0", "HGX_FW_CPU_0"),
    *("HGX_FW_SXM_SMA_0", "NIC_0"),
)
_KINDS = {
    "cpld": "FW_CPLD_0",
    "erot": "FW_ERoT_BMC_0",
    "fpga": "HGX_FW_FPGA_0",
    "nvswitch": "HGX_FW_NVSwitch_0",
    "retimer": "HGX_FW_PCIeRetimer_0",
    "pcieswitch": "HGX_FW_PCIeSwitch_0",
    "cpu": "HGX_FW_CPU_0",
    "smr": "HGX_FW_SXM_SMA_0",
}
BOARD = Sku.model_validate(
    {
        "sku": "board",
        "accelerator": "NVIDIA B200",
        "gpus": {"0000:01:00.0": "gpu0"},
        "nics": {"0000:02:00.0": "nic0"},
        "instances": {kind: {name: f"{kind}0"} for kind, name in _KINDS.items()},
    }
)


def _redfish() -> list[NodeFacts]:
    idrac = ("Current", "Installed")
    members = [{"Id": name, "Version": "1.2.3", "Status": {"State": "Enabled"}} for name in _PARTS]
    members.append({"Id": "DPU_OS", "Version": "DOCA_2.5.0_BSP_4.5.0_Ubuntu_22.04-1.20231120.prod"})
    members += [{"Id": f"{word}-159-1.5.6__BIOS.Setup.1-1", "Version": "1.5.6"} for word in idrac]
    members += [{"Id": f"{word}-25227-7.1__iDRAC.Embedded.1-1", "Version": "7.1"} for word in idrac]
    settings = {"NumaNodesPerSocket": "4", "IommuSupport": "Enabled", "SriovGlobalEnable": "Enabled"}
    answer = bmc.Answer(tuple(members), {}, {"BiosVersion": "1.5.6"}, {"Attributes": settings})
    return [source.facts_of(source.Asked(node(), BOARD), answer, 1.0, components.load())]


def _kubernetes() -> list[NodeFacts]:
    everywhere, _ = kubernetes.deployed(())
    view = NodeView(
        *("n", "u", True, False, (), {}, {}, "b", "", "", "6.8.0", "Ubuntu", "v1.34.2", None, None, False),
        runtime="containerd://2.1.4",
    )
    devices = {"gpu.nvidia.com": "580.105.8", "gpu.amd.com": "6.16.6"}
    slices = [
        SliceView("s", driver, "n", 1, (DeviceView("g", {"driverVersion": version, "pcieBusID": "0000:01:00.0"}),))
        for driver, version in devices.items()
    ]
    ready = DaemonView("kubelet-plugin", True, "z")
    return [kubernetes.facts_of(NodeName("n"), view, slices, [ready], 1.0, software=everywhere)]


def _folder() -> list[NodeFacts]:
    """A tray and a switch tray, as `nvfwupd` prints them."""
    switch = ("ASIC", "BIOS", "BMC", "FPGA", "SSD", "CPLD1", "EROT")
    found = []
    for names in (_PARTS, switch):
        parts = [{"AP Name": name, "Sys Version": "1.2.3", "Pkg Version": "N/A"} for name in names]
        text = json.dumps({"System Model": "x", "Firmware Devices": parts})
        assert not isinstance(nvfwupd.show_version(Record("x", 0, 0, text.encode(), b"")), Unreadable)
        found.append(printed.facts(NodeName("n"), text.encode(), BOARD if names is _PARTS else None, 1.0))
    return found


def given() -> Mapping[str, frozenset[str]]:
    """Source, by the registry's words, → ``component@layer`` that it gives. Packages are those of the registry."""
    packages = {f"{name}@package" for name, entry in components.load().items() if entry.packages}
    return {
        "ssh": _coordinates(_ssh()) | packages,
        "redfish": _coordinates(_redfish()),
        "kubernetes": _coordinates(_kubernetes()),
        "folder": _coordinates(_folder()),
    }


def _coordinates(readings: list[NodeFacts]) -> frozenset[str]:
    def text(place: Coordinate) -> str:
        return f"{place.component}@{place.layer}"

    return frozenset(text(place) for facts in readings for place in facts.facts)


def only_deep() -> frozenset[str]:
    """Components of which no default layer is given without the heavy tools."""
    usual = _coordinates(_ssh([command.id for command in probe.COMMANDS if command.deep]))
    return frozenset(
        name
        for name, entry in components.load().items()
        if any(f"{name}@{layer}" in _coordinates(_ssh()) - usual for layer in entry.layers)
    )


def attributes() -> frozenset[str]:
    """Keys of all attributes that some source gives."""
    readings = [*_ssh(), *_redfish(), *_kubernetes(), *_folder()]
    return frozenset(key for facts in readings for key in facts.attributes)
