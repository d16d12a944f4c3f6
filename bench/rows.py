"""The one form of a benchmark's result, as a table for people and as JSON lines of one list for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["UNITS", "Row", "table", "write"]

UNITS = {"cpu": ("s", "ms/host"), "wall": ("s",), "rss": ("MB",), "state": ("MB",), "alloc": ("%",), "rate": ("1/s",)}
UNITS |= {"gap": ("%",), "latency": ("ms",), "count": ("1",)}
"""What may be measured, and in which unit."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One measurement. ``peer`` None: no peer runs here on the same work."""

    case: str
    """Number of nodes, or the name of a trace."""
    what: str
    unit: str
    ours: float
    peer: float | None = None
    peer_name: str | None = None
    """As its project writes it."""

    def __post_init__(self) -> None:
        if self.unit not in UNITS.get(self.what, ()):
            raise ValueError(f"{self.what} in {self.unit} is no known measurement: {UNITS}")
        if (self.peer is None) != (self.peer_name is None):
            raise ValueError("give a peer with its name, or neither")


def table(rows: Sequence[Row]) -> str:
    """Aligned columns; the factor is the peer's figure over ours."""
    lines = [("case", "what", "unit", "ours", "peer", "peer name", "factor")]
    for row in rows:
        factor = f"{row.peer / row.ours:.1f}" if row.peer is not None and row.ours else ""
        peer = _figure(row.peer) if row.peer is not None else "–"
        lines.append((row.case, row.what, row.unit, _figure(row.ours), peer, row.peer_name or "–", factor))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def write(rows: Iterable[Row], path: Path) -> None:
    """The rows as a JSON list."""
    path.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
