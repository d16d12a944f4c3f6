"""What is a change: declared inputs against those applied last, and everything that deviates.

Nothing is ever replaced: a pool is the same pool whatever is in it.
"""

from __future__ import annotations

import json
from typing import Final

from google.protobuf import struct_pb2

from stacks.provider import stubs

__all__ = ["compare"]

MAPS: Final = ("pins", "nodes")
VALUES: Final = ("lock", "fleet", "pool")
SKEW: Final = "skew"

Kind = stubs.provider.PropertyDiff.Kind


def compare(outputs: struct_pb2.Struct, old: struct_pb2.Struct, new: struct_pb2.Struct) -> stubs.provider.DiffResponse:
    """The engine's answer for a pool with ``outputs``, last applied inputs ``old`` and declared inputs ``new``.

    Every entry of ``skew`` is a deletion: that is what `up` sets out to do with it.
    """
    found: dict[str, stubs.provider.PropertyDiff] = {}
    for name in VALUES:
        if name in new.fields and old.fields[name] != new.fields[name]:
            found[name] = _change(Kind.UPDATE)
    for name in MAPS:
        # Compared whole first: in C, and equal in all but few runs.
        if old.fields[name] != new.fields[name]:
            _entries(name, old.fields[name].struct_value, new.fields[name].struct_value, found)
    for node, entry in sorted(outputs.fields[SKEW].struct_value.fields.items()):
        for coordinate in sorted(entry.struct_value.fields):
            path = f"{SKEW}[{json.dumps(node)}][{json.dumps(coordinate)}]"
            found[path] = stubs.provider.PropertyDiff(kind=Kind.DELETE, inputDiff=False)
    changes = stubs.provider.DiffResponse
    return stubs.provider.DiffResponse(
        changes=changes.DIFF_SOME if found else changes.DIFF_NONE,
        diffs=sorted({path.partition("[")[0] for path in found}),
        detailedDiff=found,
        hasDetailedDiff=True,
    )


def _entries(
    name: str, old: struct_pb2.Struct, new: struct_pb2.Struct, found: dict[str, stubs.provider.PropertyDiff]
) -> None:
    for key in sorted(set(old.fields) | set(new.fields)):
        if key not in old.fields:
            kind = Kind.ADD
        elif key not in new.fields:
            kind = Kind.DELETE
        elif old.fields[key] != new.fields[key]:
            kind = Kind.UPDATE
        else:
            continue
        found[f"{name}[{json.dumps(key)}]"] = _change(kind)


def _change(kind: stubs.provider.PropertyDiff.Kind.ValueType) -> stubs.provider.PropertyDiff:
    return stubs.provider.PropertyDiff(kind=kind, inputDiff=True)
