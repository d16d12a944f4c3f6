"""``nvfwupd show_version``, text and JSON: firmware of a DGX, HGX baseboard, compute tray or switch tray.

Only the system's own version is taken. "Up-To-Date" is never used: it says No for every part that the package does
not carry, and Yes for strings that look different. The model may be wrong (a mis-programmed FRU), so it is only shown.
Parts with a component of their own are placed by their name; each keeps its name as the instance where a machine may
have several.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bringup.parsers import texts
from bringup.parsers.records import Record
from bringup.parsers.texts import Raw
from pinsets.facts import ABSENT, Absent, Unreadable

__all__ = ["Part", "Shown", "place", "show_version"]


@dataclass(frozen=True, slots=True)
class Part:
    """One line of the list."""

    name: str
    """``HGX_FW_GPU_0``, ``CPLD1`` … as the tool calls it."""
    version: Raw
    package: str | None
    """What the update package would bring; never compared."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The whole answer."""

    model: str | None
    serial: str | None
    parts: tuple[Part, ...]
    switch: bool
    """Whether its parts are those of a switch tray."""


def show_version(record: Record | Unreadable) -> Shown | Unreadable:
    """Either form; an answer without a list of parts is unreadable."""
    answer = texts.answered(record)
    if isinstance(answer, Unreadable):
        return answer
    if answer.text.lstrip().startswith("{"):
        document = texts.json_of(answer)
        return _of_json(document) if isinstance(document, dict) else Unreadable("nvfwupd's JSON is broken")
    return _of_text(answer)


def _shown(model: str | None, serial: str | None, parts: Sequence[Part]) -> Shown | Unreadable:
    if not parts:
        return Unreadable("nvfwupd listed no parts")
    names = {part.name for part in parts}
    return Shown(model, serial, tuple(parts), "ASIC" in names and "BIOS" in names)


def _of_json(document: Mapping[str, object]) -> Shown | Unreadable:
    devices = document.get("Firmware Devices")
    if not isinstance(devices, list):
        return Unreadable(f"connection: {texts.known(document.get('Connection Status')) or 'no firmware devices'}")
    parts = []
    for entry in devices:
        name = texts.known(entry.get("AP Name")) if isinstance(entry, dict) else None
        if name is not None:
            parts.append(_part(name, texts.known(entry.get("Sys Version")), texts.known(entry.get("Pkg Version"))))
    return _shown(texts.known(document.get("System Model")), texts.known(document.get("Serial number")), parts)


def _of_text(record: Record) -> Shown | Unreadable:
    """Columns begin where their heads begin; a version may hold single blanks (``0x00 0x0c 0x06 0x04``)."""
    parts: list[Part] = []
    heads: tuple[int, ...] | None = None
    entries: dict[str, str] = {}
    for line in record.text.splitlines():
        places = [line.find(word) for word in ("AP Name", "Sys Version", "Pkg Version", "Up-To-Date")]
        if all(place >= 0 for place in places):
            heads = tuple(places)
        elif heads is None:
            entries.update(texts.key_values(line))
        elif len(line) > heads[1] and not line.startswith("--"):
            cells = re.split(r"\s{2,}", line.rstrip()[heads[1] :], maxsplit=2)
            # A version that fills its column is followed by one blank only; then the heads say where it ends.
            if len(cells) < 2:
                cells = [line[heads[1] : heads[2]].strip(), line[heads[2] : heads[3]].strip()]
            name = line[heads[0] : heads[1]].strip()
            if re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,60}", name):
                parts.append(_part(name, texts.known(cells[0]), texts.known(cells[1])))
    if heads is None:
        return Unreadable(record.complaint)
    return _shown(texts.known(entries.get("System Model")), texts.known(entries.get("Serial number")), parts)


def _part(name: str, version: str | None, package: str | None) -> Part:
    return Part(name, version if version is not None else ABSENT, package)


_PLACES: Sequence[tuple[re.Pattern[str], str, bool]] = tuple(
    (re.compile(pattern), component, single)
    for pattern, component, single in (
        (r"HGX_FW_GPU(_SXM)?_\d+", "firmware.gpu", False),
        (r"HGX_InfoROM_GPU(_SXM)?_\d+", "firmware.inforom", False),
        (r"HGX_FW_BMC_0", "firmware.hmc", True),
        (r"(FW_BMC_0|HostBMC_0)", "firmware.bmc", True),
        (r"(UEFI|HostBIOS_0)", "firmware.bios", True),
        (r"(HGX_FW_CPLD_\d+|FW_CPLD_\d+|CPLDMB_\d+|CPLDMID_\d+)", "firmware.cpld", False),
        (r"(HGX_FW_ERoT_\w+|FW_ERoT_\w+|EROT_\w+)", "firmware.erot", False),
        (r"HGX_FW_FPGA_\d+", "firmware.fpga", False),
        (r"HGX_FW_NVSwitch_\d+", "firmware.nvswitch", False),
        (r"HGX_FW_PCIeRetimer_\d+", "firmware.retimer", False),
        (r"(HGX_FW_PCIeSwitch_\d+|PCIeSwitch_\d+)", "firmware.pcieswitch", False),
        (r"HGX_FW_CPU_\d+", "firmware.cpu", False),
        (r"(SMA|SMR|HGX_FW_SXM_SMA|HGX_FW_ConnectX_SMA)_\d+", "firmware.smr", False),
        (r"(NIC|CX7|CX7NIC|CX8)_\d+", "firmware.nic", False),
    )
)
_SWITCH_PLACES: Mapping[str, tuple[str, bool]] = {
    "ASIC": ("firmware.switch.asic", False),
    "BIOS": ("firmware.switch.bios", True),
    "BMC": ("firmware.switch.bmc", True),
    "FPGA": ("firmware.switch.fpga", True),
    "SSD": ("firmware.switch.ssd", True),
}


def place(part: Part, switch: bool) -> tuple[str, str | None] | None:
    """(component, the part's name as instance; None where a machine has one) of a part; None without a component."""
    if switch:
        if part.name in _SWITCH_PLACES:
            component, single = _SWITCH_PLACES[part.name]
            return component, None if single else part.name
        kind = re.match(r"(CPLD|EROT)", part.name)
        return (f"firmware.switch.{kind[1].lower()}", part.name) if kind else None
    for pattern, component, single in _PLACES:
        if pattern.fullmatch(part.name):
            return component, None if single else part.name
    return None


def readable(shown: Shown) -> Sequence[Part]:
    """Parts that have a version."""
    return [part for part in shown.parts if not isinstance(part.version, (Absent, Unreadable))]
