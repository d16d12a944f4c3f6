"""Where nodes stand, for a map: racks in order, and in each its nodes by position.

From the slots of the fleet file (``r1-u03`` stands in rack ``r1``); hosts without one are told apart by the text
before their number, a hundred to a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from bringup import audit
from lockstep.base.names import NodeName

__all__ = ["of"]

_ROW: Final = 100
"""Cells of a row: a wider one no longer fits a screen."""
Row = tuple[str, list[tuple[NodeName, str]]]


def of(pool: audit.PoolAudit) -> list[Row]:
    """(rack, [(node, slot)]) of every node compared, those out of service included."""
    slots = {node.name: str(node.slot) for node in pool.pool.nodes} if pool.pool is not None else {}
    found: dict[str, list[tuple[NodeName, str]]] = {}
    for name in (*pool.comparison.nodes, *pool.comparison.apart):
        slot = slots.get(name, name)
        found.setdefault(_rack(slot), []).append((name, slot))
    return [row for rack in sorted(found, key=_key) for row in _rows(rack, found[rack])]


def _rack(slot: str) -> str:
    """The part before the last dash or number; a slot that has neither is its own."""
    head, dash, _ = slot.rpartition("-")
    if dash:
        return head
    return re.sub(r"\d+$", "", slot) or slot


def _key(text: str) -> tuple[tuple[int, str], ...]:
    """``r2`` before ``r10``."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text))


def _rows(rack: str, members: list[tuple[NodeName, str]]) -> Iterator[Row]:
    ordered = iter(sorted(members, key=lambda pair: _key(pair[1])))
    while part := list(islice(ordered, _ROW)):
        yield (rack if len(members) <= _ROW else f"{rack} {part[0][1]}…"), part
