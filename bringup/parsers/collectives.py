"""NCCL, RCCL, their plugins and environments: integers, strings inside files, log lines.

A file can be renamed and a package database can name what nobody loads; the string inside the library is what counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from bringup.parsers import loader, texts
from bringup.parsers.loader import Libraries
from bringup.parsers.records import Record
from bringup.parsers.texts import Raw
from pinsets.facts import ABSENT, Unreadable

__all__ = [
    "integer",
    "libfabric_node",
    "library",
    "nccl_record",
    "nccl_string",
    "plugin_needs",
    "plugin_versions",
    "plugins",
    "rccl_log",
]

_STRING = re.compile(r"(?:R|N)CCL version\s?:? ?([0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4})([0-9A-Za-z.+-]{0,60})")
_ABI = re.compile(r"nccl([A-Za-z]{1,20})(?:Plugin)?_v([0-9]{1,3})")
_PLUGIN_NAME = re.compile(
    r"lib[nr]ccl-(net|tuner|profiler|env)[A-Za-z0-9_.-]{0,60}\.so[0-9.]{0,20}|lib(ofi-nccl)[a-z0-9_-]{0,20}"
)


def integer(text: str) -> Raw:
    """``22902`` → 2.29.2 and ``2708`` → 2.7.8: X*10000+Y*100+Z from 2.9 on, X*1000+Y*100+Z before (nccl.h.in)."""
    match = re.fullmatch(r"\s*([0-9]{4,6})\s*", text)
    if match is None:
        return Unreadable(f"not NCCL's integer: {text.strip()[:60]!r}")
    number = int(match[1])
    base = 10_000 if number >= 10_000 else 1_000
    return f"{number // base}.{number % base // 100}.{number % 100}"


def nccl_string(text: str) -> Mapping[str, str] | Unreadable:
    """``NCCL version 2.30.7+cuda13.3``, ``… 2.26.2 compiled with CUDA 12.6`` → ``version``, ``cuda``, ``build``."""
    match = _STRING.search(text)
    if match is None:
        return Unreadable("no version of NCCL in it")
    found = {"version": match[1]}
    if match[2]:
        found["build"] = match[2].lstrip("+-")
    cuda = re.search(r"\+cuda([0-9]{1,3}\.[0-9]{1,3})", match[2]) or re.search(
        r"compiled with CUDA ([0-9]{1,3}\.[0-9]{1,3})", text[match.end() :]
    )
    if cuda is not None:
        found["cuda"] = cuda[1]
    return found


def rccl_log(text: str) -> Mapping[str, str] | Unreadable:
    """Lines of NCCL_DEBUG=VERSION → ``rccl``, ``hip``, ``rocm``, ``path``; also the old single line (``+hip5.6``)."""
    found: dict[str, str] = {}
    names = {"RCCL version": "rccl", "HIP version": "hip", "ROCm version": "rocm", "Librccl path": "path"}
    for key, value in texts.key_values(text):
        name = names.get(" ".join(key.split()))
        if name == "path":
            found[name] = value[:300]
        elif name is not None and (match := re.match(r"[0-9]{1,4}(\.[0-9]{1,9}){1,3}", value)):
            found[name] = _three(match[0]) if name == "rocm" else match[0]
    old = re.search(r"RCCL version ([0-9]{1,4}(?:\.[0-9]{1,4}){1,2})(?:\+hip([0-9]{1,4}(?:\.[0-9]{1,4})*))?", text)
    if old is not None:
        found.setdefault("rccl", old[1])
        if old[2]:
            found.setdefault("hip", old[2])
    return found or Unreadable("no version of RCCL in it")


def _three(version: str) -> str:
    """ROCm prints four parts (``6.4.0.0``); its releases have three."""
    return ".".join(version.split(".")[:3])


def library(libraries: Libraries | Unreadable, name: str) -> tuple[Raw, str | None]:
    """(version with its build, real file) of the copy of ``libnccl.so.2`` or ``librccl.so.1`` that a program gets.

    The string inside counts; without it the file's own name is taken.
    """
    if isinstance(libraries, Unreadable):
        return libraries, None
    path = libraries.first(name)
    if path is None:
        return ABSENT, None
    for text in loader.strings_of(libraries, path):
        match = _STRING.search(text)
        if match is not None:
            return match[1] + match[2], path
    by_name = loader.by_file_name(libraries, name)
    return (by_name if isinstance(by_name, str) else Unreadable(f"{path} names no version, inside or outside")), path


def nccl_record(record: Record | Unreadable) -> tuple[Raw, str | None]:
    """The older `nccl` record: the real file, then the string inside it. Kept for outputs gathered by older probes."""
    if isinstance(record, Unreadable):
        return record, None
    lines = [line.strip() for line in record.text.splitlines() if line.strip()]
    if not lines:
        return (ABSENT if record.rc == 0 else Unreadable(record.complaint)), None
    path = lines[0]
    found = Libraries({"libnccl.so.2": (path,)}, {}, {path: tuple(lines[1:])})
    return library(found, "libnccl.so.2")


def plugins(libraries: Libraries | Unreadable) -> Raw:
    """Net, tuner and profiler plugins on the loader path with their newest ABI: ``libnccl-net.so:net-v10 …``, sorted.

    An ABI level is a symbol ``ncclNetPlugin_v10``; NCCL takes the newest that it knows itself.
    """
    if isinstance(libraries, Unreadable):
        return libraries
    found = []
    for name in libraries.paths:
        if _PLUGIN_NAME.fullmatch(name) is None:
            continue
        levels: dict[str, int] = {}
        for text in loader.strings_of(libraries, libraries.first(name)):
            match = _ABI.fullmatch(text)
            if match is not None:
                kind = match[1].removesuffix("Plugin").lower()
                levels[kind] = max(levels.get(kind, 0), int(match[2]))
        words = ",".join(f"{kind}-v{level}" for kind, level in sorted(levels.items()))
        found.append(f"{name}:{words or '?'}")
    return " ".join(sorted(found)) if found else ABSENT


_SIGNATURES: Mapping[str, re.Pattern[str]] = {
    "aws-ofi-nccl": re.compile(r"aws-ofi-(?:nccl|rccl) v?([0-9]{1,4}(?:\.[0-9]{1,4}){1,2}(?:-aws)?)"),
    "nccl-gib": re.compile(r"gIB(?: version)? v?([0-9]{1,4}(?:\.[0-9]{1,4}){1,2})"),
    "nccl-sharp": re.compile(r"nccl-rdma-sharp-plugins[ -]v?([0-9]{1,4}(?:\.[0-9]{1,4}){1,2})"),
}


def plugin_versions(libraries: Libraries | Unreadable) -> Mapping[str, str]:
    """Version that a plugin carries inside itself, by component: aws-ofi-nccl's PACKAGE_STRING; others inferred."""
    if isinstance(libraries, Unreadable):
        return {}
    texts_inside: Iterable[str] = (text for found in libraries.strings.values() for text in found)
    found: dict[str, str] = {}
    for text in texts_inside:
        for component, pattern in _SIGNATURES.items():
            match = pattern.search(text)
            if match is not None:
                found.setdefault(component, match[1])
    return found


def libfabric_node(libraries: Libraries) -> str | None:
    """Version node of libfabric that aws-ofi-nccl binds; empty without that plugin, None where it names no node."""
    found: list[str] = []
    there = False
    for name in libraries.paths:
        inside = loader.strings_of(libraries, libraries.first(name)) if _PLUGIN_NAME.fullmatch(name) else ()
        if any(_SIGNATURES["aws-ofi-nccl"].search(text) for text in inside):
            there = True
            found += [node] if (node := loader.highest_node(inside, "FABRIC")) else []
    if found:
        return max(found, key=texts.version_key)
    return None if there else ""


def plugin_needs(libraries: Libraries | Unreadable) -> tuple[str, ...]:
    """Highest version node of each library that the plugins ask for: ``EFA_1.4``, ``FABRIC_1.7``, sorted."""
    if isinstance(libraries, Unreadable):
        return ()
    asked = {
        text
        for name in libraries.paths
        if _PLUGIN_NAME.fullmatch(name) is not None
        for text in loader.strings_of(libraries, libraries.first(name))
    }
    found = (loader.highest_node(sorted(asked), prefix) for prefix in ("EFA", "FABRIC", "IBVERBS", "MLX5"))
    return tuple(node for node in found if node is not None)
