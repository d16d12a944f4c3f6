"""AMD's stack on one node: driver, ROCm, firmware of each GPU, partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bringup.parsers import amd, host, machine, modules, texts
from bringup.parsers.parsed import Item, Parsed, Slots, slot
from bringup.parsers.texts import Raw
from pinsets.facts import ABSENT, Absent, Layer, Unreadable

__all__ = ["attributes", "items"]


def items(parsed: Parsed, slots: Slots) -> Iterator[Item]:
    """Facts of driver and ROCm everywhere (absent is a value), of GPUs where the driver is loaded."""
    if "modules" in parsed.files:
        running = modules.running(parsed.files, "amdgpu", parsed.kernel)
        yield "amdgpu", Layer.RUNNING, None, running, "/sys/module/amdgpu/version"
        yield "amdgpu", Layer.ONDISK, None, modules.ondisk(parsed.built, "amdgpu"), "modinfo -F version amdgpu"
    yield "rocm", Layer.ONDISK, None, _rocm(parsed), "/opt/rocm/.info/version"
    if not parsed.has_amd:
        return
    tool = amd.version(parsed.record("amd_version"))
    number: Raw = tool if isinstance(tool, (Absent, Unreadable)) else tool.tool or Unreadable("it names no version")
    yield "amd-smi", Layer.ONDISK, None, number, "amd-smi version --json"
    yield from _gpus(parsed, slots)


def _rocm(parsed: Parsed) -> Raw:
    value = host.file_of(parsed.files, "/opt/rocm/.info/version")
    return (value.strip() or Unreadable("empty")) if isinstance(value, str) else value


def _devices(parsed: Parsed) -> Mapping[str, amd.Device]:
    """By PCI address, of whatever source knows them."""
    found = {where: amd.Device(-1, where) for where in parsed.amd_cards}
    if isinstance(parsed.amd_gpus, tuple):
        found |= {device.address: device for device in parsed.amd_gpus if device.address is not None}
    return found


def _gpus(parsed: Parsed, slots: Slots) -> Iterator[Item]:
    firmware = amd.firmware(parsed.record("amd_firmware"))
    old_driver, old = amd.rocm_smi(parsed.record("rocm_smi"))
    del old_driver
    devices = _devices(parsed)
    for where, device in devices.items():
        name = slot(where, slots.gpus)
        card = parsed.amd_cards.get(where, {})
        image = device.ifwi or card.get("vbios") or old.get(where, {}).get("vbios")
        yield "firmware.ifwi", Layer.RUNNING, name, image or Unreadable("no image version"), "amd-smi static --json"
        bundle: Raw = Unreadable("amd-smi does not say which GPU it is")
        if isinstance(firmware, (Absent, Unreadable)):
            bundle = Unreadable("amd-smi is not installed") if isinstance(firmware, Absent) else firmware
        elif device.index in firmware:
            bundle = amd.pldm(firmware[device.index])
        yield "firmware.pldm", Layer.RUNNING, name, bundle, "amd-smi firmware --json"
        compute, memory = card.get("compute"), card.get("memory")
        partition = f"{compute}/{memory}" if compute and memory else device.partition
        if partition is not None:
            yield "settings.partition", Layer.RUNNING, name, partition, "/sys/class/drm/card*/device"
        for key in ("power-limit", "ecc"):
            if key in device.settings:
                yield f"settings.{key}", Layer.RUNNING, name, device.settings[key], "amd-smi static --json"
    seen = {slot(where, slots.gpus) for where in devices}
    missing = [name for name in slots.gpus.values() if name not in seen]
    yield from (("firmware.ifwi", Layer.RUNNING, name, ABSENT, "amd-smi static --json") for name in missing)


def attributes(parsed: Parsed, slots: Slots) -> Iterator[tuple[str, str]]:
    """GPUs by slot, and whose driver it is."""
    if not parsed.has_amd:
        return
    version = machine.text_of(parsed.files, "/sys/module/amdgpu/version")
    yield "amd.driver", "dkms" if version else "inbox"
    devices = _devices(parsed)
    if not devices:
        return
    named = sorted((slot(where, slots.gpus), where) for where in devices)
    order = {name: index for index, name in enumerate(slots.gpus.values())}
    named.sort(key=lambda pair: (order.get(pair[0], len(order)), pair[0]))
    yield "gpus", ",".join(name for name, _ in named)
    yield "gpu.count", str(len(named))
    if product := texts.distinct(devices[where].product for _, where in named):
        yield "gpu.product", product
    for name, where in named:
        device = devices[where]
        values = {
            "pci": where,
            "product": device.product,
            "serial": device.serial,
            "vbios-number": device.ifwi_version,
        }
        yield from ((f"gpu.{name}.{key}", value) for key, value in values.items() if value)
