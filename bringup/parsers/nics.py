"""RDMA devices as the kernel shows them: /sys/class/infiniband, ``devlink -j dev info``, ``ethtool -i``.

The `nics` record is ``PATH:LINE`` per line of each file (``grep -H ''``); final newlines may be missing in sysfs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bringup.parsers import smi, texts
from bringup.parsers.records import Record
from bringup.parsers.texts import Raw
from pinsets.facts import Absent, Unreadable

__all__ = ["Ethernet", "Nic", "Stored", "devices", "devlink", "ethtool", "nics", "of_tree"]

_ROOT = "/sys/class/infiniband/"
_FIRMWARE = re.compile(r"[0-9]{1,9}(?:\.[0-9A-Za-z_-]{1,20}){1,6}")


@dataclass(frozen=True, slots=True)
class Nic:
    """One RDMA device; functions of it that only virtual machines see are left out."""

    name: str
    """``mlx5_0``, ``rdmap16s27`` …"""
    address: str | None
    firmware: Raw
    """Running."""
    psid: str | None = None
    """Identity of board and configuration: firmware is compared only inside one."""
    type: str | None = None
    """``MT4129`` is ConnectX-7 …"""
    rate: str | None = None
    """Gb/s of its first port."""
    state: str | None = None
    link: str | None = None
    """``InfiniBand`` or ``Ethernet``."""
    driver: str | None = None
    netdev: str | None = None


def nics(record: Record | Unreadable) -> tuple[Nic, ...] | Unreadable:
    """All devices of the record, in order of their addresses; empty where the kernel has none."""
    answer = texts.given(record)
    if isinstance(answer, Unreadable):
        return answer
    if isinstance(answer, Absent):
        return ()
    tree: dict[str, list[str]] = {}
    for line in answer.text.splitlines():
        path, colon, text = line.partition(":")
        if colon and path.startswith(_ROOT):
            tree.setdefault(path, []).append(text)
    return of_tree({path: "\n".join(lines) for path, lines in tree.items()})


def of_tree(tree: Mapping[str, str]) -> tuple[Nic, ...]:
    """File → text, as below /sys/class/infiniband."""
    by_device: dict[str, dict[str, str]] = {}
    for path, text in tree.items():
        device, slash, file = path.removeprefix(_ROOT).partition("/")
        if slash and re.fullmatch(r"[A-Za-z0-9_.-]{1,60}", device):
            by_device.setdefault(device, {})[file] = text.strip().strip("\0")
    found = [_device(name, files) for name, files in by_device.items() if "device/physfn" not in files]
    return tuple(sorted(found, key=lambda nic: (nic.address or "~", texts.version_key(nic.name))))


def _device(name: str, files: Mapping[str, str]) -> Nic:
    bus = dict(texts.key_values(files.get("device/uevent", ""), "="))
    rate = re.match(r"([0-9]{1,5}(?:\.[0-9])?) Gb", files.get("ports/1/rate", ""))
    firmware = files.get("fw_ver", "")
    return Nic(
        name=name,
        address=smi.address(bus.get("PCI_SLOT_NAME", "")),
        firmware=firmware if _FIRMWARE.fullmatch(firmware) else Unreadable("sysfs gives no firmware version"),
        psid=texts.known(files.get("board_id")),
        type=texts.known(files.get("hca_type")),
        rate=rate[1] if rate else None,
        state=texts.known(files.get("ports/1/state", "").rpartition(":")[2]),
        link=texts.known(files.get("ports/1/link_layer")),
        driver=texts.known(bus.get("DRIVER")),
        netdev=texts.known(files.get("device/net", "").partition("\n")[0]),
    )


@dataclass(frozen=True, slots=True)
class Stored:
    """Firmware of one device by a tool that knows both sides."""

    running: Raw
    flashed: Raw
    """What runs after the next reset."""
    psid: str | None = None


def devlink(record: Record | Unreadable) -> Mapping[str, Stored] | Unreadable:
    """``devlink -j dev info`` → PCI address → firmware running and stored; needs no root.

    The kernel says "stored" only where the driver reports it: mlx5 gives the running version while nothing is pending.
    Form: kernel documentation of devlink-info; no sample was at hand.
    """
    document = texts.json_of(record)
    if isinstance(document, Absent):
        return {}
    if isinstance(document, Unreadable):
        return document
    info = document.get("info") if isinstance(document, dict) else None
    if not isinstance(info, dict):
        return Unreadable("devlink's JSON has no info")
    found: dict[str, Stored] = {}
    for handle, entry in info.items():
        bus, _, place = str(handle).partition("/")
        where = smi.address(place)
        versions = entry.get("versions") if isinstance(entry, dict) else None
        if bus != "pci" or where is None or not isinstance(versions, dict):
            continue
        running, stored = (_firmware(versions.get(kind)) for kind in ("running", "stored"))
        fixed = versions.get("fixed")
        psid = texts.known(fixed.get("fw.psid")) if isinstance(fixed, dict) else None
        nothing = Unreadable("the driver does not say what is stored")
        found[where] = Stored(running or Unreadable("devlink names no version"), stored or nothing, psid)
    return found


def _firmware(versions: object) -> str | None:
    if not isinstance(versions, dict):
        return None
    for name in ("fw.version", "fw", "fw.mgmt"):
        value = texts.known(versions.get(name))
        if value and _FIRMWARE.fullmatch(value):
            return value
    return None


@dataclass(frozen=True, slots=True)
class Ethernet:
    """``ethtool -i`` of one interface."""

    name: str
    driver: str | None
    version: str | None
    firmware: Raw
    psid: str | None
    address: str | None

    def origin(self, kernel: Raw) -> str | None:
        """``inbox`` where the driver's version is the kernel's release, else ``ofed``; None when either is unknown."""
        if self.version is None or not isinstance(kernel, str):
            return None
        return "inbox" if self.version == kernel else "ofed"


def ethtool(text: str, name: str = "") -> Ethernet | Unreadable:
    """``firmware-version: 28.39.2048 (MT_0000000838)``, ``driver:``, ``version:``, ``bus-info:``."""
    entries = dict(texts.key_values(text))
    if "driver" not in entries:
        return Unreadable(f"ethtool says nothing of {name or 'it'}")
    match = re.match(r"([0-9A-Za-z._-]{1,60})(?: \(([A-Z0-9_]{3,40})\))?", entries.get("firmware-version", ""))
    known = texts.known(match[1]) if match is not None else None
    return Ethernet(
        name=name,
        driver=texts.known(entries["driver"]),
        version=texts.known(entries.get("version")),
        firmware=known or Unreadable("ethtool names no firmware"),
        psid=match[2] if match is not None else None,
        address=smi.address(entries.get("bus-info", "")),
    )


def devices(record: Record | Unreadable) -> Mapping[str, Ethernet]:
    """``@NAME`` and the lines of ``ethtool -i NAME`` for each interface; what said nothing is left out."""
    answer = texts.given(record)
    if not isinstance(answer, Record):
        return {}
    blocks: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in answer.text.splitlines():
        if line.startswith("@"):
            lines = blocks.setdefault(line[1:].strip(), [])
        else:
            lines.append(line)
    return {name: found for name, found in _each(blocks.items()) if isinstance(found, Ethernet)}


def _each(blocks: Iterable[tuple[str, list[str]]]) -> Iterable[tuple[str, Ethernet | Unreadable]]:
    return ((name, ethtool("\n".join(lines), name)) for name, lines in blocks)
