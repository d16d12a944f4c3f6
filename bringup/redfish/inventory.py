"""What a firmware inventory means: members of the collection → observations by component, layer and slot. Pure.

Vendors differ in names, in what stands beside the running image, and in how much of it is true
(traits by vendor in docs/facts/redfish.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from inventory.model import Sku
from pinsets.facts import Layer, Unreadable

__all__ = ["ATTRIBUTES", "Item", "bios_settings", "firmware", "system"]

Raw = str | Unreadable


@dataclass(frozen=True, slots=True)
class Item:
    """One observation."""

    component: str
    layer: Layer
    instance: str | None
    value: Raw
    source: str
    """Member it was read from: ``redfish:FirmwareInventory/HGX_FW_GPU_0``."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One member, told apart by its vendor's habits."""

    id: str
    """The member's own id, as it is listed."""
    key: str
    """The part's stable name: iDRAC puts version numbers into its ids."""
    version: Raw
    role: str
    """``runs``; ``written``: it runs or will (iDRAC's Installed- beside Current-); ``spare``: standby, previous."""


# Names by public inventories (NVIDIA HGX, DGX, GB200/GB300, GH200 and BlueField-3 boards; iDRAC 9; Lenovo XCC).
_PLACES: Final[Sequence[tuple[re.Pattern[str], str, str | None]]] = tuple(
    (re.compile(pattern), component, kind)
    for pattern, component, kind in (
        (r"HGX_FW_GPU_(?P<n>\d+)", "firmware.gpu", "gpu"),
        (r"HGX_FW_GPU_SXM_(?P<m>\d+)", "firmware.gpu", "gpu"),
        (r"HGX_InfoROM_GPU_(?P<n>\d+)", "firmware.inforom", "gpu"),
        (r"HGX_InfoROM_GPU_SXM_(?P<m>\d+)", "firmware.inforom", "gpu"),
        (r"HGX_FW_BMC_0", "firmware.hmc", None),
        (r"FW_BMC_0|HostBMC_0|BMC-Primary|iDRAC\.Embedded\.1-1", "firmware.bmc", None),
        (r"UEFI|HostBIOS_0|BIOS\.Setup\.1-1", "firmware.bios", None),
        (r"(?:HGX_)?FW_CPLD_\d+|CPLDMB_\d+|CPLDMID_\d+|CPLD\.Embedded\.\d+", "firmware.cpld", "cpld"),
        (r"(?:HGX_)?FW_ERoT_\w+|EROT_\w+|Bluefield_FW_ERoT", "firmware.erot", "erot"),
        (r"HGX_FW_FPGA_\d+", "firmware.fpga", "fpga"),
        (r"HGX_FW_NVSwitch_\d+", "firmware.nvswitch", "nvswitch"),
        (r"HGX_FW_PCIeRetimer_\d+", "firmware.retimer", "retimer"),
        (r"(?:HGX_FW_)?PCIeSwitch_\d+", "firmware.pcieswitch", "pcieswitch"),
        (r"HGX_FW_CPU_\d+", "firmware.cpu", "cpu"),
        (r"HGX_FW_(?:SXM|ConnectX)_SMA_\d+|SM[AR]_\d+", "firmware.smr", "smr"),
        (r"(?:NIC|CX7|CX8)_(?P<n>\d+)", "firmware.nic", "nic"),
        (r"DPU_OS", "bfb", None),
    )
)
_IDRAC: Final = re.compile(r"(Current|Installed|Previous|Available)-[^-]*-.*?__(.+)")
_ROLES: Final = {"Current": "runs", "Installed": "written", "Previous": "spare", "Available": "spare"}
_GUID: Final = re.compile(r"(?:[0-9a-fA-F]{4}:){3}[0-9a-fA-F]{4}")
_BUNDLE: Final = re.compile(r"(?:DOCA_|bf-bundle-)([0-9]+(?:\.[0-9]+){1,2}(?:-[0-9]+)?)(?![0-9.])")
"""A BlueField's image by its name: ``DOCA_2.5.0_BSP_4.5.0_Ubuntu_22.04-1.20231120.prod``; newer ones as
/etc/mlnx-release has them, ``bf-bundle-3.2.1-42_25.11_ubuntu-22.04_prod`` (inferred for Redfish)."""
_LONGEST: Final = 200


def firmware(members: Sequence[Mapping[str, Any]], sku: Sku | None) -> tuple[Item, ...]:
    """Observations of all members that are a component; a part named twice with two versions is unreadable.

    Parts of a kind are placed by the SKU's names; GPUs and NICs, which the SKU names by PCI address, by their number in
    file order (inferred: a BMC gives no address). A BMC that lists other than all NICs (GB200: NIC_0 alone) does not
    say which they are, so that none is placed. Without a SKU their own names are the instances.
    """
    parts = [part for part in map(_part, members) if part is not None]
    if sku is not None and sum(_is_nic(part) for part in parts) != len(sku.slots("nic")):
        parts = [part for part in parts if not _is_nic(part)]
    found: dict[tuple[str, Layer, str | None], Item] = {}
    running = {part.key for part in parts if part.role == "runs"}
    for part in parts:
        placed = _place(part.key, sku)
        if placed is None or part.role == "spare":
            continue
        component, instance = placed
        layer = Layer.FLASHED if part.role == "written" and part.key in running else Layer.RUNNING
        version = _bundle(part.version) if component == "bfb" else part.version
        _add(found, Item(component, layer, instance, version, f"redfish:FirmwareInventory/{part.id}"))
    return tuple(found.values())


