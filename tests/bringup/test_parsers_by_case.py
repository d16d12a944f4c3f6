"""Each file of tests/data/facts is one case: what a source printed, and what the parser must make of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bringup.parsers import (
    amd,
    collectives,
    communication,
    containers,
    cuda,
    fabric,
    host,
    loader,
    machine,
    modules,
    nic_tools,
    nics,
    nvfwupd,
    nvidia,
    packages,
    smi,
    smi_text,
    texts,
)
from bringup.parsers.records import Record
from lockstep.base import documents, issues
from pinsets.facts import ABSENT, Unreadable

CASES = sorted((Path(__file__).parents[1] / "data" / "facts").rglob("*.yaml"))
Case = Mapping[str, Any]


def _load(path: Path) -> dict[str, Any]:
    report = issues.Report()
    document = documents.load(path, report)
    assert document is not None, report.issues
    return dict(document.data)


def _files(case: Case) -> host.Sections:
    found: dict[str, Any] = {}
    for name, value in case.get("files", {}).items():
        if isinstance(value, str):
            found[name] = value
        else:
            found[name] = ABSENT if value.get("absent") else Unreadable("needs root")
    return found


def _out(case: Case) -> str:
    return str(case.get("out", ""))


def _record(case: Case) -> Record | Unreadable:
    record = Record(
        "x", int(case.get("rc", 0)), int(case.get("ms", 10)), _out(case).encode(), str(case.get("err", "")).encode()
    )
    return record.unreadable or record


def _text(value: object) -> object:
    """Observations as a case file writes them; of a value's fields those that are not empty."""
    if dataclasses.is_dataclass(value) and type(value).__module__.startswith("bringup."):
        fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
        return {name: _text(part) for name, part in fields.items() if part not in (None, "", (), {})}
    if isinstance(value, Mapping):
        return {_key(key): _text(part) for key, part in value.items()}
    if isinstance(value, (frozenset, set)):
        return sorted(str(part) for part in value)
    if isinstance(value, (tuple, list)):
        return [_text(part) for part in value]
    return value if value is None else str(value)


def _key(key: object) -> str:
    return " ".join(str(part) for part in key) if isinstance(key, tuple) else str(key)


def _smi(case: Case) -> object:
    found = smi.smi(_record(case))
    return found if isinstance(found, Unreadable) else [f"{gpu.address} {gpu.vbios}" for gpu in found.gpus]


def _versions(case: Case) -> object:
    found = packages.parse(_record(case))
    return {name: packages.version_of(found, (name,)) for name in case["expect"]}


def _held(case: Case) -> object:
    found = packages.parse(_record(case))
    locked = packages.version_locks(_files(case))
    return {name: packages.held(found, name.split(), locked) for name in case["expect"]}


def _module_ondisk(case: Case) -> object:
    found = modules.modinfo(_record(case))
    module = None if isinstance(found, Unreadable) else found.get("nvidia")
    return modules.ondisk(found, "nvidia"), module.flavour if module is not None else None


def _libraries(case: Case) -> object:
    found = loader.read(_record(case))
    version, file = collectives.library(found, "libnccl.so.2")
    node = "" if isinstance(found, Unreadable) else collectives.libfabric_node(found)
    return {
        "nccl": version,
        "file": file,
        "copies": loader.copies(found, "libnccl.so.2"),
        "cuda": loader.by_file_name(found, "libcuda.so.1"),
        "cudnn": sorted(set(loader.sublibraries(found, "libcudnn").values())),
        "plugins": collectives.plugins(found),
        "plugin-versions": collectives.plugin_versions(found),
        "libfabric": communication.libfabric_of(node) if node else node,
        "gdrcopy": None if isinstance(found, Unreadable) else communication.ucx_gdrcopy(found),
        "efa-node": loader.highest_node(loader.strings_of(found, "/usr/lib64/libefa.so.1.3.50.0"), "EFA"),
    }


def _nic_blocks(read: Callable[[str], object]) -> Callable[[Case], object]:
    return lambda case: {where: read(text) for where, text in nic_tools.per_device(_record(case)).items()}


def _nvfwupd(case: Case) -> object:
    found = nvfwupd.show_version(_record(case))
    if isinstance(found, Unreadable):
        return found
    return {part.name: (part.version, nvfwupd.place(part, found.switch)) for part in found.parts}


