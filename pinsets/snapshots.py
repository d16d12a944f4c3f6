"""Snapshots as JSON lines and back: one line per node, equal fact sets written once.

    {"snapshot": 1, "taken_at": 1767222000.0}
    {"set": 0, "facts": [["driver@running", "ssh:/sys/module/nvidia/version", "580.105.08"], …]}
    {"keys": 0, "names": ["fabric.clique", "gpus", …]}
    {"node": "gpu-001", "at": 1767222000.4, "set": 0, "keys": 0, "values": ["32766", "gpu0,gpu1", …], …}

A fact is ``[coordinate, source]`` when absent, ``[coordinate, source, value]`` or with a
fourth entry ``raw`` where it differs, ``[coordinate, source, null, reason]`` when unreadable.
Nodes that share a set share one mapping after `decode` too, so that comparing 100,000 of
them looks at each distinct set once. Lines of a kind that is not known are refused: half
a snapshot is none.
"""

from __future__ import annotations

import functools
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

from lockstep.base import collection, errors, replacing
from lockstep.base.names import NodeName
from pinsets.facts import ABSENT, Absent, Coordinate, Fact, NodeFacts, Observation, Snapshot, Unreadable, Version

__all__ = ["decode", "encode", "read", "write"]

FORM: Final = 1
"""Number of this form; a reader refuses another one."""
GZIP_LEVEL: Final = 4
"""Higher ones cost more time than they save on these lines."""
_GZIP: Final = b"\x1f\x8b"
_LONGEST: Final = 4 * 1024**3
"""Bytes when unpacked: a snapshot of 100,000 nodes has a tenth of it; a packed file of a few MB can hold any number."""
_PIECE: Final = 16 * 1024**2

_dumps = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def encode(snapshot: Snapshot) -> Iterator[str]:
    """The snapshot as lines, each without its newline."""
    yield _dumps({"snapshot": FORM, "taken_at": snapshot.taken_at})
    sets: dict[tuple[Fact, ...], int] = {}
    by_identity: dict[int, int] = {}
    keys: dict[tuple[str, ...], int] = {}
    for node in snapshot.nodes.values():
        entry: dict[str, Any] = {"node": node.node, "at": node.observed_at}
        number = by_identity.get(id(node.facts))
        if number is None:
            content = tuple(node.facts.values())
            number = sets.get(content)
            if number is None:
                number = sets[content] = len(sets)
                yield _dumps({"set": number, "facts": [_encode_fact(fact) for fact in content]})
            # The snapshot holds every mapping while this runs, so an identity stays one mapping's.
            by_identity[id(node.facts)] = number
        entry["set"] = number
        if node.attributes:
            names = tuple(node.attributes)
            if names not in keys:
                keys[names] = len(keys)
                yield _dumps({"keys": keys[names], "names": names})
            entry["keys"] = keys[names]
            entry["values"] = list(node.attributes.values())
        if node.others:
            entry["others"] = [_encode_fact(fact) for fact in node.others]
        for name in ("unreachable", "boot_id", "serial", "busy", "admission"):
            value = getattr(node, name)
            if value is not None:
                entry[name] = dict(value) if isinstance(value, Mapping) else value
        yield _dumps(entry)


def _encode_fact(fact: Fact) -> list[str | None]:
    head: list[str | None] = [str(fact.coordinate), fact.source]
    seen = fact.observation
    if isinstance(seen, Version):
        return [*head, seen.value] if seen.raw == seen.value else [*head, seen.value, seen.raw]
    return head if isinstance(seen, Absent) else [*head, None, seen.reason]


