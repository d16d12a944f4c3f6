"""Changing one node's entry in a fleet file's text, all other lines left as they are. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from lockstep.base import errors, hostranges, spans

__all__ = ["update_node"]

_NAME = re.compile(r"[A-Za-z][-A-Za-z0-9._]*")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
_RANGE = re.compile(r"[A-Za-z][-A-Za-z0-9._\[\],]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""What one YAML reader or another takes for something else than a string."""

_RANGED = ("slot", "address", "serial")
"""Values of an entry that unfold beside its key."""


def update_node(text: str, name: str, values: dict[str, str | int | None], *, place: str) -> str:
    """``text`` with ``values`` set in the entry of one node; None removes a key.

    A node that stands in a host range gets an entry of its own between what is left
    of the range, in the same order and style. Raises `errors.InputError` when the
    file has no such node.
    """
    nodes, key, value, names = _find(text, name, place)
    if len(names) == 1:
        return _set(text, value, values)
    index = names.index(name)
    parts = [names[:index], names[index : index + 1], names[index + 1 :]]
    pieces = [
        _piece(text, key, value, names, part, values if part == [name] else {}, nodes.flow) for part in parts if part
    ]
    joint = ", " if nodes.flow else "\n" + " " * key.column
    return text[: key.start] + joint.join(pieces) + text[value.end :]


def _find(text: str, name: str, place: str) -> tuple[spans.Mapping, spans.Scalar, spans.Mapping, list[str]]:
    root = spans.parse(text, place)
    pools = root.get("pools") if isinstance(root, spans.Mapping) else None
    for pool in pools.items if isinstance(pools, spans.Sequence) else ():
        nodes = pool.get("nodes") if isinstance(pool, spans.Mapping) else None
        if not isinstance(nodes, spans.Mapping):
            continue
        for key, value in nodes.entries:
            names = hostranges.unfold(key.value, place=place)
            if name in names and isinstance(value, spans.Mapping):
                return nodes, key, value, names
    raise errors.InputError(f"the file has no entry for node {name} that can be edited", place=place)


def _piece(
    text: str,
    key: spans.Scalar,
    value: spans.Mapping,
    names: Sequence[str],
    part: Sequence[str],
    values: dict[str, str | int | None],
    flow: bool,
) -> str:
    """The entry's own text for some of its names: same style, ranges narrowed."""
    indices = [names.index(one) for one in part]
    narrowed: dict[str, str | int | None] = {}
    for ranged in _RANGED:
        found = value.get(ranged)
        if isinstance(found, spans.Scalar):
            unfolded = hostranges.unfold(found.value)
            if len(unfolded) == len(names):
                narrowed[ranged] = _fold([unfolded[index] for index in indices])
    entry = text[value.start : value.end]
    moved = _shift(value, -value.start)
    for ranged, folded in narrowed.items():
        entry = _set(entry, moved, {ranged: folded})
        moved = _reparsed(entry, value)
    if values:
        entry = _set(entry, moved, values)
    between = text[key.end : value.start]
    return f"{_quoted(_fold(part), flow=flow)}{between}{entry}"


def _fold(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else hostranges.fold(names)


def _reparsed(entry: str, value: spans.Mapping) -> spans.Mapping:
    """Positions in an entry's own text. Its first line lacks the indentation that the others have."""
    found = spans.parse(" " * value.column + entry, "the entry")
    assert isinstance(found, spans.Mapping)  # noqa: S101 - it was one before a scalar in it was replaced
    return _shift(found, -value.column)


def _shift(value: spans.Mapping, by: int) -> spans.Mapping:
    def moved(one: spans.Value) -> spans.Value:
        if isinstance(one, spans.Scalar):
            return spans.Scalar(one.start + by, one.end + by, one.column, one.value)
        if isinstance(one, spans.Sequence):
            return spans.Sequence(one.start + by, one.end + by, one.column, tuple(moved(item) for item in one.items))
        return _shift(one, by)

    entries = tuple(
        (spans.Scalar(key.start + by, key.end + by, key.column, key.value), moved(inner))
        for key, inner in value.entries
    )
    return spans.Mapping(value.start + by, value.end + by, value.column, value.flow, entries)


def _set(text: str, entry: spans.Mapping, values: dict[str, str | int | None]) -> str:
    """Values replaced in place, new ones put at the entry's end, from the last to the first so that offsets hold."""
    edits: list[tuple[int, int, str]] = []
    added: list[str] = []
    for name, value in values.items():
        found = entry.get(name)
        if value is None:
            if found is not None:
                edits.append(_removal(text, entry, name))
        elif found is not None:
            edits.append((found.start, found.end, _written(value)))
        else:
            added.append(f"{name}: {_written(value)}")
    if added:
        joint = ", " if entry.flow else "\n" + " " * entry.column
        end = entry.entries[-1][1].end if entry.entries else entry.start + 1
        edits.append((end, end, (joint if entry.entries else "") + joint.join(added)))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _removal(text: str, entry: spans.Mapping, name: str) -> tuple[int, int, str]:
    index = next(number for number, (key, _) in enumerate(entry.entries) if key.value == name)
    key, value = entry.entries[index]
    if index > 0:
        return entry.entries[index - 1][1].end, value.end, ""
    following = entry.entries[index + 1][0].start if index + 1 < len(entry.entries) else value.end
    return key.start, following, ""


def _written(value: str | int) -> str:
    return str(value) if isinstance(value, int) else _quoted(value, flow=True)


def _quoted(text: str, *, flow: bool) -> str:
    """Plain where every reader takes it for the same string, else in double quotes."""
    if text.lower() in _WORDS:
        return json.dumps(text)
    if _NAME.fullmatch(text) or _ADDRESS.fullmatch(text) or (not flow and _RANGE.fullmatch(text)):
        return text
    return json.dumps(text)
