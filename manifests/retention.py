"""Which objects outlive their component: what others' objects or nodes hang on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["DRIVER_LABEL", "retained"]

DRIVER_LABEL: Final = "lockstep.dev/driver"
"""Label with the value ``true`` on DaemonSets of device drivers."""

# Deleting a CRD deletes every object of its kind, a Namespace everything in it; a missing
# DeviceClass leaves the pods of its claims pending; a missing driver ends jobs on its nodes.
_KINDS: Final = frozenset({"CustomResourceDefinition", "Namespace", "DeviceClass"})


def retained(obj: Mapping[str, Any]) -> bool:
    """Whether the object stays in the cluster when it, its component or the stack is deleted."""
    if obj["kind"] in _KINDS:
        return True
    labels = obj.get("metadata", {}).get("labels") or {}
    return obj["kind"] == "DaemonSet" and labels.get(DRIVER_LABEL) == "true"
