"""Durations and shares as people write them, to exact values."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

__all__ = ["Share", "parse_duration_seconds", "parse_share"]

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_UNITS = (86_400, 3_600, 60, 1)


def parse_duration_seconds(text: str) -> int:
    """``"30m"``, ``"1h30m"``, ``"45s"``, ``"2d"`` → whole seconds. Raises ValueError with an example."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not a duration; write for example 30m, 1h30m or 45s")
    return sum(int(value) * unit for value, unit in zip(match.groups(), _UNITS, strict=True) if value)


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a pool, as a percentage or a number of nodes."""

    percent: float | None
    count: int | None

    def nodes_of(self, total: int) -> int:
        """Number of nodes out of ``total``: rounded up, never below one, never above ``total``."""
        wanted = self.count if self.count is not None else math.ceil(total * (self.percent or 0) / 100)
        return min(max(wanted, 1), total)

    def __str__(self) -> str:
        return f"{self.percent:g}%" if self.percent is not None else str(self.count)


def parse_share(text: str | int) -> Share:
    """``"10%"`` or a number of nodes. Raises ValueError with an example."""
    if isinstance(text, int) and not isinstance(text, bool) and text > 0:
        return Share(None, text)
    if isinstance(text, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)%", text.strip())
        if match and 0 < float(match[1]) <= 100:
            return Share(float(match[1]), None)
        if text.strip().isdecimal() and int(text) > 0:
            return Share(None, int(text))
    raise ValueError(f"{text!r} is not a share; write for example 10% or 2")
