"""A pinset as it holds once its bases are merged in, with the line that gave each pin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pinsets.model import Pinset

__all__ = ["Origin", "Resolved"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The line that gave a value."""

    path: str
    line: int | None

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line is not None else self.path


@dataclass(frozen=True, slots=True)
class Resolved:
    """A pinset with what it inherits."""

    pinset: Pinset
    """Its pins and those of its bases, nearest first; `base` as written."""
    origins: Mapping[str, Origin]
    """Component → file and line of the pin that holds."""
    chain: tuple[str, ...]
    """The pinset, its base, that one's base …"""
