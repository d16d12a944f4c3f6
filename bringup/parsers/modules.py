"""Kernel modules on disk and in memory: ``modinfo``, ``dkms status``, /sys/module.

modinfo of several modules at once, each begun by its file (``filename:``), fields in any order behind it. The older
form of the probe printed version and licence of one module on two lines; it is still read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bringup.parsers import host, texts
from bringup.parsers.host import Sections
from bringup.parsers.records import Record
from bringup.parsers.texts import Raw
from pinsets.facts import ABSENT, Unreadable

__all__ = ["Built", "Module", "dkms", "loaded", "modinfo", "ondisk", "running"]

_FIELD = re.compile(r"(filename|version|license|srcversion|vermagic):\s*(.*)")


@dataclass(frozen=True, slots=True)
class Module:
    """One module as modinfo finds it for the running kernel."""

    name: str
    filename: str = ""
    version: str | None = None
    """None: the file carries no version, as modules of the kernel's own tree."""
    license: str = ""
    srcversion: str | None = None
    vermagic: str | None = None
    """Kernel release that it was built for."""

    @property
    def origin(self) -> str:
        """``inbox``, ``dkms``, ``extra`` (built by somebody else), by the folder of its file."""
        if "/updates/" in self.filename:
            return "dkms"
        if "/extra/" in self.filename or "/weak-updates/" in self.filename:
            return "extra"
        return "inbox" if "/kernel/" in self.filename or self.filename == "(builtin)" else "other"

    @property
    def flavour(self) -> str | None:
        """``open`` or ``proprietary``, of NVIDIA's module."""
        return "open" if "GPL" in self.license else "proprietary" if self.license == "NVIDIA" else None


def modinfo(record: Record | Unreadable) -> Mapping[str, Module] | Unreadable:
    """Modules by name, ``-`` as ``_``. What modinfo did not find is not in it."""
    if isinstance(record, Unreadable):
        return record
    if record.not_found or "modinfo: not found" in record.errors:
        return Unreadable("modinfo: not found")
    lines = [line.rstrip() for line in record.text.splitlines()]
    if lines and not _FIELD.fullmatch(lines[0]) and texts.VERSION.fullmatch(lines[0].strip()):
        return {"nvidia": Module("nvidia", "", lines[0].strip(), lines[1].strip() if len(lines) > 1 else "")}
    found: dict[str, Module] = {}
    fields: dict[str, str] = {}
    for line in [*lines, "filename: "]:
        match = _FIELD.fullmatch(line)
        if match is None:
            continue
        if match[1] == "filename":
            if (module := _module(fields)) is not None:
                found[module.name] = module
            fields = {}
        fields.setdefault(match[1], match[2].strip()[:300])
    if found:
        return found
    complaint = record.errors.lower()
    return {} if not lines and ("not found" in complaint or not complaint) else Unreadable(record.complaint)


def _module(fields: Mapping[str, str]) -> Module | None:
    filename = fields.get("filename", "")
    match = re.search(r"([A-Za-z0-9_-]{1,80})\.ko(\.(xz|zst|gz))?$", filename)
    if match is None:
        return None
    version = fields.get("version")
    return Module(
        name=match[1].replace("-", "_"),
        filename=filename,
        version=version if version else None,
        license=fields.get("license", ""),
        srcversion=fields.get("srcversion") or None,
        vermagic=(fields.get("vermagic") or "").split(" ")[0] or None,
    )


def ondisk(found: Mapping[str, Module] | Unreadable, name: str, *, by_kernel: str | None = None) -> Raw:
    """Version of a module on disk; one without a version is the kernel's own, named ``inbox KERNEL``."""
    if isinstance(found, Unreadable):
        return found
    module = found.get(name)
    if module is None:
        return ABSENT
    if module.version is not None:
        return module.version if len(module.version) <= 100 else Unreadable("an odd version")
    release = module.vermagic or by_kernel
    return f"inbox {release}" if release else Unreadable(f"{name} carries no version")


def loaded(files: Sections) -> frozenset[str] | Unreadable:
    """Names of the loaded modules among those asked for."""
    value = host.file_of(files, "modules")
    if isinstance(value, str):
        return frozenset(value.split())
    return value if isinstance(value, Unreadable) else frozenset()


def running(files: Sections, name: str, kernel: Raw) -> Raw:
    """Version of a loaded module by /sys/module/NAME/version; ``inbox KERNEL`` where it carries none."""
    names = loaded(files)
    if isinstance(names, Unreadable):
        return names
    if name not in names:
        return ABSENT
    value = files.get(f"/sys/module/{name}/version")
    if isinstance(value, Unreadable):
        return value
    if isinstance(value, str) and value.strip():
        return value.strip()[:100]
    return f"inbox {kernel}" if isinstance(kernel, str) else Unreadable(f"{name} carries no version")


@dataclass(frozen=True, slots=True)
class Built:
    """One line of ``dkms status``."""

    module: str
    version: str
    kernel: str | None
    """None: only added, built for no kernel."""
    state: str

    @property
    def installed(self) -> bool:
        """Whether a boot of `kernel` finds it; ``added`` and ``built`` do not count."""
        return self.state == "installed"


_DKMS = re.compile(
    r"(?P<module>[A-Za-z0-9_.-]{1,80})(?:/|, )(?P<version>[^,:/\s]{1,80})"
    r"(?:, (?P<kernel>[^,\s]{1,100}), [a-z0-9_]{1,20})?: (?P<state>[a-z]+)"
)


def dkms(record: Record | Unreadable) -> Sequence[Built] | Unreadable:
    """Both formats: ``nvidia, 550.90.07, KERNEL, x86_64: installed`` and ``nvidia/550.90.07, KERNEL, …``.

    Lines of other kinds (errors about stale folders, warnings behind the state) are skipped.
    """
    answer = texts.given(record)
    if not isinstance(answer, Record):
        return answer if isinstance(answer, Unreadable) else ()
    found = [_DKMS.match(line.strip()) for line in answer.text.splitlines()]
    built = tuple(Built(m["module"], m["version"], m["kernel"], m["state"]) for m in found if m is not None)
    return built if built or answer.rc == 0 else Unreadable(answer.complaint)
