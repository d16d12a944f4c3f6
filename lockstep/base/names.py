"""Names that must not be mixed up, as types of their own, and the rules they follow."""

from __future__ import annotations

import re
from typing import Literal, NewType

__all__ = [
    "ComponentName",
    "DomainName",
    "FleetName",
    "InstanceKind",
    "NodeName",
    "PinsetName",
    "PoolName",
    "Slot",
    "is_dns_label",
    "is_node_name",
]

FleetName = NewType("FleetName", str)
PoolName = NewType("PoolName", str)
NodeName = NewType("NodeName", str)
"""Also the name of the Kubernetes Node and the Ansible host."""
Slot = NewType("Slot", str)
"""The stable place of a node (rack, position); survives replacement."""
DomainName = NewType("DomainName", str)
"""The fleet file's name of an NVLink domain; what the fabric calls it is a fact to compare."""
PinsetName = NewType("PinsetName", str)
ComponentName = NewType("ComponentName", str)
"""A key of `pinsets/components.yaml`, for example ``driver`` or ``firmware.gpu``."""

InstanceKind = Literal["gpu", "nic", "nvswitch", "cpu", "asic", "cpld", "erot", "fpga", "pcieswitch", "retimer", "smr"]
"""What a machine has several of, each with firmware or settings of its own: a SKU names every one."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NODE = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")


def is_dns_label(text: str) -> bool:
    """Whether ``text`` is an RFC 1123 label, as pools and fleets must be (they name Pulumi objects)."""
    return _LABEL.fullmatch(text) is not None


def is_node_name(text: str) -> bool:
    """Whether ``text`` is an RFC 1123 subdomain of at most 253 characters, as a Kubernetes Node's name must be."""
    return len(text) <= 253 and _NODE.fullmatch(text) is not None
