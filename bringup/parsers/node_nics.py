"""NICs of one node: firmware running and written, their settings, the RDMA stack above them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bringup.parsers import modules, nic_tools, nics, texts
from bringup.parsers.parsed import Item, Parsed, Slots, slot, stored
from bringup.parsers.texts import Raw
from pinsets.facts import ABSENT, Absent, Layer, Unreadable

__all__ = ["attributes", "items"]

_SYSFS = "/sys/class/infiniband/*/fw_ver"


def items(parsed: Parsed, slots: Slots) -> Iterator[Item]:
    """Facts of NICs, OFED and EFA."""
    if parsed.asked("nics"):
        yield from _firmware(parsed, slots)
        yield "ofed", Layer.ONDISK, None, nic_tools.ofed(parsed.record("ofed")), "ofed_info -s"
        yield "ofed", Layer.RUNNING, None, _ofed_running(parsed), "/sys/module/mlx5_core/version"
        yield "mft", Layer.ONDISK, None, nic_tools.mft(parsed.record("mft")), "flint --version"
    if "modules" in parsed.files:
        running = modules.running(parsed.files, "efa", parsed.kernel)
        yield "efa", Layer.RUNNING, None, running, "/sys/module/efa/version"
        yield "efa", Layer.ONDISK, None, modules.ondisk(parsed.built, "efa"), "modinfo -F version efa"
    yield from _settings(parsed, slots)


def _named(parsed: Parsed, slots: Slots) -> list[tuple[str, nics.Nic]]:
    if isinstance(parsed.cards, Unreadable):
        return []
    return [(slot(card.address, slots.nics) if card.address else card.name, card) for card in parsed.cards]


def _firmware(parsed: Parsed, slots: Slots) -> Iterator[Item]:
    if isinstance(parsed.cards, Unreadable):
        for layer in (Layer.RUNNING, Layer.FLASHED):
            yield from (("firmware.nic", layer, name, parsed.cards, _SYSFS) for name in slots.nics.values())
        return
    written = stored(parsed)
    seen = set()
    for name, card in _named(parsed, slots):
        seen.add(name)
        other = written.get(card.address or "")
        running = card.firmware
        if isinstance(running, Unreadable) and other is not None and isinstance(other.running, str):
            running = other.running
        yield "firmware.nic", Layer.RUNNING, name, running, _SYSFS
        flashed: Raw = other.flashed if other is not None else Unreadable(_why(parsed))
        yield "firmware.nic", Layer.FLASHED, name, flashed, "devlink dev info, mstflint"
    for name in slots.nics.values():
        if name not in seen:
            yield "firmware.nic", Layer.RUNNING, name, ABSENT, _SYSFS


def _why(parsed: Parsed) -> str:
    return parsed.devlink.reason if isinstance(parsed.devlink, Unreadable) else "needs mstflint: read with --deep"


def _ofed_running(parsed: Parsed) -> Raw:
    """OFED's modules carry its own version; the kernel's carry the kernel's, or none: then no OFED runs."""
    running = modules.running(parsed.files, "mlx5_core", parsed.kernel)
    if not isinstance(running, str):
        return running
    if running.startswith("inbox ") or running == parsed.kernel:
        return ABSENT
    match = texts.VERSION.fullmatch(running)
    return running if match is not None else Unreadable(f"mlx5_core says {running[:60]!r}")


def _settings(parsed: Parsed, slots: Slots) -> Iterator[Item]:
    if not parsed.asked("mlxconfig"):
        return
    for where, text in nic_tools.per_device(parsed.record("mlxconfig")).items():
        found = nic_tools.mlxconfig(text)
        name = slot(where, slots.nics)
        if isinstance(found, Unreadable):
            yield "settings.nic", Layer.RUNNING, name, found, "mlxconfig -d PCI q"
            continue
        for layer, values in ((Layer.RUNNING, found.current), (Layer.FLASHED, found.next)):
            yield "settings.nic", layer, name, _joined(values), "mlxconfig -e -d PCI q"


def _joined(values: Mapping[str, str]) -> str:
    return ";".join(f"{key}={value}" for key, value in sorted(values.items()))


def attributes(parsed: Parsed, slots: Slots) -> Iterator[tuple[str, str]]:
    """NICs by slot, their number, names and rates; the way that RDMA reaches GPU memory."""
    named = _named(parsed, slots)
    if parsed.asked("nics") and not isinstance(parsed.cards, Unreadable):
        yield "nic.count", str(len(named))
        together = {
            "nics": ",".join(name for name, _ in named),
            "nic.psids": texts.distinct(card.psid for _, card in named),
            "nic.netdevs": texts.distinct(card.netdev for _, card in named),
        }
        yield from ((key, value) for key, value in together.items() if value)
        # Empty without any NIC: looked for and not there.
        yield "nic.names", texts.distinct(card.name for _, card in named)
        rates, links = texts.distinct(card.rate for _, card in named), texts.distinct(card.link for _, card in named)
        yield from ((key, text) for key, text in (("nic.rates", rates), ("nic.links", links)) if text or not named)
    for name, card in named:
        values = {
            "name": card.name,
            "pci": card.address,
            "psid": card.psid,
            "type": card.type,
            "rate": card.rate,
            "state": card.state,
            "link": card.link,
            "driver": card.driver,
            "netdev": card.netdev,
        }
        yield from ((f"nic.{name}.{key}", value) for key, value in values.items() if value)
    origins = {device.origin(parsed.kernel) for device in nics.devices(parsed.record("ethtool")).values()}
    if together_origin := texts.distinct(origins):
        yield "nic.driver", together_origin
    built = {} if isinstance(parsed.built, Unreadable) else parsed.built
    if "mlx5_core" in built and built["mlx5_core"].filename:
        yield "ofed.origin", built["mlx5_core"].origin
    if (way := _way(parsed)) is not None:
        yield "rdma.path", way


def _way(parsed: Parsed) -> str | None:
    """``peermem`` where that module is loaded; else ``dmabuf`` where module and kernel allow it; else ``none``."""
    loaded = modules.loaded(parsed.files)
    if isinstance(loaded, (Unreadable, Absent)) or "nvidia" not in loaded:
        return None
    if "nvidia_peermem" in loaded:
        return "peermem"
    new_enough = isinstance(parsed.kernel, str) and texts.version_key(parsed.kernel)[:2] >= texts.version_key("5.12")
    return "dmabuf" if parsed.flavour == "open" and new_enough else "none"
