"""Vendor tools for NICs: mstflint (flint), mlxfwmanager, mlxconfig, ofed_info, AMD's nicctl. Most need root."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass

from bringup.parsers import smi, texts
from bringup.parsers.nics import Stored
from bringup.parsers.records import Record
from bringup.parsers.texts import Raw
from pinsets.facts import Absent, Unreadable

__all__ = ["Card", "Settings", "mft", "mlxconfig", "mlxfwmanager", "mstflint", "nicctl", "ofed", "per_device"]


def per_device(record: Record | Unreadable) -> Mapping[str, str]:
    """``@ADDRESS`` and what a tool printed for that device, one block after the other."""
    answer = texts.given(record)
    if not isinstance(answer, Record):
        return {}
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in answer.text.splitlines():
        where = smi.address(line[1:]) if line.startswith("@") else None
        if where is not None:
            lines = found.setdefault(where, [])
        else:
            lines.append(line)
    return {where: "\n".join(block) for where, block in found.items()}


def mstflint(text: str) -> Stored | Unreadable:
    """``mstflint -d DEV q``: "FW Version" is the flash; "FW Version(Running)" is printed while a reset is pending.

    Some images print only the running one; then nothing else is written.
    """
    entries: dict[str, str] = {}
    for key, value in texts.key_values(text):
        entries.setdefault(" ".join(key.split()), value)
    flash, run = texts.known(entries.get("FW Version")), texts.known(entries.get("FW Version(Running)"))
    if flash is None and run is None:
        first = next((line.strip() for line in text.splitlines() if line.strip()), "it said nothing")
        return Unreadable(first[:200])
    nothing = Unreadable("mstflint names no version")
    return Stored(run or flash or nothing, flash or run or nothing, texts.known(entries.get("PSID")))


@dataclass(frozen=True, slots=True)
class Card:
    """One device of mlxfwmanager."""

    address: str
    type: str
    firmware: Raw
    psid: str | None
    part: str | None


def mlxfwmanager(record: Record | Unreadable) -> Mapping[str, Card] | Unreadable:
    """``mlxfwmanager --query --query-format XML`` → PCI address → card; one that cannot be opened is unreadable."""
    answer = texts.answered(record)
    if isinstance(answer, Unreadable):
        return answer
    text = answer.text
    start = text.find("<Devices")
    if start < 0:
        return Unreadable(answer.complaint)
    if "<!ENTITY" in text:
        return Unreadable("mlxfwmanager printed a document with entities")
    end = text.rfind("</Devices>")
    try:
        root = ElementTree.fromstring(text[start : end + 10] if end > 0 else text[start:])  # noqa: S314 - see above
    except (ElementTree.ParseError, ValueError, RecursionError) as error:
        return Unreadable(f"mlxfwmanager printed broken XML ({error})")
    found: dict[str, Card] = {}
    for device in root.iter("Device"):
        where = smi.address(device.get("pciName", ""))
        if where is None:
            continue
        current = device.find("Versions/FW")
        version = texts.known(current.get("current")) if current is not None else None
        status = (device.findtext("Status") or "").strip()
        found[where] = Card(
            address=where,
            type=device.get("type", "")[:60],
            firmware=version or Unreadable(status[:200] or "no version"),
            psid=texts.known(device.get("psid")),
            part=texts.known(device.get("partNumber")),
        )
    return found


@dataclass(frozen=True, slots=True)
class Settings:
    """``mlxconfig -e -d DEV q``."""

    current: Mapping[str, str]
    next: Mapping[str, str]
    """After the next reset or boot; the same where only one column was printed."""


def mlxconfig(text: str) -> Settings | Unreadable:
    """Rows ``NAME  default  current  next`` below a "Configurations:" line; with fewer columns the last one is next.

    A star in front marks a row whose next value differs. Form: MFT's manual; no sample was at hand.
    """
    current: dict[str, str] = {}
    following: dict[str, str] = {}
    columns = 0
    for line in text.splitlines():
        if line.strip().startswith("Configurations:"):
            head = re.split(r"\s{2,}", line.strip())[1:]
            columns = min(3, max(1, len([word for word in head if word])))
            continue
        row = re.fullmatch(r"\s*\*?\s+([A-Z][A-Z0-9_]{1,80}(?:\[[0-9.]{1,12}\])?)\s+(\S.*?)\s*", line)
        if not columns or row is None:
            continue
        values = re.split(r"\s+", row[2])
        if len(values) < columns:
            continue
        current[row[1]] = values[1] if columns == 3 else values[0]
        following[row[1]] = values[columns - 1]
    if current:
        return Settings(current, following)
    first = next((line.strip() for line in text.splitlines() if line.strip().startswith("-E-")), "no configurations")
    return Unreadable(first[:200])


def ofed(record: Record | Unreadable) -> Raw:
    """``ofed_info -s``: ``MLNX_OFED_LINUX-5.8-1.1.2.1:`` or ``OFED-internal-25.10-1.7.1.413:``, the colon taken off."""
    answer = texts.given(record)
    if not isinstance(answer, Record):
        return answer
    for line in answer.text.splitlines():
        text = line.strip().rstrip(":")
        if re.fullmatch(r"[A-Za-z_-]{2,40}-[0-9][0-9A-Za-z.-]{1,60}", text):
            return text
    return Unreadable(answer.complaint)


def mft(record: Record | Unreadable) -> Raw:
    """``flint --version``: ``flint, mft 4.31.0-149, built on …``."""
    answer = texts.given(record)
    if not isinstance(answer, Record):
        return answer
    match = re.search(r"\b(?:mft|mstflint) ([0-9]{1,4}(?:\.[0-9]{1,4}){1,2}(?:-[0-9]{1,6})?)", answer.text)
    return match[1] if match is not None else Unreadable(answer.complaint)


def nicctl(record: Record | Unreadable) -> Mapping[str, Stored] | Unreadable:
    """``nicctl show card -j`` → address of the card's PCI bridge → firmware.

    There are two partitions: what the next boot takes is only known where it takes the one that runs.
    """
    document = texts.json_of(record)
    if isinstance(document, Absent):
        return {}
    if isinstance(document, Unreadable):
        return document
    cards = document.get("nic") if isinstance(document, dict) else None
    if not isinstance(cards, list):
        return Unreadable("nicctl's JSON has no nic")
    found: dict[str, Stored] = {}
    for card in cards:
        where = smi.address(str(card.get("eth_bdf", ""))) if isinstance(card, dict) else None
        if where is None:
            continue
        running = texts.known(card.get("firmware_version")) or Unreadable("nicctl names no version")
        now, later = (texts.known(card.get(f"{word}_firmware_partition")) for word in ("current", "next_boot"))
        same = now is not None and now == later
        reason = Unreadable(f"runs partition {now}, boots {later} next" if later else "nicctl names no next partition")
        found[where] = Stored(running, running if same else reason, texts.known(card.get("sku")))
    return found
