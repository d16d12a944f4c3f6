"""``nvidia-smi -q -x``: driver, CUDA, and every GPU with firmware, fabric and settings.

Forms seen in real output: DTD v11 to v13, drivers 535 to 610. Up to 595 the versions are called ``driver_version`` and
``cuda_version``; 610 names them KMD and CUDA UMD version, keeps the old names with a bracketed note or the word
Deprecated behind them, and announces their end. Both are read, whatever the branch. (No XML of a 610 driver was at
hand; its new element names ``kmd_version`` and ``cuda_umd_version`` are inferred from its text form.)
`smi_text` brings the text form into the XML's names, so that one reader serves both.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from bringup.parsers import texts
from bringup.parsers.records import Record
from bringup.parsers.texts import Raw
from pinsets.facts import Unreadable

__all__ = [
    "Finder",
    "Gpu",
    "Smi",
    "address",
    "fabric",
    "fabric_of",
    "failure",
    "gpu_by",
    "says_lost",
    "smi",
    "version_by",
    "whole",
]

Finder = Callable[[str], str]
"""Path of an element → its text, empty where there is none."""
_PCI = re.compile(r"([0-9a-fA-F]{1,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
_FAILED = ("gpu is lost", "unknown error", "err!", "gpu requires reset", "insufficient permissions")


def address(text: str) -> str | None:
    """``00000008:01:00.0``, ``0008:01:00.0``, any case → ``0008:01:00.0``; None when it is no PCI address."""
    match = _PCI.fullmatch(text.strip())
    if match is None:
        return None
    return f"{int(match[1], 16):04x}:{match[2].lower()}:{match[3].lower()}.{match[4]}"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as the driver lists it. None: the tool has no value for it (``N/A``) or did not print the element."""

    address: str
    product: str
    vbios: Raw
    uuid: str | None = None
    serial: str | None = None
    chassis: str | None = None
    cluster: str | None = None
    clique: str | None = None
    fabric_state: str | None = None
    fabric_status: str | None = None
    lost: bool = False
    architecture: str | None = None
    inforom: str | None = None
    gsp: str | None = None
    addressing: str | None = None
    """``ATS`` or ``HMM``; None also where nvidia-smi prints ``None``."""
    recovery: str | None = None
    """Act that the driver asks for; None also for ``None``."""
    part: str | None = None
    tray: str | None = None
    module: str | None = None
    health: str | None = None
    """Summary of the fabric's health: ``Healthy``, ``Unhealthy``, ``Limited Capacity`` …"""
    partition: str | None = None
    """Whether a fabric partition is assigned (595 and late 580)."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """``mig``, ``mig.next``, ``ecc``, ``ecc.next``, ``power-limit`` (W), ``clocks`` (``graphics=2070;memory=3996``,
    MHz), ``c2c``, ``persistence``; lower case words."""


@dataclass(frozen=True, slots=True)
class Smi:
    """The whole answer."""

    driver: str | None
    cuda: str | None
    gpus: tuple[Gpu, ...]


def smi(record: Record | Unreadable) -> Smi | Unreadable:
    """``nvidia-smi -q -x``; texts of failure become reasons."""
    if isinstance(record, Unreadable):
        return record
    if record.not_found:
        return Unreadable("nvidia-smi is not installed")
    text = record.text
    start = text.find("<nvidia_smi_log")
    if start < 0:
        return failure(record)
    # Entities would be expanded by the parser; nvidia-smi has none, so such a text is somebody else's.
    if "<!ENTITY" in text:
        return Unreadable("nvidia-smi printed a document with entities")
    try:
        root = ElementTree.fromstring(text[start:].rstrip("\0\n ") or "<x/>")  # noqa: S314 - see the line above
    except (ElementTree.ParseError, ValueError, RecursionError) as error:
        return Unreadable(f"nvidia-smi printed broken XML ({error})")
    listed = [gpu_by(element.get("id", ""), _finder(element), _lost(element)) for element in root.iter("gpu")]
    top = _finder(root)
    return whole(top, listed)


def whole(top: Finder, listed: Iterable[Gpu | None]) -> Smi:
    """Head and GPUs put together."""
    return Smi(
        driver=version_by(top, "kmd_version", "driver_version"),
        cuda=version_by(top, "cuda_umd_version", "cuda_version"),
        gpus=tuple(gpu for gpu in listed if gpu is not None),
    )


def _finder(element: ElementTree.Element) -> Finder:
    return lambda path: (element.findtext(path) or "").strip()


def failure(record: Record) -> Smi | Unreadable:
    """What nvidia-smi says instead of an answer."""
    text = record.text + record.errors
    if "No devices were found" in text:
        return Smi(None, None, ())
    if "couldn't communicate with the NVIDIA driver" in text:
        return Unreadable("driver not running")
    if "Driver/library version mismatch" in text:
        library = re.search(r"NVML library version: ([0-9.]{1,40})", text)
        tail = f" (library {library[1]})" if library else ""
        return Unreadable(f"NVML: the loaded driver and the library differ{tail}; reboot or reload")
    return Unreadable(record.complaint)


def version_by(find: Finder, *paths: str) -> str | None:
    """The first of the elements that holds a version; notes in brackets behind it are cut off."""
    for path in paths:
        text = find(path).partition("[")[0].strip()
        if texts.VERSION.fullmatch(text):
            return text
    return None


def _value(find: Finder, path: str) -> str | None:
    text = texts.known(find(path))
    return None if text is None or text.lower() in _FAILED else text


def says_lost(values: Iterable[str]) -> bool:
    """Whether the driver has lost the GPU of which these are the values."""
    # Whatever NVML asks of a GPU that fell off the bus comes back as this text.
    return any(value.strip().lower() == "gpu is lost" for value in values)


def _lost(element: ElementTree.Element) -> bool:
    return says_lost(child.text or "" for child in element.iter())


def gpu_by(place: str, find: Finder, lost: bool) -> Gpu | None:
    """One GPU by its address and what ``find`` gives; None without an address."""
    where = address(place) or address(find("pci/pci_bus_id"))
    if where is None:
        return None
    vbios = _value(find, "vbios_version")
    return Gpu(
        address=where,
        product=_value(find, "product_name") or "",
        vbios=Unreadable("GPU is lost") if lost else vbios or Unreadable("nvidia-smi gives no VBIOS version"),
        uuid=_value(find, "uuid"),
        serial=_value(find, "serial"),
        chassis=_value(find, "platformInfo/chassis_serial_number"),
        cluster=_value(find, "fabric/clusterUuid"),
        clique=_value(find, "fabric/cliqueId"),
        fabric_state=_value(find, "fabric/state"),
        fabric_status=_value(find, "fabric/status"),
        lost=lost,
        architecture=_value(find, "product_architecture"),
        inforom=_value(find, "inforom_version/img_version"),
        gsp=_value(find, "gsp_firmware_version"),
        addressing=_value(find, "addressing_mode"),
        recovery=_value(find, "gpu_recovery_action"),
        part=_value(find, "gpu_part_number"),
        tray=_value(find, "platformInfo/tray_index"),
        module=_value(find, "platformInfo/module_id"),
        health=_value(find, "fabric/health/summary"),
        partition=_value(find, "fabric/health/partition_assigned"),
        settings={} if lost else _settings(find),
    )


def _settings(find: Finder) -> Mapping[str, str]:
    words = {
        "mig": "mig_mode/current_mig",
        "mig.next": "mig_mode/pending_mig",
        "ecc": "ecc_mode/current_ecc",
        "ecc.next": "ecc_mode/pending_ecc",
        "c2c": "c2c_mode",
        "persistence": "persistence_mode",
    }
    found = {name: value.lower() for name, path in words.items() if (value := _value(find, path)) is not None}
    limit = texts.number(_value(find, "gpu_power_readings/current_power_limit"), "W")
    limit = limit or texts.number(_value(find, "power_readings/enforced_power_limit"), "W")
    if limit is not None:
        found["power-limit"] = limit
    clocks = [
        texts.number(_value(find, f"applications_clocks/{name}"), "MHz") for name in ("graphics_clock", "mem_clock")
    ]
    if all(clocks):
        found["clocks"] = f"graphics={clocks[0]};memory={clocks[1]}"
    return found


def fabric_of(gpu: Gpu) -> Mapping[str, str]:
    """One GPU's fabric: ``cluster-uuid`` (lower case), ``clique``, ``state``, ``status``, ``health``, ``partition``."""
    values = {
        "cluster-uuid": gpu.cluster and gpu.cluster.lower(),
        "clique": gpu.clique,
        "state": gpu.fabric_state,
        "status": gpu.fabric_status,
        "health": gpu.health,
        "partition": gpu.partition,
    }
    return {key: value for key, value in values.items() if value and not gpu.lost}


def fabric(gpus: Iterable[Gpu]) -> Mapping[str, str]:
    """What the GPUs say of their NVLink fabric, one value per key; several different ones sorted and comma-joined."""
    found: dict[str, set[str]] = {}
    for gpu in gpus:
        for key, value in fabric_of(gpu).items():
            if key in ("cluster-uuid", "clique", "state", "status"):
                found.setdefault(f"fabric.{key}", set()).add(value)
    return {key: ",".join(sorted(values)) for key, values in found.items()}
