"""NVIDIA's kernel module as it runs: /sys/module/nvidia, /proc/driver/nvidia/{version,params}."""

from __future__ import annotations

import re

from bringup.parsers import host, texts
from bringup.parsers.host import Sections
from bringup.parsers.texts import Raw
from pinsets.facts import ABSENT, Absent, Unreadable

__all__ = ["module_running", "parameters"]


def module_running(files: Sections) -> tuple[Raw, str | None]:
    """Version of the loaded module from sysfs and /proc, and its flavour (``open`` or ``proprietary``)."""
    by_sysfs = host.file_of(files, "/sys/module/nvidia/version")
    by_proc = host.file_of(files, "/proc/driver/nvidia/version")
    proc_version, flavour = _proc_version(by_proc) if isinstance(by_proc, str) else (by_proc, None)
    if isinstance(by_sysfs, str):
        short = by_sysfs.strip()
        if not texts.VERSION.fullmatch(short):
            return Unreadable(f"/sys/module/nvidia/version is odd: {short[:60]!r}"), flavour
        if isinstance(proc_version, str) and proc_version != short:
            return Unreadable(f"/proc says {proc_version}, sysfs says {short}"), flavour
        return short, flavour
    if isinstance(proc_version, str) or isinstance(by_sysfs, Unreadable):
        return proc_version, flavour
    return (ABSENT, None) if isinstance(by_proc, Absent) else (proc_version, flavour)


def _proc_version(text: str) -> tuple[Raw, str | None]:
    """The ``NVRM version:`` line; the version is the first dotted number behind "Module"."""
    for line in text.splitlines():
        if not line.startswith("NVRM version:"):
            continue
        tail = line.partition("Module")[2]
        match = texts.VERSION.search(tail)
        if match is not None:
            return match[0], "open" if " Open Kernel Module" in line else "proprietary"
    return Unreadable("/proc/driver/nvidia/version has no version line"), None


def parameters(files: Sections) -> Raw:
    """/proc/driver/nvidia/params: every ``Key: value`` as ``Key=value``, sorted, joined by semicolons."""
    value = host.file_of(files, "/proc/driver/nvidia/params")
    if not isinstance(value, str):
        return value
    found = {key: text.strip('"') for key, text in texts.key_values(value) if re.fullmatch(r"[A-Za-z0-9_]{1,80}", key)}
    joined = ";".join(f"{key}={text}" for key, text in sorted(found.items()))
    return joined or Unreadable("/proc/driver/nvidia/params is empty")
