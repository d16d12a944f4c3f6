"""One rank's report: its form on the wire and on the shared folder, with limits that hold against a damaged one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

__all__ = ["BYTES", "VERSION", "Report", "from_json", "to_json"]

VERSION: Final = 1
BYTES: Final = 256 * 1024
"""A report has about 3 kB; a thousand times as much is no report."""
_TEXT: Final = 4096


@dataclass(frozen=True, slots=True)
class Report:
    """What one rank found in itself."""

    rank: int
    world: int
    host: str
    attempt: str
    """Its name; reports of another one are refused."""
    nonce: str
    """Random, of this very report: a verdict names the reports that it was made from."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Coordinate or ``variable NAME`` → value; ``absent`` is a value, what could not be read is in `unreadable`."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Coordinate → reason."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Coordinate → real file that it was read from."""
    mapped: bool = False
    """Whether the libraries were in the process already; False: what the loader gives this environment."""


def to_json(report: Report) -> bytes:
    """One line, keys sorted."""
    return json.dumps({"report": VERSION, **asdict(report)}, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def from_json(data: bytes) -> Report:
    """The inverse. Raises ValueError with a sentence for anything that is no whole report of this version."""
    if len(data) > BYTES:
        raise ValueError(f"more than {BYTES} bytes")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None
    if not isinstance(value, dict) or value.get("report") != VERSION:
        raise ValueError(f"no report of version {VERSION}: every rank needs the same lockstep")
    rank, world = value.get("rank"), value.get("world")
    if not (type(rank) is int and type(world) is int and 0 <= rank < world):
        raise ValueError(f"rank {rank!r} of {world!r}")
    return Report(
        rank=rank,
        world=world,
        host=_text(value, "host"),
        attempt=_text(value, "attempt"),
        nonce=_text(value, "nonce"),
        values=_texts(value, "values"),
        unreadable=_texts(value, "unreadable"),
        files=_texts(value, "files"),
        mapped=value.get("mapped") is True,
    )


def _text(value: Mapping[str, object], key: str) -> str:
    text = value.get(key)
    if not isinstance(text, str) or len(text) > _TEXT:
        raise ValueError(f"`{key}` is no short text")
    return text


def _texts(value: Mapping[str, object], key: str) -> dict[str, str]:
    found = value.get(key)
    if not isinstance(found, dict) or not all(isinstance(text, str) and len(text) <= _TEXT for text in found.values()):
        raise ValueError(f"`{key}` is no table of short texts")
    return found
