"""AMD: ``amd-smi version|firmware|static`` (JSON and the old line), ``rocm-smi --json``, ROCm's version file.

amd-smi may print a WARNING line in front of its JSON, wraps its list in ``gpu_data`` in newer releases, and calls a
firmware ``fw_id`` (older: ``fw_name``). Where the driver is the kernel's own it prints the whole of /proc/version, with
blanks taken out, as the driver's version. The layout of ``static`` is inferred (no sample was at hand).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bringup.parsers import smi, texts
from bringup.parsers.records import Record
from bringup.parsers.texts import Raw
from pinsets.facts import ABSENT, Absent, Unreadable

__all__ = ["Device", "Versions", "cards", "devices", "firmware", "pldm", "rocm_smi", "version"]

_NUMBER = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6}){1,4}")


@dataclass(frozen=True, slots=True)
class Versions:
    """``amd-smi version``."""

    tool: str | None
    library: str | None
    rocm: str | None
    amdgpu: str | None
    """None where the driver is the kernel's own."""
    inbox: bool


def version(record: Record | Unreadable) -> Versions | Absent | Unreadable:
    """JSON (a list of one object), else ``AMDSMI Tool: … | ROCm version: … | amdgpu version: …`` on one line."""
    answer = texts.given(record)
    if not isinstance(answer, Record):
        return answer
    document = texts.json_of(answer)
    if isinstance(document, list) and document and isinstance(document[0], dict):
        document = document[0]
    if isinstance(document, dict):
        entries = {str(key): texts.known(value) or "" for key, value in document.items()}
        driver = str(document.get("amdgpu_version", ""))
    else:
        words = {"AMDSMI Tool": "version", "AMDSMI Library version": "amdsmi_library_version"}
        words |= {"ROCm version": "rocm_version", "amdgpu version": "amdgpu_version"}
        line = next((line for line in answer.text.splitlines() if line.startswith("AMDSMI Tool")), "")
        pairs = (part.partition(":") for part in line.split(" | "))
        entries = {words.get(key.strip(), key.strip()): value.strip() for key, _, value in pairs}
        driver = entries.get("amdgpu_version", "")
    if "rocm_version" not in entries and "amdsmi_library_version" not in entries:
        return Unreadable(answer.complaint)
    inbox = driver.replace(" ", "").startswith("Linuxversion")
    return Versions(
        tool=_number(entries.get("version")),
        library=_number(entries.get("amdsmi_library_version")),
        rocm=_number(entries.get("rocm_version")),
        amdgpu=None if inbox else _number(driver),
        inbox=inbox,
    )


def _number(text: str | None) -> str | None:
    match = _NUMBER.match(text or "")
    return match[0] if match else None


def _listed(document: object) -> Iterator[Mapping[str, object]]:
    if isinstance(document, dict):
        document = document.get("gpu_data")
    for entry in document if isinstance(document, list) else ():
        if isinstance(entry, dict):
            yield entry


def _index(entry: Mapping[str, object]) -> int | None:
    number = entry.get("gpu")
    text = str(number) if isinstance(number, (int, str)) else ""
    return int(text) if re.fullmatch("[0-9]{1,4}", text) else None


def firmware(record: Record | Unreadable) -> Mapping[int, Mapping[str, str]] | Absent | Unreadable:
    """``amd-smi firmware --json`` → GPU index → firmware id (``PLDM_BUNDLE``, ``SMU`` …) → version."""
    document = texts.json_of(record)
    if isinstance(document, (Absent, Unreadable)):
        return document
    found: dict[int, dict[str, str]] = {}
    for entry in _listed(document):
        index, fw_list = _index(entry), entry.get("fw_list")
        if index is None or not isinstance(fw_list, list):
            continue
        values = found.setdefault(index, {})
        for part in fw_list:
            name = texts.known(part.get("fw_id") or part.get("fw_name")) if isinstance(part, dict) else None
            text = texts.known(part.get("fw_version")) if isinstance(part, dict) else None
            if name and text:
                values[name] = text
    return found or Unreadable("amd-smi lists no firmware")


