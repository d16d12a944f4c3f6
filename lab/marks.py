"""What `lab break` noted on a machine, and what of it still holds.

One file per kind in the machine's ``faults`` folder. A note of a version fault has a line per package,
``PACKAGE OLD NEW``, that of removed holds a line ``PACKAGE``; others may change it afterwards (`lockstep up` mends it,
for one), and then the fault is over.
"""

from __future__ import annotations

import enum
import re
from pathlib import Path

from lab import liveness

__all__ = ["Kind", "noted", "standing"]


class Kind(enum.StrEnum):
    """The closed list of `lab break`."""

    OTHER_VERSION = "other-version"
    UPGRADED_NOT_REBOOTED = "upgraded-not-rebooted"
    GPU_FIRMWARE = "gpu-firmware"
    GPU_LOST = "gpu-lost"
    SSHD_HUNG = "sshd-hung"
    NODE_DEAD = "node-dead"
    HOST_KEY = "host-key"
    SMI_HANGS = "smi-hangs"
    NCCL_SHADOWED = "nccl-shadowed"
    HOLD_REMOVED = "hold-removed"
    DISK_FULL = "disk-full"


OF_PACKAGES = (Kind.OTHER_VERSION, Kind.UPGRADED_NOT_REBOOTED, Kind.HOLD_REMOVED)


def folder(state: Path, name: str) -> Path:
    """Where the node's notes lie."""
    return liveness.folder(state, name) / "machine" / "faults"


def noted(state: Path, name: str) -> tuple[Kind, ...]:
    """Every kind that was made and not undone by `lab mend`, sorted by name."""
    marks = folder(state, name)
    return tuple(Kind(kind) for kind in sorted(path.name for path in marks.iterdir())) if marks.is_dir() else ()


def standing(state: Path, name: str) -> tuple[Kind, ...]:
    """Those of `noted` that still hold: not the faults in packages that all are as they should be by now."""
    return tuple(kind for kind in noted(state, name) if kind not in OF_PACKAGES or _stands(state, name, kind))


def _stands(state: Path, name: str, kind: Kind) -> bool:
    rows = [line.split() for line in (folder(state, name) / kind).read_text().splitlines()]
    # The disk's own file and not a program inside the node: a node that is off or hangs has a status too.
    status = state / "disks" / name / "upper" / "var/lib/dpkg/status"
    if not status.is_file():
        return True
    installed = _installed(status.read_text(encoding="utf-8", errors="replace"))
    if kind is Kind.HOLD_REMOVED:
        return any(installed.get(row[0], ("", True))[1] is False for row in rows)
    return any(installed.get(package, ("", False))[0] == now for package, _, now in rows)


def _installed(status: str) -> dict[str, tuple[str, bool]]:
    """Package → version and whether it is held, of dpkg's status file."""
    found = {}
    for entry in status.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Status|Version): (.*)$", entry, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            found[fields["Package"]] = (fields["Version"], fields["Status"].startswith("hold "))
    return found
