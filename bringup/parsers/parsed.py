"""One answer of the probe, every record parsed once: what the tables of each family pick from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bringup.parsers import (
    amd,
    collectives,
    host,
    loader,
    machine,
    modules,
    nic_tools,
    nics,
    nvidia,
    packages,
    smi,
    smi_text,
)
from bringup.parsers.records import Answer, Record
from bringup.parsers.texts import Raw
from inventory.model import Sku
from pinsets.facts import ABSENT, Absent, Layer, Unreadable

__all__ = ["Item", "Parsed", "Slots", "one_of", "parse", "slot", "slots_of", "stored"]

Item = tuple[str, Layer, "str | None", Raw, str]
"""(component, layer, instance, observation, source)."""


@dataclass(frozen=True, slots=True)
class Slots:
    """Normal PCI address → slot name, of what the SKU expects."""

    gpus: Mapping[str, str] = field(default_factory=dict)
    nics: Mapping[str, str] = field(default_factory=dict)
    nvlink: str = "none"
    """As the SKU has it: ``rack``, ``node``, ``none``."""


def slots_of(sku: Sku | None) -> Slots:
    """Empty without a SKU: then instances go by their addresses."""
    if sku is None:
        return Slots()
    gpus, cards = ({smi.address(place) or place: name for place, name in kind.items()} for kind in (sku.gpus, sku.nics))
    return Slots(gpus, cards, sku.nvlink)


def slot(address: str, slots: Mapping[str, str]) -> str:
    """A device that the SKU does not name goes by its address, so that it is seen and compared, and takes no slot."""
    return slots.get(address, f"pci:{address}")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The answer parsed once."""

    answer: Answer
    files: host.Sections
    os: Mapping[str, str] | Unreadable
    kernel: Raw
    next_kernel: Raw
    machine: str | None
    rooted: str
    """``root``, ``sudo`` or ``none``: by whom the parts that need root were read."""
    database: packages.Packages | Unreadable
    holders: tuple[host.Holder, ...] | Unreadable
    running: Raw
    """The loaded NVIDIA module."""
    flavour: str | None
    built: Mapping[str, modules.Module] | Unreadable
    libraries: loader.Libraries | Unreadable
    nccl: Raw
    nccl_file: str | None
    seen: smi.Smi | Unreadable
    nvlink: Mapping[int, Mapping[str, str]] | Unreadable
    cards: tuple[nics.Nic, ...] | Unreadable
    devlink: Mapping[str, nics.Stored] | Unreadable
    amd_gpus: tuple[amd.Device, ...] | Absent | Unreadable
    amd_cards: Mapping[str, Mapping[str, str]]

    def record(self, name: str) -> Record | Unreadable:
        """A record that may be parsed, or why there is none."""
        return self.answer.get(name)

    def asked(self, name: str) -> bool:
        """Whether the probe of that reading had the command at all (heavy ones only with ``--deep``)."""
        return name in self.answer.records

    @property
    def has_amd(self) -> bool:
        """Whether anything of AMD's accelerator stack is loaded here."""
        loaded = modules.loaded(self.files)
        return not isinstance(loaded, Unreadable) and "amdgpu" in loaded


def parse(answer: Answer) -> Parsed:
    """Every record that more than one table needs."""
    files = host.sections(answer.get("host"))
    kernel, architecture = host.kernel_running(answer.get("kernel"))
    running, flavour = nvidia.module_running(files)
    libraries = loader.read(answer.get("libraries"))
    if "nccl" in answer.records and "libraries" not in answer.records:
        nccl, nccl_file = collectives.nccl_record(answer.get("nccl"))
    else:
        nccl, nccl_file = collectives.library(libraries, "libnccl.so.2")
    return Parsed(
        answer=answer,
        files=files,
        os=host.os_release(files),
        kernel=kernel,
        next_kernel=host.kernel_next(files, answer.get("boot")),
        machine=architecture,
        rooted=_rooted(files),
        database=packages.parse(answer.get("packages")),
        holders=host.holders(answer.get("holders")),
        running=running,
        flavour=flavour,
        built=modules.modinfo(answer.get("module")),
        libraries=libraries,
        nccl=nccl,
        nccl_file=nccl_file,
        seen=smi.smi(answer.get("smi")),
        nvlink=smi_text.nvlink_firmware(answer.get("nvlink")),
        cards=nics.nics(answer.get("nics")),
        devlink=nics.devlink(answer.get("devlink")),
        amd_gpus=amd.devices(answer.get("amd_static")),
        amd_cards=amd.cards(answer.get("amd")),
    )


def _rooted(files: host.Sections) -> str:
    if host.uid(files) == 0:
        return "root"
    return "sudo" if machine.text_of(files, "root") == "sudo" else "none"


def stored(parsed: Parsed) -> Mapping[str, nics.Stored]:
    """Firmware running and flashed by PCI address: mstflint's where it was asked, else devlink's or nicctl's."""
    found: dict[str, nics.Stored] = {}
    pensando = nic_tools.nicctl(parsed.record("nicctl")) if parsed.asked("nicctl") else {}
    for source in (pensando, parsed.devlink):
        found.update(source if not isinstance(source, Unreadable) else {})
    cards = nic_tools.mlxfwmanager(parsed.record("mlxfwmanager")) if parsed.asked("mlxfwmanager") else {}
    for where, card in cards.items() if not isinstance(cards, Unreadable) else ():
        if isinstance(card.firmware, str) and (where not in found or isinstance(found[where].flashed, Unreadable)):
            # It reads the flash, and says nothing of what runs.
            found[where] = nics.Stored(Unreadable("mlxfwmanager reads the flash only"), card.firmware, card.psid)
    for where, text in nic_tools.per_device(parsed.record("mstflint")).items():
        known = nic_tools.mstflint(text)
        if not isinstance(known, Unreadable):
            found[where] = known
    return found


def one_of(values: Sequence[str]) -> Raw:
    """One value where all are equal, all of them comma-joined where they are not (known to differ is not unknown)."""
    different = sorted(set(values))
    return ",".join(different) if different else ABSENT
