"""Files and small commands of the host: boot, kernel, operating system, serial, processes on GPU devices."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from bringup.parsers import texts
from bringup.parsers.records import Record
from bringup.parsers.texts import Raw
from pinsets.facts import ABSENT, Absent, Unreadable

__all__ = [
    "DAEMONS",
    "NOT_ASKED",
    "Holder",
    "Sections",
    "admission",
    "boot_id",
    "busy",
    "daemon",
    "file_of",
    "holders",
    "kernel_next",
    "kernel_running",
    "os_release",
    "sections",
    "serial",
    "uid",
]

Sections = Mapping[str, "str | Absent | Unreadable"]
"""File name → its text, absent, or unreadable."""

DAEMONS: Final = ("nv-fabricmanager", "nvidia-imex", "nvlsm", "nv-hostengine", "kubelet", "containerd")
"""Vendor daemons that the probe lists by name."""
NOT_ASKED: Final = "not asked for"
"""Reason of what the probe of that reading did not ask at all; nothing is made of it."""
_PLACEHOLDERS = (
    *("none", "unknown", "not specified", "not available", "not applicable", "n/a", "default string", "0"),
    *("to be filled by o.e.m.", "system serial number", "chassis serial number", "123456789", "xxxxxxxx"),
)
"""What boards carry whose maker forgot the serial."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TOKEN = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+~_-]{0,99}")


def sections(record: Record | Unreadable) -> Sections:
    """``@NAME`` and lines behind a blank → text; ``-NAME`` absent; ``!NAME`` there but not readable."""
    if isinstance(record, Unreadable):
        return {"": record}
    found: dict[str, str | Absent | Unreadable] = {}
    lines: dict[str, list[str]] = {}
    current: list[str] = []
    for line in record.text.split("\n"):
        mark, rest = line[:1], line[1:]
        if mark == "@":
            current = lines.setdefault(rest, [])
        elif mark == " ":
            current.append(rest)
        elif mark == "-":
            found[rest] = ABSENT
        elif mark == "!":
            found[rest] = Unreadable("needs root")
    for name, content in lines.items():
        found[name] = "\n".join(content)
    return found


def file_of(files: Sections, name: str) -> Raw:
    """A file's text, absent or unreadable; ``not asked for`` where the probe of that reading did not name it."""
    value = files.get(name)
    if value is not None:
        return value
    whole = files.get("")
    return whole if isinstance(whole, Unreadable) else Unreadable(NOT_ASKED)


def _text(files: Sections, name: str) -> str | None:
    value = files.get(name)
    return value.strip().strip("\0") if isinstance(value, str) else None


def boot_id(files: Sections) -> str | None:
    """The boot's UUID; None when it could not be read."""
    text = _text(files, "/proc/sys/kernel/random/boot_id")
    return text if text and _UUID.fullmatch(text) else None


def uid(files: Sections) -> int | None:
    """Effective user id of the reading, from ``Uid: real effective saved fs``."""
    fields = (_text(files, "uid") or "").split()
    return int(fields[2]) if len(fields) > 2 and re.fullmatch("[0-9]{1,12}", fields[2]) else None


def os_release(files: Sections) -> Mapping[str, str] | Unreadable:
    """/etc/os-release as a map; quotes of either sort taken off."""
    text = _text(files, "/etc/os-release")
    if text is None:
        return Unreadable("no /etc/os-release")
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and re.fullmatch(r"[A-Z][A-Z0-9_]*", key.strip()):
            found[key.strip()] = value.strip().strip("\"'")
    return found if found.get("ID") else Unreadable("/etc/os-release names no ID")


def kernel_running(record: Record | Unreadable) -> tuple[Raw, str | None]:
    """``uname -rm`` → release and machine; both on one line, or on two."""
    if isinstance(record, Unreadable):
        return record, None
    words = record.text.split()
    if not words:
        return Unreadable(record.complaint), None
    release = words[0]
    machine = words[1] if len(words) == 2 else ""
    if not _TOKEN.fullmatch(release):
        return Unreadable(f"not a kernel release: {release[:60]!r}"), None
    return release, machine or None


