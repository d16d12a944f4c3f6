"""NVIDIA: kernel module files, modinfo, `nvidia-smi -q -x`, and the one-line versions of the other tools.

Forms seen in real output: drivers 535–595 call the versions ``driver_version`` and ``cuda_version``; 610 renames
them to KMD and CUDA UMD version, keeps the old names with a bracketed note or the word Deprecated behind them, and
announces their end. Both are read, whatever the branch. (No XML of a 610 driver was at hand; its new element names
``kmd_version`` and ``cuda_umd_version`` are inferred from its text form.)
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bringup.parsers.host import Raw, Sections
from bringup.parsers.records import Record
from pinsets.facts import ABSENT, Absent, Unreadable

__all__ = [
    "Gpu",
    "Smi",
    "address",
    "fabric",
    "imex_domain",
    "module_ondisk",
    "module_running",
    "nccl",
    "smi",
    "tool_version",
]

_VERSION = re.compile(r"[0-9]+(?:\.[0-9A-Za-z]+)+(?:[-+~][0-9A-Za-z.+~-]+)?")
_PCI = re.compile(r"([0-9a-fA-F]{1,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
_NOTHING = ("", "n/a", "[n/a]", "none", "unknown", "not supported")
_FAILED = ("gpu is lost", "unknown error", "err!", "gpu requires reset", "insufficient permissions")


def address(text: str) -> str | None:
    """``00000008:01:00.0``, ``0008:01:00.0``, any case → ``0008:01:00.0``; None when it is no PCI address."""
    match = _PCI.fullmatch(text.strip())
    if match is None:
        return None
    return f"{int(match[1], 16):04x}:{match[2].lower()}:{match[3].lower()}.{match[4]}"


def module_running(files: Sections) -> tuple[Raw, str | None]:
    """Version of the loaded module from sysfs and /proc, and its flavour (``open`` or ``proprietary``)."""
    by_sysfs = files.get("/sys/module/nvidia/version", Unreadable("not read"))
    by_proc = files.get("/proc/driver/nvidia/version", Unreadable("not read"))
    proc_version, flavour = _proc_version(by_proc) if isinstance(by_proc, str) else (by_proc, None)
    if isinstance(by_sysfs, str):
        short = by_sysfs.strip()
        if not _VERSION.fullmatch(short):
            return Unreadable(f"/sys/module/nvidia/version is odd: {short[:60]!r}"), flavour
        if isinstance(proc_version, str) and proc_version != short:
            return Unreadable(f"/proc says {proc_version}, sysfs says {short}"), flavour
        return short, flavour
    if isinstance(proc_version, str) or isinstance(by_sysfs, Unreadable):
        return proc_version, flavour
    return (ABSENT, None) if isinstance(by_proc, Absent) else (proc_version, flavour)


def _proc_version(text: str) -> tuple[Raw, str | None]:
    """The ``NVRM version:`` line; the version is the first dotted number behind "Module"."""
    for line in text.splitlines():
        if not line.startswith("NVRM version:"):
            continue
        tail = line.partition("Module")[2]
        match = _VERSION.search(tail)
        if match is not None:
            return match[0], "open" if " Open Kernel Module" in line else "proprietary"
    return Unreadable("/proc/driver/nvidia/version has no version line"), None


def module_ondisk(record: Record | Unreadable) -> tuple[Raw, str | None]:
    """``modinfo -F version`` and ``-F license`` → version and flavour; a module that is not found is absent."""
    if isinstance(record, Unreadable):
        return record, None
    lines = [line.strip() for line in record.text.splitlines()]
    if not lines or not lines[0]:
        missing = "not found" in record.complaint.lower() and not record.not_found
        return (ABSENT if missing and record.rc != 127 else Unreadable(record.complaint)), None
    if not _VERSION.fullmatch(lines[0]):
        return Unreadable(f"modinfo printed {lines[0][:60]!r}"), None
    licence = lines[1] if len(lines) > 1 else ""
    flavour = "open" if "GPL" in licence else "proprietary" if licence == "NVIDIA" else None
    return lines[0], flavour


def tool_version(record: Record | Unreadable, after: str = "") -> Raw:
    """First version behind the words ``after`` in what ``TOOL --version`` printed; absent when it is not there."""
    if isinstance(record, Unreadable):
        return record
    if record.not_found:
        return ABSENT
    # Fabric manager prints to either stream, depending on its branch.
    text = record.text + "\n" + record.err.decode("utf-8", "replace")
    place = text.lower().find(after.lower())
    match = _VERSION.search(text, place + len(after)) if place >= 0 else None
    if record.rc != 0 or match is None:
        return Unreadable(record.complaint)
    return match[0]


def imex_domain(record: Record | Unreadable) -> Raw:
    """``nvidia-imex-ctl -N -j``: the daemons' version when all nodes of the domain that answer have the same.

    The layout of the JSON is inferred (no real sample): a ``version`` in each entry of ``nodes``.
    """
    import json

    if isinstance(record, Unreadable):
        return record
    if record.not_found:
        return ABSENT
    try:
        found = json.loads(record.text[record.text.find("{") :] or "{}")
        nodes = found.get("nodes") if isinstance(found, dict) else None
    except (ValueError, RecursionError):
        return Unreadable(record.complaint)
    entries: Iterable[object] = nodes.values() if isinstance(nodes, dict) else nodes if isinstance(nodes, list) else ()
    values = {str(entry["version"]) for entry in entries if isinstance(entry, dict) and entry.get("version")}
    versions = sorted(value for value in values if _VERSION.fullmatch(value))
    if len(versions) == 1:
        return versions[0]
    return Unreadable(f"the domain runs {', '.join(versions)}" if versions else record.complaint)


def nccl(record: Record | Unreadable) -> tuple[Raw, str | None]:
    """Real file of libnccl.so.2 and the string inside it → version (``2.28.3+cuda13.0``) and file.

    The string is what counts: a file can be renamed. Without it the file's own name is taken.
    """
    if isinstance(record, Unreadable):
        return record, None
    lines = [line.strip() for line in record.text.splitlines() if line.strip()]
    if not lines:
        return (ABSENT if record.rc == 0 else Unreadable(record.complaint)), None
    path = lines[0]
    for line in lines[1:]:
        match = re.fullmatch(r"NCCL version ([0-9][0-9A-Za-z.+-]*)", line)
        if match is not None:
            return match[1], path
    by_name = re.search(r"libnccl\.so\.([0-9]+\.[0-9]+\.[0-9]+)$", path)
    return (by_name[1] if by_name else Unreadable(f"{path} names no version, inside or outside")), path


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as the driver lists it."""

    address: str
    product: str
    vbios: Raw
    uuid: str | None
    serial: str | None
    chassis: str | None
    cluster: str | None
    clique: str | None
    fabric_state: str | None
    fabric_status: str | None
    lost: bool


