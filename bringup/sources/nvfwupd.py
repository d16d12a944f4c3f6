"""Firmware that `nvfwupd show_version` lists → facts of one node: a tray without SSH, a DGX, or a switch tray.

NVIDIA's own tool asks the BMC, so what it says counts as running, as the BMC's inventory does (`bringup.redfish`).
"""

from __future__ import annotations

import re

from bringup.parsers import nvfwupd
from bringup.parsers.records import Record
from bringup.parsers.texts import Raw
from inventory.model import Sku
from lockstep.base.names import ComponentName, NodeName
from pinsets import components, normalisers
from pinsets.facts import ABSENT, Absent, Coordinate, Fact, Layer, NodeFacts, Observation, Unreadable, Version

__all__ = ["facts"]

_SOURCE = "nvfwupd:show_version"
_LONGEST = 100
"""Characters of a serial or a model: longer ones are none."""
_NUMBER = re.compile(r"(?P<from_one>.*_SXM)?.*?_(?P<number>\d+)")


def facts(node: NodeName, output: bytes, sku: Sku | None, observed_at: float) -> NodeFacts:
    """Its parts that are components, by the SKU's slots; a part that the SKU expects and no line names is absent.

    Output without a list of parts is an unreachable node. GPUs and NICs, which a SKU names by PCI address, are placed
    by their number in file order (inferred: the tool gives no address); NICs only where all of them are listed, since
    a GB200 lists NIC_0 alone and does not say which that is.
    """
    shown = nvfwupd.show_version(Record("nvfwupd", 0, 0, output, b""))
    if isinstance(shown, Unreadable):
        return NodeFacts(node, observed_at, unreachable=f"nvfwupd: {shown.reason}")
    found: dict[Coordinate, Fact] = {}
    placed = [(part, where) for part in shown.parts if (where := nvfwupd.place(part, shown.switch)) is not None]
    nics = sum(where[0] == "firmware.nic" for _, where in placed)
    for part, where in placed:
        component = ComponentName(where[0])
        if component == "firmware.nic" and sku is not None and nics != len(sku.slots("nic")):
            continue
        kind = components.load()[component].instance
        instance = _slot(part.name, kind, sku) if kind is not None else None
        if kind is not None and instance is None:
            continue
        coordinate = Coordinate(component, Layer.RUNNING, instance)
        found[coordinate] = Fact(coordinate, _observed(component, part.version), _SOURCE)
    if sku is not None:
        _missing(found, sku)
    attributes = {"nvfwupd.model": shown.model[:_LONGEST]} if shown.model else {}
    serial = shown.serial[:_LONGEST] if shown.serial else None
    return NodeFacts(node, observed_at, found, serial=serial, attributes=attributes)


def _observed(component: ComponentName, value: Raw) -> Observation:
    if isinstance(value, (Absent, Unreadable)):
        return value
    return Version(normalisers.normalise(component, value), value)


def _slot(name: str, kind: str, sku: Sku | None) -> str | None:
    """What the SKU calls the part; None for one that it does not expect."""
    if sku is None:
        return name
    for known, named in sku.instances.items():
        if known == kind:
            return named.get(name)
    match = _NUMBER.fullmatch(name)
    slots = sku.slots(kind)
    number = int(match["number"]) - (1 if match["from_one"] else 0) if match is not None else -1
    return slots[number] if 0 <= number < len(slots) else None


def _missing(found: dict[Coordinate, Fact], sku: Sku) -> None:
    for component in {coordinate.component for coordinate in found if coordinate.instance is not None}:
        kind = components.load()[component].instance
        for slot in sku.slots(kind) if kind is not None else ():
            coordinate = Coordinate(component, Layer.RUNNING, slot)
            found.setdefault(coordinate, Fact(coordinate, ABSENT, _SOURCE))