@collection.paused()
def decode(lines: Iterable[str], place: str = "snapshot") -> Snapshot:
    """The inverse of `encode`. Raises `errors.InputError` naming ``place`` and the line for anything else."""
    taken_at: float | None = None
    sets: dict[int, dict[Coordinate, Fact]] = {}
    keys: dict[int, list[str]] = {}
    nodes: dict[NodeName, NodeFacts] = {}
    count = 0
    try:
        for count, line in enumerate(lines, start=1):  # noqa: B007 - the last one is named below
            entry = json.loads(line)
            if "node" in entry:
                node = _decode_node(entry, sets, keys)
                nodes[node.node] = node
            elif "facts" in entry:
                facts = [_decode_fact(*fact) for fact in entry["facts"]]
                sets[entry["set"]] = {fact.coordinate: fact for fact in facts}
            elif "names" in entry:
                keys[entry["keys"]] = entry["names"]
            elif entry.get("snapshot") == FORM:
                taken_at = float(entry["taken_at"])
            else:
                raise ValueError("a line of another form")
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise errors.InputError(
            f"this is no stored snapshot: line {count}: {type(error).__name__}: {error}",
            place=place,
            hint="read the fleet anew with `lockstep audit`",
        ) from error
    if taken_at is None:
        raise errors.InputError("this is no stored snapshot: its first line is missing", place=place)
    return Snapshot(taken_at, nodes)


def _decode_node(
    entry: dict[str, Any], sets: Mapping[int, Mapping[Coordinate, Fact]], keys: Mapping[int, list[str]]
) -> NodeFacts:
    busy = entry.get("busy")
    names = keys[entry["keys"]] if "keys" in entry else ()
    return NodeFacts(
        NodeName(entry["node"]),
        float(entry["at"]),
        sets[entry["set"]],
        entry.get("unreachable"),
        entry.get("boot_id"),
        entry.get("serial"),
        tuple(busy) if busy is not None else None,
        entry.get("admission"),
        dict(zip(names, entry["values"], strict=True)) if names else {},
        tuple(_decode_fact(*fact) for fact in entry.get("others", ())),
    )


_coordinate = functools.lru_cache(maxsize=65_536)(Coordinate.parse)


def _decode_fact(coordinate: str, source: str, value: str | None = None, more: str | None = None) -> Fact:
    seen: Observation
    if value is not None:
        seen = Version(value, more if more is not None else value)
    else:
        seen = Unreadable(more) if more is not None else ABSENT
    return Fact(_coordinate(coordinate), seen, source)


def write(path: Path, snapshot: Snapshot) -> None:
    """Write the file (gzip, 0600) whole or not at all. Raises `errors.EngineError` when it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise errors.EngineError(f"cannot write {path}: {error.strerror}", hint="see space and rights there") from error
    # A fixed time, so that the same snapshot is the same file.
    with (
        replacing.opened(path) as file,
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=GZIP_LEVEL, mtime=0, filename="") as packed,
    ):
        for chunk in _chunks(encode(snapshot)):
            packed.write(chunk)


def _chunks(lines: Iterable[str], size: int = 512) -> Iterator[bytes]:
    """Lines joined, since a write into gzip costs more than a line is worth."""
    held: list[str] = []
    for line in lines:
        held.append(line)
        if len(held) == size:
            yield ("\n".join(held) + "\n").encode()
            held = []
    if held:
        yield ("\n".join(held) + "\n").encode()


def _whole(file: IO[bytes] | gzip.GzipFile, place: str) -> bytes:
    """All of it, in pieces, so that what unpacks without end is given up in time."""
    data = bytearray()
    while piece := file.read(_PIECE):
        data += piece
        if len(data) > _LONGEST:
            raise errors.InputError(f"is longer than {_LONGEST} bytes", place=place)
    return bytes(data)


def read(path: Path) -> Snapshot:
    """A stored snapshot, packed or not. Raises `errors.InputError` when there is none at ``path`` or it is damaged."""
    try:
        with path.open("rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            text = _whole(gzip.GzipFile(fileobj=file) if packed else file, str(path)).decode()
    except FileNotFoundError:
        raise errors.InputError("there is no such snapshot", place=str(path)) from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise errors.InputError(f"cannot be read: {reason}", place=str(path)) from error
    return decode(text.removesuffix("\n").split("\n"), str(path))
