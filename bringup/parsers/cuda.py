"""CUDA toolkit and cuDNN: version.json, version.txt, nvcc, cudnn_version.h, CUDA numbers in logs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from bringup.parsers import host, texts
from bringup.parsers.host import Sections
from bringup.parsers.records import Record
from bringup.parsers.texts import Raw
from pinsets.facts import Absent, Unreadable

__all__ = ["cudnn_header", "driver_integer", "nvcc", "toolkit", "toolkits"]


def toolkit(files: Sections) -> Raw:
    """/usr/local/cuda/version.json (``cuda.version``), before CUDA 11.1 version.txt."""
    value = host.file_of(files, "/usr/local/cuda/version.json")
    if isinstance(value, str):
        try:
            found = json.loads(value)["cuda"]["version"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return Unreadable("version.json names no cuda.version")
        return found if isinstance(found, str) and texts.VERSION.fullmatch(found) else Unreadable("version.json is odd")
    old = files.get("/usr/local/cuda/version.txt")
    match = re.search(r"CUDA Version ([0-9][0-9.]{0,40})", old) if isinstance(old, str) else None
    return match[1].rstrip(".") if match else value


def toolkits(files: Sections) -> tuple[str, ...]:
    """All /usr/local/cuda-X.Y folders, oldest first: some images ship four."""
    value = files.get("toolkits")
    names = value.split() if isinstance(value, str) else []
    return tuple(
        sorted((name for name in names if re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}", name)), key=texts.version_key)
    )


def nvcc(record: Record | Unreadable) -> Mapping[str, str] | Absent | Unreadable:
    """``nvcc --version`` → ``release`` (13.0) and ``build`` (13.0.88)."""
    answer = texts.given(record)
    if not isinstance(answer, Record):
        return answer
    match = re.search(r"release ([0-9]{1,3}\.[0-9]{1,3}), V([0-9]{1,3}(?:\.[0-9]{1,5}){1,3})", answer.text)
    return {"release": match[1], "build": match[2]} if match else Unreadable(answer.complaint)


def cudnn_header(text: str) -> Raw:
    """``#define CUDNN_MAJOR 9`` … → ``9.17.0``; all three must be there."""
    found = dict(re.findall(r"#define\s+CUDNN_(MAJOR|MINOR|PATCHLEVEL)\s+([0-9]{1,6})\b", text))
    parts = [found.get(name) for name in ("MAJOR", "MINOR", "PATCHLEVEL")]
    return ".".join(part for part in parts if part) if all(parts) else Unreadable("cudnn_version.h names no version")


def driver_integer(text: str) -> Raw:
    """``cudaDriverVersion 12080`` → 12.8: what the driver supports, by X*1000+Y*10."""
    match = re.search(r"(?:cudaDriverVersion )?\b([0-9]{4,6})\b", text)
    if match is None:
        return Unreadable("no CUDA number in it")
    number = int(match[1])
    return f"{number // 1000}.{number % 1000 // 10}"
