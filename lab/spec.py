"""What a lab consists of: plain values, made from a fleet file, kept as ``lab.json`` in the lab's folder."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from inventory import model
from lockstep.base import errors

__all__ = ["DEFAULT_PORT", "LabNode", "Spec", "from_fleet", "read", "write"]

DEFAULT_PORT = 2222
FILE = "lab.json"


@dataclass(frozen=True, slots=True)
class LabNode:
    """One machine of a lab."""

    name: str
    address: str
    """IPv4 address inside 127.0.0.0/8."""
    port: int
    slot: str
    domain: str
    accelerator: str
    """Product name as nvidia-smi prints it."""
    gpus: tuple[tuple[str, str], ...]
    """(PCI address as sysfs prints it, slot name), in PCI order."""
    nvlink: str
    """``rack``, ``node`` or ``none``, as the SKU says."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A lab by name."""

    name: str
    nodes: tuple[LabNode, ...]

    def node(self, name: str) -> LabNode:
        """The node of that name; raises `errors.InputError` naming those that exist."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise errors.InputError(
            f"lab {self.name} has no node {name}", hint=f"its nodes: {', '.join(node.name for node in self.nodes)}"
        )


def from_fleet(fleet: model.Fleet) -> Spec:
    """The machines that a fleet file declares. Raises `errors.InputError` for an address outside 127.0.0.0/8."""
    port = fleet.ssh.port or DEFAULT_PORT
    nodes = []
    for node in fleet.nodes:
        place = f"{fleet.path}:{node.line}" if node.line else str(fleet.path)
        try:
            loopback = ipaddress.IPv4Address(node.address).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise errors.InputError(
                f"node {node.name} has the address {node.address}; a lab's nodes live on this machine",
                place=place,
                hint="give it an address in 127.0.0.0/8, or use this fleet without `lockstep lab`",
            )
        sku = fleet.pool_of(node).sku
        nodes.append(
            LabNode(
                name=node.name,
                address=node.address,
                port=port,
                slot=node.slot,
                domain=node.domain,
                accelerator=sku.accelerator,
                gpus=tuple(sorted(sku.gpus.items())),
                nvlink=sku.nvlink,
            )
        )
    return Spec(fleet.name, tuple(nodes))


def write(spec: Spec, folder: Path) -> None:
    """Keep the spec in the lab's folder, whole or not at all."""
    fresh = folder / f"{FILE}.new"
    fresh.write_text(json.dumps(asdict(spec), indent=1) + "\n")
    fresh.replace(folder / FILE)


def read(folder: Path) -> Spec:
    """The spec of a lab that was made before; raises `errors.InputError` where there is none."""
    path = folder / FILE
    try:
        data: Mapping[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise errors.InputError(f"there is no lab {folder.name}", place=str(folder), hint="lockstep lab up") from None
    nodes = tuple(
        LabNode(**{**node, "gpus": tuple((pci, slot) for pci, slot in node["gpus"])}) for node in data["nodes"]
    )
    return Spec(str(data["name"]), nodes)