def pldm(values: Mapping[str, str]) -> Raw:
    """The bundle as printed; absent where the list has none (older boards and tools)."""
    return values.get("PLDM_BUNDLE", ABSENT)


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU of ``amd-smi static``."""

    index: int
    address: str | None
    product: str | None = None
    serial: str | None = None
    ifwi: str | None = None
    """Part number of the image: ``113-M3000100-102``; a vendor's own string cannot be ordered."""
    ifwi_version: str | None = None
    partition: str | None = None
    """``SPX/NPS1``: compute and memory partition."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """``power-limit`` in W, ``ecc``."""


def devices(record: Record | Unreadable) -> tuple[Device, ...] | Absent | Unreadable:
    """``amd-smi static --json``, all sections."""
    document = texts.json_of(record)
    if isinstance(document, (Absent, Unreadable)):
        return document
    found = [device for device in map(_device, _listed(document)) if device is not None]
    return tuple(found) if found else Unreadable("amd-smi lists no GPU")


def _device(entry: Mapping[str, object]) -> Device | None:
    index = _index(entry)
    if index is None:
        return None
    image = _part(entry, "ifwi") or _part(entry, "vbios")
    partition = _part(entry, "partition")
    words = [texts.known(partition.get(f"{name}_partition")) for name in ("compute", "accelerator", "memory")]
    compute, memory = words[0] or words[1], words[2]
    limit = _part(entry, "limit")
    power = _watts(limit.get("socket_power") or limit.get("max_power"))
    ecc = texts.known(_part(entry, "ras").get("ecc_block_state")) or texts.known(_part(entry, "ecc").get("state"))
    settings = {name: value for name, value in (("power-limit", power), ("ecc", ecc and ecc.lower())) if value}
    asic = _part(entry, "asic")
    return Device(
        index=index,
        address=smi.address(str(_part(entry, "bus").get("bdf", ""))),
        product=texts.known(asic.get("market_name")),
        serial=texts.known(asic.get("asic_serial")) or texts.known(_part(entry, "board").get("product_serial")),
        ifwi=texts.known(image.get("part_number")),
        ifwi_version=texts.known(image.get("version")),
        partition=f"{compute}/{memory}" if compute and memory else None,
        settings=settings,
    )


def _part(entry: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = entry.get(name)
    return value if isinstance(value, dict) else {}


def _watts(value: object) -> str | None:
    if isinstance(value, dict):
        value = value.get("value")
    match = re.match(r"[0-9]{1,5}", texts.known(value) or "")
    return match[0] if match else None


def cards(record: Record | Unreadable) -> Mapping[str, Mapping[str, str]]:
    """sysfs, ``PATH:LINE`` → PCI address of each AMD GPU → ``vbios``, ``compute``, ``memory`` as far as there."""
    answer = texts.given(record)
    if not isinstance(answer, Record):
        return {}
    names = {"vbios_version": "vbios", "current_compute_partition": "compute", "current_memory_partition": "memory"}
    by_card: dict[str, dict[str, str]] = {}
    for line in answer.text.splitlines():
        match = re.fullmatch(r"/sys/class/drm/(card[0-9]{1,4})/device/([a-z_]{1,40}):(.{0,200})", line)
        if match is None:
            continue
        values = by_card.setdefault(match[1], {})
        key, _, value = match[3].partition("=")
        if match[2] in names:
            values[names[match[2]]] = match[3].strip()
        elif match[2] == "uevent" and key in ("PCI_SLOT_NAME", "DRIVER"):
            values[key] = value.strip()
    found: dict[str, Mapping[str, str]] = {}
    for values in by_card.values():
        where = smi.address(values.get("PCI_SLOT_NAME", ""))
        if where is not None and values.get("DRIVER") == "amdgpu":
            found[where] = {name: value for name, value in values.items() if name in names.values() and value}
    return found


def rocm_smi(record: Record | Unreadable) -> tuple[Raw, Mapping[str, Mapping[str, str]]]:
    """``rocm-smi -a --json`` → (driver's version, PCI address → ``vbios``, ``product``, ``NAME firmware`` …)."""
    document = texts.json_of(record)
    if isinstance(document, (Absent, Unreadable)):
        return document, {}
    if not isinstance(document, dict):
        return Unreadable("rocm-smi's JSON is no object"), {}
    driver = texts.known(_part(document, "system").get("Driver version"))
    found: dict[str, dict[str, str]] = {}
    for name, card in document.items():
        where = smi.address(str(card.get("PCI Bus", ""))) if isinstance(card, dict) else None
        if where is None or not str(name).startswith("card"):
            continue
        values = found.setdefault(where, {})
        for key, value in card.items():
            text = texts.known(value)
            if text and key == "VBIOS version":
                values["vbios"] = text
            elif text and key in ("Card series", "Card Series"):
                values["product"] = text
            elif text and str(key).endswith(" firmware version"):
                values[str(key).removesuffix(" version")] = text
    return driver or Unreadable("rocm-smi names no driver"), found