def kernel_next(files: Sections, boot: Record | Unreadable) -> Raw:
    """The kernel of the next boot: the boot loader's saved entry, else the newest in /boot, else the /vmlinuz link."""
    installed = [name for name in (_text(files, "kernels") or "").split() if _TOKEN.fullmatch(name)]
    if not isinstance(boot, Unreadable):
        for line in boot.text.splitlines():
            key, _, value = line.partition("=")
            saved = [name for name in installed if key.strip() == "saved_entry" and value.strip().endswith(name)]
            if saved:
                return max(saved, key=len)
    if installed:
        return max(installed, key=texts.version_key)
    for line in (_text(files, "link") or "").splitlines():
        name = line.strip().rpartition("vmlinuz-")[2]
        if name != line.strip() and _TOKEN.fullmatch(name):
            return name
    return ABSENT if "kernels" in files else file_of(files, "kernels")


def serial(files: Sections, table: Record | Unreadable, by_gpu: str | None = None) -> str | None:
    """Chassis serial from DMI, device tree, dmidecode, or what the GPUs say of their chassis; placeholders are none."""
    candidates = [
        _text(files, f"/sys/class/dmi/id/{name}") for name in ("product_serial", "chassis_serial", "board_serial")
    ]
    candidates.append(_text(files, "/proc/device-tree/serial-number"))
    if not isinstance(table, Unreadable):
        lines = [line.strip() for line in table.text.splitlines() if line.strip() and not line.startswith("#")]
        candidates.append(lines[-1] if lines and table.rc == 0 else None)
    candidates.append(by_gpu)
    for text in candidates:
        if text and text.lower() not in _PLACEHOLDERS and len(text) <= 100 and text.isprintable():
            return text
    return None


def admission(files: Sections) -> Mapping[str, object] | None:
    """The node's admission file; None when it has none. One that cannot be read still counts as there."""
    value = file_of(files, "/var/lib/lockstep/admission.json")
    if isinstance(value, Absent):
        return None
    if isinstance(value, Unreadable):
        return {"unreadable": value.reason}
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return {"unreadable": "not JSON"}
    return found if isinstance(found, dict) else {"unreadable": "not a JSON object"}


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a GPU device, or a vendor daemon that runs."""

    pid: int
    name: str
    """As the kernel keeps it: 15 characters at most."""
    program: str
    """Path of the executable, `` (deleted)`` behind it when it was replaced since; empty when not readable."""
    daemon: bool
    """Listed for its name, not for a device."""

    @property
    def short(self) -> str:
        """The program's file name where it is known, else the kernel's name of the process."""
        path = self.program.removesuffix(" (deleted)")
        return path.rpartition("/")[2] if path else self.name

    @property
    def service(self) -> str:
        """A daemon's name in full, also where its program is an interpreter."""
        return next((name for name in DAEMONS if name[:15] == self.name), self.short)

    @property
    def replaced(self) -> bool:
        """Whether its file on disk is another one now."""
        return self.program.endswith(" (deleted)")


def holders(record: Record | Unreadable) -> tuple[Holder, ...] | Unreadable:
    """``PID NAME PROGRAM`` lines, ``=`` before a daemon, ``end`` last."""
    if isinstance(record, Unreadable):
        return record
    lines = record.text.splitlines()
    if not lines or lines[-1] != "end":
        return Unreadable(record.complaint if record.rc else "list of processes was cut")
    found = []
    for line in lines[:-1]:
        pid, _, rest = line.removeprefix("=").partition(" ")
        # A process may call itself anything, blanks included; the program's path is what follows the last " /".
        name, slash, program = rest.partition(" /")
        if pid.isdecimal():
            found.append(Holder(int(pid), name.strip(), slash.strip() + program.strip(), line.startswith("=")))
    return tuple(found)


def busy(found: tuple[Holder, ...] | Unreadable, user: int | None, daemons: Collection[str]) -> tuple[str, ...] | None:
    """``pid program`` of every holder that is no vendor daemon; None when not known, which counts as busy."""
    if isinstance(found, Unreadable) or user != 0:
        return None
    excepted = {name[:15] for name in daemons}
    return tuple(
        f"{holder.pid} {holder.short}"
        for holder in found
        if not holder.daemon and holder.short not in daemons and holder.name not in excepted
    )


def daemon(found: tuple[Holder, ...] | Unreadable, name: str, ondisk: Raw) -> Raw:
    """Version of a running daemon: that of its file on disk, unless the file was replaced since it started."""
    if isinstance(found, Unreadable):
        return found
    running = [holder for holder in found if holder.daemon and name in (holder.short, holder.name)]
    running += [holder for holder in found if holder.daemon and holder.name == name[:15] and holder not in running]
    if not running:
        return ABSENT
    if any(holder.replaced for holder in running):
        return Unreadable("its program was replaced on disk since it started: restart it")
    return ondisk
