"""Protobuf structs to plain values and back, and the failure that keeps what is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import any_pb2, struct_pb2

from stacks.provider import stubs

__all__ = ["INIT_FAILED", "init_failure", "plain", "struct", "text"]

INIT_FAILED = "grpc-status-details-bin"
"""Trailer in which gRPC carries the details of a status."""

UNKNOWN_CODE = 2
"""gRPC's UNKNOWN, which the engine expects beside an init failure."""


def plain(value: struct_pb2.Struct) -> dict[str, Any]:
    """A struct as dicts, lists, strings, floats and bools."""
    return {key: _plain(item) for key, item in value.fields.items()}


def _plain(value: struct_pb2.Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return plain(value.struct_value)
    if kind == "list_value":
        return [_plain(item) for item in value.list_value.values]
    return None if kind in (None, "null_value") else getattr(value, kind)


def text(value: struct_pb2.Struct, key: str) -> str:
    """The string at ``key``; empty when there is none or it is of another kind."""
    return value.fields[key].string_value if key in value.fields else ""


def struct(values: Mapping[str, Any]) -> struct_pb2.Struct:
    """Plain values as a struct."""
    made = struct_pb2.Struct()
    made.update(values)
    return made


def init_failure(
    identity: str, properties: struct_pb2.Struct, inputs: struct_pb2.Struct, reasons: Sequence[str]
) -> bytes:
    """The serialised status of a resource that exists but is half finished.

    The engine then keeps id, properties and inputs, shows the reasons, and updates it next time.
    """
    failed = stubs.provider.ErrorResourceInitFailed(
        id=identity, properties=properties, inputs=inputs, reasons=reasons, refresh_before_update=True
    )
    detail = any_pb2.Any()
    detail.Pack(failed)
    message = "; ".join(reasons) or "the pool is half finished"
    return bytes(stubs.status.Status(code=UNKNOWN_CODE, message=message, details=[detail]).SerializeToString())
