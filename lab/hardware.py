"""The machine below a node's operating system: serials, firmware, PCI addresses, NVLink fabric.

Two plain files in the node's ``machine`` folder, read by the stand-in tools inside the node:
``machine`` (``key=value`` lines) and ``gpus`` (tab separated: slot, minor, PCI address, serial,
uuid, VBIOS, ``ok`` or ``lost``). They belong to the machine, not to its disk: a re-image or an
exchange writes new ones.

Values per product: product and part names, memory and firmware as public `nvidia-smi -q -x` outputs of
such boards print them (driver 580).
"""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass
from pathlib import Path

from lab.spec import LabNode

__all__ = ["Gpu", "gpus", "install", "serial"]

ZERO_UUID = "00000000-0000-0000-0000-000000000000"
_FABRIC_SPACE = uuid.UUID("6b0a9c3e-8f5d-5c1e-9a53-6d5f1c1f2a90")


@dataclass(frozen=True, slots=True)
class Product:
    """What is the same on every board of a kind."""

    architecture: str
    vbios: str
    inforom: str
    board_part: str
    gpu_part: str
    device_id: str
    subsystem_id: str
    memory: int
    """MiB."""
    compute_cap: str
    power_limit: int
    """W."""
    addressing: str = "HMM"
    c2c: str = "Disabled"
    chassis: str = "GPU server"
    """Product name of the host, as DMI prints it."""


PRODUCTS = {
    "NVIDIA GB200": Product(
        "Blackwell", "97.00.B9.00.69", "G548.0201.00.06", "900-2G548-A801-000", "2941-892-A1", "294110DE", "204610DE",
        189471, "10.0", 1200, addressing="ATS", c2c="Enabled", chassis="GB200 NVL",
    ),
    "NVIDIA GB300": Product(
        "Blackwell", "97.10.4A.00.1A", "G548.0301.00.02", "900-2G548-A902-000", "31C2-895-A1", "31C210DE", "21F110DE",
        284208, "10.3", 1400, addressing="ATS", c2c="Enabled", chassis="GB300 NVL",
    ),
    "NVIDIA B200": Product(
        "Blackwell", "97.00.88.00.0F", "G525.0225.00.05", "900-2G525-0200-030", "2901-886-A1", "290110DE", "199910DE",
        183359, "10.0", 1000, chassis="HGX B200",
    ),
    "NVIDIA B300 SXM6 AC": Product(
        "Blackwell", "97.10.3F.00.21", "G525.0301.00.04", "900-2G525-0300-000", "3182-895-A1", "318210DE", "20E610DE",
        275040, "10.3", 1100, chassis="HGX B300",
    ),
    "NVIDIA H100 80GB HBM3": Product(
        "Hopper", "96.00.A5.00.01", "G520.0200.00.05", "692-2G520-0200-000", "2330-885-A1", "233010DE", "16C110DE",
        81559, "9.0", 700, addressing="None", chassis="HGX H100",
    ),
}  # fmt: skip
"""By the name that nvidia-smi prints; another name gets the values of an H100 under its own name."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One line of the ``gpus`` file."""

    slot: str
    minor: int
    pci: str
    serial: str
    uuid: str
    vbios: str
    state: str
    """``ok``, or ``lost``: fell off the bus."""


def _serial(digits: int) -> str:
    return "1" + "".join(secrets.choice("0123456789") for _ in range(digits - 1))


def install(node: LabNode, lab: str, folder: Path) -> None:
    """Put a new machine into the node's slot: new serials and uuids, factory firmware, no faults."""
    product = PRODUCTS.get(node.accelerator, PRODUCTS["NVIDIA H100 80GB HBM3"])
    rack = node.nvlink == "rack"
    fabric = node.nvlink in ("rack", "node")
    serial = _serial(13)
    values = {
        "name": node.accelerator,
        "architecture": product.architecture,
        "addressing": product.addressing,
        "c2c": product.c2c,
        "board_part": product.board_part,
        "gpu_part": product.gpu_part,
        "inforom": product.inforom,
        "device_id": product.device_id,
        "subsystem_id": product.subsystem_id,
        "memory": product.memory,
        "compute_cap": product.compute_cap,
        "power_limit": f"{product.power_limit}.00",
        "power_draw": f"{product.power_limit // 8}.00",
        # The rack's chassis, the same for every tray in it.
        "chassis_serial": 1_820_000_000_000 + uuid.uuid5(_FABRIC_SPACE, f"{lab}/{node.domain}").int % 10**9
        if rack
        else "N/A",
        "slot_number": "".join(c for c in node.slot.rpartition("-")[2] if c.isdigit()) or "0" if rack else "N/A",
        "tray_index": "0" if rack else "N/A",
        "peer_type": "Switch Connected" if fabric else "N/A",
        "fabric_guids": "yes" if fabric else "no",
        "fabric_state": "Completed" if fabric else "N/A",
        "fabric_status": "Success" if fabric else "N/A",
        "fabric_health": "Healthy" if rack else "N/A",
        "fabric_bandwidth": "Full" if rack else "N/A",
        "fabric_needs": "nvidia-fabricmanager" if node.nvlink == "node" else "",
        "cluster_uuid": uuid.uuid5(_FABRIC_SPACE, f"{lab}/{node.domain}") if rack else ZERO_UUID if fabric else "N/A",
        "clique": "32766" if rack else "0" if fabric else "N/A",
        "dmi_sys_vendor": "Lockstep lab",
        "dmi_product_name": product.chassis,
        "dmi_product_serial": serial,
        "dmi_chassis_serial": serial,
        "dmi_board_serial": f"{serial}B",
        "dmi_product_uuid": uuid.uuid4(),
        "dmi_bios_vendor": "Lockstep lab",
        "dmi_bios_version": "1.0.7",
        "dmi_bios_date": "01/01/2026",
    }
    cards = [
        Gpu(slot, minor, pci.lower(), _serial(13), f"GPU-{uuid.uuid4()}", product.vbios, "ok")
        for minor, (pci, slot) in enumerate(node.gpus)
    ]
    (folder / "faults").mkdir(parents=True, exist_ok=True)
    for left in (folder / "faults").iterdir():
        left.unlink()
    (folder / "machine").write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    write_gpus(folder, cards)


def write_gpus(folder: Path, cards: list[Gpu]) -> None:
    """Write the ``gpus`` file."""
    lines = ["\t".join((c.slot, str(c.minor), c.pci, c.serial, c.uuid, c.vbios, c.state)) for c in cards]
    (folder / "gpus").write_text("\n".join(lines) + "\n")


def gpus(folder: Path) -> list[Gpu]:
    """The cards of a machine, in PCI order."""
    rows = [line.split("\t") for line in (folder / "gpus").read_text().splitlines() if line]
    return [
        Gpu(slot, int(minor), pci, serial, uid, vbios, state) for slot, minor, pci, serial, uid, vbios, state in rows
    ]


def serial(folder: Path) -> str:
    """Chassis serial of the machine."""
    for line in (folder / "machine").read_text().splitlines():
        if line.startswith("dmi_product_serial="):
            return line.partition("=")[2]
    return ""
