"""Libraries as the dynamic loader finds them, by real file: the `libraries` record.

    @paths               loader order: LD_LIBRARY_PATH of the logins first, then the cache of ldconfig
     libnccl.so.2 /opt/old/lib/libnccl.so.2
    @real                the same paths with every link followed
     /opt/old/lib/libnccl.so.2 /opt/old/lib/libnccl.so.2.23.4
    @ucx                 UCX's modules for GDRCopy, wherever they lie
     /usr/lib/x86_64-linux-gnu/ucx/libuct_cuda_gdrcopy.so.0
    @strings             what `grep -ao` found inside them, of UCX's modules the names of GDRCopy's functions
     /opt/old/lib/libnccl.so.2.23.4:NCCL version 2.23.4+cuda12.6

The first copy is the one that a program gets; all are listed, since another environment may order them otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bringup.parsers import texts
from bringup.parsers.records import Record
from bringup.parsers.texts import Raw
from pinsets.facts import ABSENT, Unreadable

__all__ = ["Libraries", "by_file_name", "cache", "copies", "highest_node", "read", "strings_of", "sublibraries"]

_SUFFIX = re.compile(r"\.so\.([0-9]{1,9}(?:\.[0-9]{1,9}){1,4})$")


@dataclass(frozen=True, slots=True)
class Libraries:
    """What the loader can find."""

    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Library name → its files in the loader's order."""
    real: Mapping[str, str] = field(default_factory=dict)
    """File → what it links to in the end."""
    strings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Real file → strings of interest inside it, in order."""
    header: str = ""
    """Lines of cudnn_version.h."""
    gdrcopy_modules: tuple[str, ...] | None = None
    """UCX's modules for GDRCopy; None: a reading that did not look for them."""

    def first(self, name: str) -> str | None:
        """Real file of the copy that a program gets; None without any."""
        paths = self.paths.get(name, ())
        return self.real.get(paths[0], paths[0]) if paths else None


def read(record: Record | Unreadable) -> Libraries | Unreadable:
    """The sections above; lines of odd form are skipped."""
    answer = texts.answered(record)
    if isinstance(answer, Unreadable):
        return answer
    parts = _sections(answer.text)
    if "paths" not in parts:
        return Unreadable(answer.complaint)
    paths: dict[str, list[str]] = {}
    for name, path in _pairs(parts, "paths"):
        if path not in paths.setdefault(name, []):
            paths[name].append(path)
    strings: dict[str, list[str]] = {}
    for line in parts.get("strings", ()):
        path, colon, text = line.partition(":")
        if colon and path.startswith("/"):
            strings.setdefault(path, []).append(text.strip()[:200])
    return Libraries(
        {name: tuple(found) for name, found in paths.items()},
        dict(_pairs(parts, "real")),
        {path: tuple(found) for path, found in strings.items()},
        "\n".join(parts.get("cudnn", ())),
        tuple(parts["ucx"]) if "ucx" in parts else None,
    )


def _sections(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.split("\n"):
        if line.startswith("@"):
            lines = found.setdefault(line[1:].strip(), [])
        elif line.strip():
            lines.append(line.strip())
    return found


def _pairs(parts: Mapping[str, list[str]], name: str) -> list[tuple[str, str]]:
    found = []
    for line in parts.get(name, ()):
        left, blank, right = line.partition(" ")
        if blank and right.startswith("/"):
            found.append((left, right.strip()))
    return found


def cache(text: str) -> Sequence[tuple[str, str, str]]:
    """``ldconfig -p`` → (name, architecture words, path) in the loader's order.

    ``libcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1``
    """
    matches = (re.fullmatch(r"\s*(\S{1,200}) \(([^)]{0,100})\) => (/.{1,300}?)\s*", line) for line in text.splitlines())
    return [(match[1], match[2], match[3]) for match in matches if match is not None]


def by_file_name(libraries: Libraries | Unreadable, name: str) -> Raw:
    """Version by the real file's suffix (``libcuda.so.580.105.08``); absent when the loader finds none."""
    if isinstance(libraries, Unreadable):
        return libraries
    path = libraries.first(name)
    if path is None:
        return ABSENT
    match = _SUFFIX.search(path)
    return match[1] if match is not None else Unreadable(f"{path} names no version")


def copies(libraries: Libraries | Unreadable, name: str) -> tuple[str, ...]:
    """Real files of every copy, in the loader's order, each once."""
    if isinstance(libraries, Unreadable):
        return ()
    return tuple(dict.fromkeys(libraries.real.get(path, path) for path in libraries.paths.get(name, ())))


def strings_of(libraries: Libraries | Unreadable, path: str | None) -> tuple[str, ...]:
    """Strings found inside a real file."""
    return () if isinstance(libraries, Unreadable) or path is None else libraries.strings.get(path, ())


def sublibraries(libraries: Libraries | Unreadable, prefix: str) -> Mapping[str, str]:
    """Real version of every library whose name begins with ``prefix``: those of cuDNN must all be one."""
    if isinstance(libraries, Unreadable):
        return {}
    found = {name: by_file_name(libraries, name) for name in libraries.paths if name.startswith(prefix)}
    return {name: version for name, version in found.items() if isinstance(version, str)}


def highest_node(strings: Sequence[str], prefix: str) -> str | None:
    """The highest version node that a library exports (``EFA_1.3``, ``FABRIC_1.7``); None without any."""
    nodes = [text for text in strings if re.fullmatch(re.escape(prefix) + r"_[0-9]{1,4}(\.[0-9]{1,4}){1,2}", text)]
    return max(nodes, key=texts.version_key) if nodes else None