@dataclass(frozen=True, slots=True)
class Smi:
    """`nvidia-smi -q -x`."""

    driver: str | None
    cuda: str | None
    gpus: tuple[Gpu, ...]


def smi(record: Record | Unreadable) -> Smi | Unreadable:
    """The whole answer; texts of failure become reasons."""
    if isinstance(record, Unreadable):
        return record
    if record.not_found:
        return Unreadable("nvidia-smi is not installed")
    text = record.text
    start = text.find("<nvidia_smi_log")
    if start < 0:
        return _failure(record)
    # Entities would be expanded by the parser; nvidia-smi has none, so such a text is somebody else's.
    if "<!ENTITY" in text:
        return Unreadable("nvidia-smi printed a document with entities")
    try:
        root = ElementTree.fromstring(text[start:].rstrip("\0\n ") or "<x/>")  # noqa: S314 - see the line above
    except (ElementTree.ParseError, ValueError, RecursionError) as error:
        return Unreadable(f"nvidia-smi printed broken XML ({error})")
    listed = [gpu for gpu in map(_gpu, root.iter("gpu")) if gpu is not None]
    cuda = _known(root, "cuda_umd_version", "cuda_version")
    return Smi(_known(root, "kmd_version", "driver_version"), cuda, tuple(listed))


def _failure(record: Record) -> Smi | Unreadable:
    text = record.text + record.err.decode("utf-8", "replace")
    if "No devices were found" in text:
        return Smi(None, None, ())
    if "couldn't communicate with the NVIDIA driver" in text:
        return Unreadable("driver not running")
    if "Driver/library version mismatch" in text:
        library = re.search(r"NVML library version: ([0-9.]+)", text)
        tail = f" (library {library[1]})" if library else ""
        return Unreadable(f"NVML: the loaded driver and the library differ{tail}; reboot or reload")
    return Unreadable(record.complaint)


def _known(root: ElementTree.Element, *tags: str) -> str | None:
    """The first of the elements that holds a version; notes in brackets behind it are cut off."""
    for tag in tags:
        text = (root.findtext(tag) or "").partition("[")[0].strip()
        if _VERSION.fullmatch(text):
            return text
    return None


def _value(element: ElementTree.Element, path: str) -> str | None:
    text = (element.findtext(path) or "").strip()
    lowered = text.lower()
    return None if lowered in _NOTHING or lowered in _FAILED or "has been deprecated" in lowered else text


def _gpu(element: ElementTree.Element) -> Gpu | None:
    place = address(element.get("id", "")) or address(element.findtext("pci/pci_bus_id") or "")
    if place is None:
        return None
    # Whatever NVML asks of a GPU that fell off the bus comes back as this text.
    lost = any((child.text or "").strip().lower() == "gpu is lost" for child in element.iter())
    vbios = _value(element, "vbios_version")
    return Gpu(
        address=place,
        product=_value(element, "product_name") or "",
        vbios=Unreadable("GPU is lost") if lost else vbios or Unreadable("nvidia-smi gives no VBIOS version"),
        uuid=_value(element, "uuid"),
        serial=_value(element, "serial"),
        chassis=_value(element, "platformInfo/chassis_serial_number"),
        cluster=_value(element, "fabric/clusterUuid"),
        clique=_value(element, "fabric/cliqueId"),
        fabric_state=_value(element, "fabric/state"),
        fabric_status=_value(element, "fabric/status"),
        lost=lost,
    )


def fabric(gpus: Iterable[Gpu]) -> Mapping[str, str]:
    """What the GPUs say of their NVLink fabric, one value per key; several different ones sorted and comma-joined."""
    found: dict[str, set[str]] = {}
    for gpu in gpus:
        values = {
            "fabric.cluster-uuid": gpu.cluster and gpu.cluster.lower(),
            "fabric.clique": gpu.clique,
            "fabric.state": gpu.fabric_state,
            "fabric.status": gpu.fabric_status,
        }
        for key, value in values.items():
            if value and not gpu.lost:
                found.setdefault(key, set()).add(value)
    return {key: ",".join(sorted(values)) for key, values in found.items()}