PARSERS: Mapping[str, Callable[[Case], object]] = {
    "module_running": lambda case: nvidia.module_running(_files(case)),
    "parameters": lambda case: nvidia.parameters(_files(case)),
    "module_ondisk": _module_ondisk,
    "modinfo": lambda case: modules.modinfo(_record(case)),
    "origins": lambda case: {name: one.origin for name, one in modules.modinfo(_record(case)).items()},  # type: ignore[union-attr]
    "module": lambda case: modules.running(_files(case), case["name"], case["kernel"]),
    "dkms": lambda case: modules.dkms(_record(case)),
    "tool_version": lambda case: texts.tool_version(_record(case), case.get("after", "version")),
    "nccl": lambda case: collectives.nccl_record(_record(case)),
    "nccl_string": lambda case: collectives.nccl_string(_out(case)),
    "nccl_integer": lambda case: collectives.integer(_out(case)),
    "rccl_log": lambda case: collectives.rccl_log(_out(case)),
    "libraries": _libraries,
    "ldconfig": lambda case: loader.cache(_out(case)),
    "imex_domain": lambda case: fabric.imex_domain(_record(case)),
    "imex_domain_state": lambda case: fabric.imex_domain_state(_record(case)),
    "imex_log": lambda case: fabric.imex_log(_out(case)),
    "fabric_log": lambda case: fabric.mismatch(_out(case)),
    "nvlsm": lambda case: fabric.nvlsm(_record(case)),
    "dcgm": lambda case: fabric.dcgm(_record(case)),
    "smi": _smi,
    "smi_whole": lambda case: smi.smi(_record(case)),
    "smi_text": lambda case: smi_text.query(_record(case)),
    "smi_versions": lambda case: smi_text.versions(_record(case)),
    "smi_listed": lambda case: smi_text.listed(_record(case)),
    "smi_table": lambda case: smi_text.table(_record(case)),
    "topology": lambda case: smi_text.topology(_record(case)),
    "nvlink_firmware": lambda case: smi_text.nvlink_firmware(_record(case)),
    "conf_compute": lambda case: smi_text.conf_compute(_record(case)),
    "nvlink_links": lambda case: smi_text.nvlink_links(_record(case)),
    "kernel_next": lambda case: host.kernel_next(_files(case), _record(case)),
    "kernel_running": lambda case: host.kernel_running(_record(case)),
    "os": lambda case: host.os_release(_files(case)),
    "serial": lambda case: host.serial(_files(case), _record(case)),
    "admission": lambda case: host.admission(_files(case)),
    "busy": lambda case: host.busy(host.holders(_record(case)), int(case["user"]), case.get("daemons", ())),
    "daemon": lambda case: host.daemon(host.holders(_record(case)), case["name"], case["ondisk"]),
    "dgx": lambda case: machine.dgx_release(_files(case)),
    "cpu": lambda case: machine.cpu(_files(case)),
    "nps": lambda case: machine.nps(machine.cpu(_files(case))),
    "taint": lambda case: machine.taint_letters(_files(case)),
    "secure_boot": lambda case: machine.secure_boot(_files(case)),
    "reboot_required": lambda case: machine.reboot_required(_files(case)),
    "page_size": lambda case: machine.page_size(_files(case)),
    "kernel_arguments": lambda case: machine.kernel_arguments(_out(case)),
    "disks": lambda case: machine.disks(_record(case)),
    "dmi_table": lambda case: machine.dmi_table(_out(case)),
    "environment": lambda case: machine.environment(_files(case)),
    "api_mismatch": lambda case: machine.api_mismatch(_out(case)),
    "symbol_mismatch": lambda case: machine.symbol_mismatch(_out(case).splitlines()),
    "acs": lambda case: machine.acs(_record(case)),
    "cuda_toolkit": lambda case: cuda.toolkit(_files(case)),
    "nvcc": lambda case: cuda.nvcc(_record(case)),
    "cudnn_header": lambda case: cuda.cudnn_header(_out(case)),
    "cuda_driver": lambda case: cuda.driver_integer(_out(case)),
    "container_cli": lambda case: containers.container_cli(_record(case)),
    "containerd": lambda case: containers.containerd(_record(case)),
    "cri": lambda case: containers.cri(_record(case)),
    "docker": lambda case: containers.docker(_record(case)),
    "cdi": lambda case: containers.cdi_files(_record(case)),
    "runtime_mode": lambda case: containers.runtime_mode(_out(case)),
    "nics": lambda case: nics.nics(_record(case)),
    "devlink": lambda case: nics.devlink(_record(case)),
    "ethtool": lambda case: nics.devices(_record(case)),
    "ethtool_origin": lambda case: {
        name: one.origin(case["kernel"]) for name, one in nics.devices(_record(case)).items()
    },
    "mstflint": _nic_blocks(nic_tools.mstflint),
    "mlxconfig": _nic_blocks(nic_tools.mlxconfig),
    "mlxfwmanager": lambda case: nic_tools.mlxfwmanager(_record(case)),
    "ofed": lambda case: nic_tools.ofed(_record(case)),
    "mft": lambda case: nic_tools.mft(_record(case)),
    "nicctl": lambda case: nic_tools.nicctl(_record(case)),
    "hpcx": lambda case: communication.hpcx(_files(case)),
    "ucx": lambda case: communication.ucx(_record(case)),
    "libfabric": lambda case: communication.libfabric(_record(case)),
    "efa_installer": lambda case: communication.efa_installer(_files(case)),
    "efa_packages": lambda case: communication.efa_packages(_files(case)),
    "nvfwupd": _nvfwupd,
    "amd_version": lambda case: amd.version(_record(case)),
    "amd_firmware": lambda case: amd.firmware(_record(case)),
    "amd_devices": lambda case: amd.devices(_record(case)),
    "amd_cards": lambda case: amd.cards(_record(case)),
    "rocm_smi": lambda case: amd.rocm_smi(_record(case)),
    "version_of": _versions,
    "held": _held,
}


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}: {path.stem}")
def test_the_case_parses_as_it_says(path: Path) -> None:
    case = _load(path)
    found, expected = _text(PARSERS[case["parse"]](case)), _expected(case["expect"])
    if case.get("partial") and isinstance(found, dict) and isinstance(expected, dict):
        found = {key: found.get(key) for key in expected}
    assert found == expected


def _expected(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_expected(part) for part in value]
    if isinstance(value, dict):
        return {str(key): _expected(part) for key, part in value.items()}
    # Documents keep scalars as they are written.
    return None if value in (None, "null") else str(value)


def test_there_are_cases_for_every_parser() -> None:
    assert {_load(path)["parse"] for path in CASES} == set(PARSERS)
