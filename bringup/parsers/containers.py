"""Container stack: NVIDIA's toolkit and its mode, CDI files, containerd, runc, the CRI, Docker."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bringup.parsers import texts
from bringup.parsers.records import Record
from bringup.parsers.texts import Raw
from pinsets.facts import ABSENT, Absent, Unreadable

__all__ = ["cdi", "cdi_files", "container_cli", "containerd", "cri", "docker", "runtime_mode"]

_LIBCUDA = re.compile(r"libcuda\.so\.([0-9]{2,4}(?:\.[0-9]{1,4}){1,2})\b")


def container_cli(record: Record | Unreadable) -> Mapping[str, str] | Absent | Unreadable:
    """``nvidia-container-cli --version`` → ``cli`` and ``lib``: two packages, which may differ."""
    answer = texts.given(record)
    if not isinstance(answer, Record):
        return answer
    entries = {key.lower(): value for key, value in texts.key_values(answer.text)}
    found = {name: entries.get(f"{name}-version", "") for name in ("cli", "lib")}
    found = {name: value for name, value in found.items() if texts.VERSION.fullmatch(value)}
    return found or Unreadable(answer.complaint)


def containerd(record: Record | Unreadable) -> Raw:
    """``containerd github.com/containerd/containerd/v2 v2.2.4 5e4…``: the word that is a version, not the path."""
    answer = texts.given(record)
    if not isinstance(answer, Record):
        return answer
    for word in answer.text.split():
        bare = word.removeprefix("v")
        if texts.VERSION.fullmatch(bare):
            return bare
    return Unreadable(answer.complaint)


def cri(record: Record | Unreadable) -> tuple[str | None, Raw]:
    """``crictl version`` → (runtime's name, its version). The first line, ``Version: 0.1.0``, is the protocol."""
    answer = texts.given(record)
    if not isinstance(answer, Record):
        return None, answer
    entries = dict(texts.key_values(answer.text))
    version = entries.get("RuntimeVersion", "").removeprefix("v")
    name = entries.get("RuntimeName") or None
    return (name, version) if texts.VERSION.fullmatch(version) else (name, Unreadable(answer.complaint))


def docker(record: Record | Unreadable) -> Raw:
    """``docker version --format '{{json .}}'`` (the server's version, else the client's), or ``docker --version``."""
    answer = texts.given(record)
    if not isinstance(answer, Record):
        return answer
    document = texts.json_of(answer)
    if isinstance(document, dict):
        for side in ("Server", "Client"):
            part = document.get(side)
            version = texts.known(part.get("Version")) if isinstance(part, dict) else None
            if version and texts.VERSION.fullmatch(version):
                return version
    return texts.tool_version(answer, "version")


def cdi(text: str | None) -> Raw:
    """Driver that a CDI file was made for, by the libcuda it names; two drivers in it are unreadable."""
    if text is None:
        return ABSENT
    found: list[str] = sorted(set(_LIBCUDA.findall(text)))
    if len(found) == 1:
        return found[0]
    return Unreadable(f"CDI files name {', '.join(found)}" if found else "the CDI file names no libcuda")


def cdi_files(record: Record | Unreadable) -> tuple[Raw, str]:
    """``FILE:…libcuda.so.VERSION`` lines of every CDI file → (version, the files, comma-joined)."""
    answer = texts.given(record)
    if not isinstance(answer, Record):
        return answer, ""
    files = texts.distinct(line.partition(":")[0] for line in answer.text.splitlines() if line.startswith("/"))
    if not answer.text.strip():
        return Unreadable(answer.complaint if answer.rc > 1 else "the CDI files name no libcuda"), files
    return cdi(answer.text), files


def runtime_mode(text: str | None) -> str | None:
    """``mode`` of [nvidia-container-runtime] in config.toml; None when it says none (then the version's default)."""
    section = ""
    for line in (text or "").splitlines():
        bare = line.partition("#")[0].strip()
        head = re.fullmatch(r"\[([A-Za-z0-9._-]{1,100})\]", bare)
        if head is not None:
            section = head[1]
            continue
        value = re.fullmatch(r'mode\s*=\s*"([a-z]{1,20})"', bare)
        if value is not None and section == "nvidia-container-runtime":
            return value[1]
    return None
