"""The stages of bring-up, in order. Each is an act and a verify; the verify reads facts anew."""

from __future__ import annotations

import enum

__all__ = ["Stage"]


class Stage(enum.StrEnum):
    """Closed list, also the words of journal and reports."""

    DISCOVER = "discover"
    """Read the node; no act."""
    DRIVER = "driver"
    """Packages of the lock, held; reboot when running differs from disk and the disk equals the lock."""
    JOIN = "join"
    """The kubelet registers the Node, with our taint."""
    VERIFY = "verify"
    """Facts read anew equal the lock in every pinned coordinate."""
    ADMIT = "admit"
    """Admission file on the node, journal, and the Node's taint lifted."""
