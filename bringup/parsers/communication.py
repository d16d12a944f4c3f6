"""HPC-X, UCX, libfabric, EFA: version files and one-line versions."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bringup.parsers import host, texts
from bringup.parsers.host import Sections
from bringup.parsers.records import Record
from bringup.parsers.texts import Raw
from pinsets.facts import ABSENT, Absent, Unreadable

__all__ = ["efa_installer", "efa_packages", "hpcx", "libfabric", "ucx"]

_EFA_FILE = "/opt/amazon/efa_installed_packages"


def hpcx(files: Sections) -> Raw:
    """/opt/hpcx*/VERSION: its first version; several installations with different versions are unreadable."""
    found = set()
    for name, value in files.items():
        if name.startswith("/opt/hpcx") and name.endswith("/VERSION") and isinstance(value, str):
            match = re.search(r"v?([0-9]{1,4}(?:\.[0-9]{1,4}){1,2}(?:[a-z]|-[a-z0-9]{1,10})?)\b", value)
            found.add(match[1] if match is not None else "?")
    if len(found) == 1 and "?" not in found:
        return found.pop()
    return Unreadable(f"/opt/hpcx*/VERSION: {', '.join(sorted(found))}") if found else ABSENT


def ucx(record: Record | Unreadable) -> Raw:
    """``ucx_info -v``: ``# Library version: 1.17.0`` (``# UCT version=1.12.1 …`` before 1.13)."""
    answer = texts.given(record)
    if not isinstance(answer, Record):
        return answer
    match = re.search(
        r"(?:Library version:|UC[TP] version=|Version) ?([0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4})", answer.text
    )
    return match[1] if match is not None else Unreadable(answer.complaint)


def libfabric(record: Record | Unreadable) -> Mapping[str, str] | Absent | Unreadable:
    """``fi_info --version`` → ``library`` (``1.22.0amzn4.0``), ``program``, ``api``."""
    answer = texts.given(record)
    if not isinstance(answer, Record):
        return answer
    found: dict[str, str] = {}
    for key, value in texts.key_values(answer.text):
        name = {"libfabric": "library", "fi_info": "program", "libfabric api": "api"}.get(key.lower())
        if name is not None and texts.VERSION.fullmatch(value):
            found[name] = value
    return found if "library" in found or "program" in found else Unreadable(answer.complaint)


def efa_installer(files: Sections) -> Raw:
    """``# EFA installer version: 1.47.0``, the first line of the installer's own list."""
    value = host.file_of(files, _EFA_FILE)
    if not isinstance(value, str):
        return value
    match = re.search(r"EFA installer version:\s*([0-9]{1,4}(?:\.[0-9]{1,4}){1,2})", value)
    return match[1] if match is not None else Unreadable(f"{_EFA_FILE} names no version")


def efa_packages(files: Sections) -> Mapping[str, str]:
    """Packages of that list, ``name_version_architecture`` or ``name-version``; empty without the file."""
    value = files.get(_EFA_FILE)
    found: dict[str, str] = {}
    for word in value.split() if isinstance(value, str) else ():
        match = re.match(r"([a-z][a-z0-9+.-]{1,60}?)[_-]([0-9][0-9A-Za-z.+~-]{0,60})", word)
        if match is not None and not word.startswith("#"):
            found.setdefault(match[1], match[2])
    return found
