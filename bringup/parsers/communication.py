"""HPC-X, UCX, libfabric, EFA: version files and one-line versions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from bringup.parsers import host, loader, texts
from bringup.parsers.host import Sections
from bringup.parsers.loader import Libraries
from bringup.parsers.records import Record
from bringup.parsers.texts import Raw
from pinsets.facts import ABSENT, Absent, Unreadable

__all__ = ["efa_installer", "efa_packages", "hpcx", "libfabric", "libfabric_of", "ucx", "ucx_gdrcopy"]

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


_ABI: Final = MappingProxyType(
    {
        "FABRIC_1.0": "1.0",
        "FABRIC_1.1": "1.5",
        "FABRIC_1.2": "1.7",
        "FABRIC_1.3": "1.9",
        "FABRIC_1.4": "1.12",
        "FABRIC_1.5": "1.13",
        "FABRIC_1.6": "1.14",
        "FABRIC_1.7": "1.20",
        "FABRIC_1.8": "2.0",
        "FABRIC_1.9": "2.5",
    }
)
"""Version node of libfabric → the release that it came with: fabric(7), "ABI changes", of libfabric 2.6."""


def libfabric_of(node: str) -> str | None:
    """``FABRIC_1.7`` → ``1.20``: the oldest libfabric that a binary with this need can be loaded beside; None: newer
    than we know of.
    """
    return _ABI.get(node)


_GDRCOPY: Final = MappingProxyType(
    {
        "gdr_copy_to_mapping": "2.0",
        "gdr_copy_from_mapping": "2.0",
        "gdr_runtime_get_version": "2.0",
        "gdr_get_info_v2": "2.4",
        "gdr_get_attribute": "2.5",
        "gdr_get_mapping_type_string": "2.5",
        "gdr_map_v2": "2.5",
        "gdr_pin_buffer_v2": "2.5",
    }
)
"""Function of libgdrapi → the release whose header first has it: gdrapi.h of GDRCopy's tags 2.0 to 2.6."""


def ucx_gdrcopy(libraries: Libraries) -> str | None:
    """The oldest GDRCopy that has every function which UCX's modules bind; empty without such a module.

    None where nobody looked, or a module names no function of GDRCopy at all.
    """
    if libraries.gdrcopy_modules is None:
        return None
    bound = [name for path in libraries.gdrcopy_modules for name in loader.strings_of(libraries, path)]
    releases = [_GDRCOPY[name] for name in bound if name in _GDRCOPY]
    if releases:
        return max(releases, key=texts.version_key)
    return None if libraries.gdrcopy_modules else ""


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