def _add(found: dict[tuple[str, Layer, str | None], Item], item: Item) -> None:
    """Keep it; the same part listed twice with the same version is one, with two it is known by nobody."""
    key = (item.component, item.layer, item.instance)
    before = found.get(key)
    if before is None or isinstance(before.value, Unreadable):
        found.setdefault(key, item)
    elif before.value != item.value:
        why = f"listed twice, as {before.value} and as {item.value}"
        found[key] = Item(item.component, item.layer, item.instance, Unreadable(why), item.source)


def _part(member: Mapping[str, Any]) -> _Part | None:
    """None for what is no image at all."""
    name = member.get("Id")
    if not isinstance(name, str) or not name or len(name) > _LONGEST:
        return None
    status = member.get("Status")
    state = status.get("State") if isinstance(status, Mapping) else None
    idrac = _IDRAC.fullmatch(name)
    if state in ("Absent", "Disabled"):
        # An empty slot, or (HGX_Driver_GPU_n) a stale copy of what the host knows better.
        return None
    role = _ROLES[idrac[1]] if idrac else "runs"
    if state in ("StandbySpare", "StandbyOffline"):
        role = "spare"
    return _Part(name, idrac[2] if idrac else name, _version(member.get("Version")), role)


def _version(value: object) -> Raw:
    if value is None or (isinstance(value, str) and not value.strip()):
        return Unreadable("the BMC names no version")
    if not isinstance(value, str) or len(value) > _LONGEST:
        return Unreadable("the BMC's version is no short text")
    text = value.strip()
    if "no valid" in text.lower() or _GUID.fullmatch(text) or text in ("N/A", "NA", "Unknown", "--"):
        return Unreadable(f"the BMC says {text!r}")
    return text


def _is_nic(part: _Part) -> bool:
    placed = _place(part.key, None)
    return placed is not None and placed[0] == "firmware.nic" and part.role != "spare"


def _bundle(name: Raw) -> Raw:
    if isinstance(name, Unreadable):
        return name
    match = _BUNDLE.match(name)
    return match[1] if match is not None else Unreadable(f"{name[:60]!r} names no bundle")


def _place(key: str, sku: Sku | None) -> tuple[str, str | None] | None:
    """(component, instance) of a part; None without a component, or for one that the SKU does not expect."""
    for pattern, component, kind in _PLACES:
        match = pattern.fullmatch(key)
        if match is None:
            continue
        if kind is None:
            return component, None
        numbers = match.groupdict()
        number = numbers.get("n") or (str(int(numbers["m"]) - 1) if numbers.get("m") else None)
        if sku is None:
            return component, key
        if number is not None:
            slots = sku.slots(kind)
            return (component, slots[int(number)]) if int(number) < len(slots) else (component, key)
        named: Mapping[str, str] = next((found for name, found in sku.instances.items() if name == kind), {})
        return (component, named[key]) if key in named else None
    return None


def system(payload: Mapping[str, Any]) -> tuple[tuple[Item, ...], str | None, str | None]:
    """A ComputerSystem → (BIOS where it is told, chassis serial, power state ``on`` or ``off``).

    Some boards name their UEFI only here and not in the inventory (Lenovo GB300).
    """
    items: tuple[Item, ...] = ()
    version = payload.get("BiosVersion")
    if isinstance(version, str) and version.strip():
        items = (Item("firmware.bios", Layer.RUNNING, None, version.strip()[:_LONGEST], "redfish:Systems/BiosVersion"),)
    serial = payload.get("SerialNumber")
    power = str(payload.get("PowerState", "")).lower()
    known = isinstance(serial, str) and serial.strip() and serial.strip().lower() not in ("n/a", "none", "unknown")
    return items, (str(serial).strip()[:100] if known else None), power if power in ("on", "off") else None


# BIOS attribute → setting; iDRAC's names are from its attribute registry, those of HPE and Supermicro are inferred.
ATTRIBUTES: Final[Mapping[str, str]] = {
    "NumaNodesPerSocket": "settings.bios.nps",
    "NUMANodesPerSocket": "settings.bios.nps",
    "NumaMemoryDomainsPerSocket": "settings.bios.nps",
    "IommuSupport": "settings.bios.iommu",
    "IOMMU": "settings.bios.iommu",
    "SriovGlobalEnable": "settings.bios.sriov",
    "Sriov": "settings.bios.sriov",
    "SR_IOVSupport": "settings.bios.sriov",
}


def bios_settings(payload: Mapping[str, Any]) -> tuple[Item, ...]:
    """The Bios resource → settings that decide how GPUs, memory and NICs see each other."""
    attributes = payload.get("Attributes")
    if not isinstance(attributes, Mapping):
        return ()
    found: dict[tuple[str, Layer, str | None], Item] = {}
    for name, component in ATTRIBUTES.items():
        value = attributes.get(name)
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            text = _setting(component, str(value).strip())
            _add(found, Item(component, Layer.RUNNING, None, text, f"redfish:Bios/{name}"))
    return tuple(found.values())


def _setting(component: str, text: str) -> str:
    if component == "settings.bios.nps":
        number = re.search(r"[0-9]+", text)
        return f"NPS{number[0]}" if number else text
    return {"on": "enabled", "off": "disabled"}.get(text.lower(), text.lower())
