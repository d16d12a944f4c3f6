"""One-line samples by the fact they are for: the parser that reads each, and its answer in the sample's own words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bringup.parsers import (
    amd,
    collectives,
    containers,
    cuda,
    machine,
    modules,
    nic_tools,
    nics,
    nvidia,
    packages,
    smi,
    smi_text,
    texts,
)
from bringup.parsers import (
    fabric as fabrics,
)
from bringup.parsers.records import Record
from pinsets import normalisers
from pinsets.facts import Unreadable

Case = Mapping[str, Any]


def _record(case: Case, rc: int = 0) -> Record:
    return Record("x", rc, 1, case["output"].encode(), b"")


def _running(case: Case) -> object:
    version, flavour = nvidia.module_running({"/proc/driver/nvidia/version": case["output"]})
    return {"version": version, "flavour": flavour}


def _licence(case: Case) -> object:
    text = f"filename: /lib/modules/6.8/updates/dkms/nvidia.ko\nlicense: {case['output']}"
    found = modules.modinfo(Record("x", 0, 1, text.encode(), b""))
    assert not isinstance(found, Unreadable)
    return {"flavour": found["nvidia"].flavour}


def _smi(case: Case) -> object:
    found = smi.smi(_record(case, 9))
    if not isinstance(found, Unreadable):
        return {"error": "no_devices"} if not found.gpus else {}
    if found.reason == "driver not running":
        return {"error": "module_not_loaded"}
    library = found.reason.partition("library ")[2].partition("libr")[2]
    number = texts.VERSION.search(library)
    return {"error": "driver_library_mismatch", "userspace_prefix": number[0] if number else None}


def _log(case: Case) -> object:
    pair = machine.api_mismatch(case["output"])
    return {"client": pair[0], "kmod": pair[1]} if pair else None


def _dkms(case: Case) -> object:
    found = modules.dkms(_record(case))
    assert not isinstance(found, Unreadable)
    (one,) = found
    return {"module": one.module, "version": one.version, "kernel": one.kernel}


def _imex_log(case: Case) -> object:
    version, cut = fabrics.imex_log(case["output"])
    return {"version": version, "truncated": True} if cut else {"version": version}


def _deb(case: Case) -> object:
    name, _, version = case["output"].strip().partition("\t")
    found = packages.parse(Record("x", 0, 1, f"#dpkg\n{name}\t{version}\tii \tamd64\n".encode(), b""))
    seen = packages.version_of(found, (name,))
    assert isinstance(seen, str)
    epoch, _, rest = seen.partition(":")
    return {"epoch": int(epoch), "version": normalisers.apply("debian", seen), "rev": rest.rpartition("-")[2]}


def _ofed(case: Case) -> object:
    found = nic_tools.ofed(_record(case))
    assert isinstance(found, str)
    kind = "mlnx_ofed" if found.startswith("MLNX") else "doca_ofed"
    prefix = {"mlnx_ofed": "MLNX_OFED_LINUX-", "doca_ofed": "OFED-internal-"}[kind]
    return {"kind": kind, "version": found.removeprefix(prefix)}


def _nic(case: Case) -> object:
    if case["command"].startswith("ethtool"):
        found = nics.ethtool(case["output"])
        assert not isinstance(found, Unreadable)
        return {"fw": found.firmware, "psid": found.psid, "driver": found.origin("6.8.0-60-generic")}
    stored = nic_tools.mstflint(case["output"])
    assert not isinstance(stored, Unreadable)
    return {"flash": stored.flashed, "running": stored.running}


def _rccl(case: Case) -> object:
    return collectives.rccl_log(case["output"])


def _amd(case: Case) -> object:
    found = amd.version(_record(case))
    assert isinstance(found, amd.Versions)
    return {"rocm": found.rocm, "amdgpu": found.amdgpu, **({"driver": "inbox"} if found.inbox else {})}


def _nvlink(case: Case) -> object:
    found = smi_text.nvlink_firmware(_record(case))
    assert not isinstance(found, Unreadable)
    return {name: found[0][name] for name in case["expect"]}


def _cri(case: Case) -> object:
    name, version = containers.cri(_record(case))
    return {"runtime": name, "version": version}


_READERS: Mapping[str, Callable[[Case], object]] = {
    "nvidia.kmod.running": _running,
    "nvidia.kmod.ondisk": lambda case: {"version": modules.ondisk(modules.modinfo(_record(case)), "nvidia")},
    "nvidia.kmod.ondisk.license": _licence,
    "nvidia.smi": _smi,
    "kernel.log": _log,
    "dkms": _dkms,
    "fabricmanager.installed": lambda case: {"version": texts.tool_version(_record(case), "version")},
    "imex.installed": lambda case: {"version": texts.tool_version(_record(case), "version")},
    "imex.running": _imex_log,
    "dcgm.client": lambda case: {"version": fabrics.dcgm(_record(case))},
    "pkg.deb": _deb,
    "ofed": _ofed,
    "nic.fw": _nic,
    "nccl.code": lambda case: {"version": collectives.integer(case["output"])},
    "nccl.strings": lambda case: _without(collectives.nccl_string(case["output"]), "build"),
    "nccl.ras": lambda case: _without(collectives.nccl_string(case["output"]), "build"),
    "rccl.log": _rccl,
    "amd.version": _amd,
    "nvlink.fw": _nvlink,
    "cuda.toolkit": lambda case: cuda.nvcc(_record(case)),
    "crictl": _cri,
    "nvct": lambda case: {"version": texts.tool_version(_record(case), "version")},
}


def _without(found: object, name: str) -> object:
    return {key: value for key, value in found.items() if key != name} if isinstance(found, Mapping) else found


def read(case: Case) -> object:
    """What our parser makes of the sample; a fact without a parser is a KeyError."""
    return _READERS[case["fact"]](case)


def fabric(case: Case) -> bool | None:
    """Our judgement of one state."""
    kind = {"HGX": "node", "NVL": "rack", "any": "rack", "PCI": "none"}[case["fabric"][:3]]
    tags = {"state": "state", "status": "status", "cliqueId": "cliqueId", "clusterUuid": "clusterUuid"}
    inner = "".join(f"<{tag}>{case[key]}</{tag}>" for key, tag in tags.items())
    text = f'<nvidia_smi_log><gpu id="00000000:01:00.0"><fabric>{inner}</fabric></gpu></nvidia_smi_log>'
    found = smi.smi(Record("smi", 0, 1, text.encode(), b""))
    assert isinstance(found, smi.Smi)
    return fabrics.condition(kind, smi.fabric_of(found.gpus[0]))[0]


def fabric_expected(verdict: str) -> bool | None:
    """The sample's words: ``ok…``, ``fail…``, ``not applicable``."""
    return {"ok": True, "fa": False, "no": None}[verdict[:2]]
