"""What each kind of `lab break` shows as, in an audit and in a preview: one entry for every kind that the lab knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lab.faults import Kind

__all__ = ["SHOWN", "Shown"]


@dataclass(frozen=True)
class Shown:
    """The node's verdict and the finding that names the fault; words are regular expressions."""

    verdict: str
    id: str
    """The finding's kind, whole."""
    word: str
    """Coordinate; of a finding about the node as a whole its kind."""
    observed: str
    expected: str | None
    """None: the node as a whole, with a reason."""
    options: Mapping[str, str] = field(default_factory=dict)


SHOWN: Final[Mapping[str, Shown]] = {
    Kind.OTHER_VERSION: Shown("drifted", "pin.nccl", r"nccl@library", r"2\.30\.7", r"2\.28\.9"),
    Kind.UPGRADED_NOT_REBOOTED: Shown("drifted", "pin.driver", r"driver@ondisk", r"580\.126\.20", r"580\.105\.08"),
    Kind.GPU_FIRMWARE: Shown(
        "drifted",
        "pin.firmware.gpu",
        r"firmware\.gpu\[gpu1\]@running",
        r"97\.\S+6A",
        r"97\.\S+69",
        {"slot": "gpu1"},
    ),
    Kind.GPU_LOST: Shown("drifted", "instance.missing", r"gpu\[gpu2\]@running", "missing", "present", {"slot": "gpu2"}),
    Kind.SSHD_HUNG: Shown("unreachable", "unreachable", "unreachable", "no banner: TCP opened", None),
    Kind.NODE_DEAD: Shown("unreachable", "unreachable", "unreachable", "refused: nothing listens", None),
    Kind.HOST_KEY: Shown(
        "unreachable", "unreachable", "unreachable", r"host key changed: \S+ .* offers ssh-ed25519", None
    ),
    Kind.SMI_HANGS: Shown(
        "unreadable",
        "unreadable.firmware.gpu",
        r"firmware\.gpu\[gpu0\]@running",
        r"no answer in \d+ s",
        r"97\.\S+69",
    ),
    Kind.NCCL_SHADOWED: Shown("drifted", "shadow.nccl", r"nccl@library", r"2\.30\.7", r"2\.28\.9"),
    Kind.HOLD_REMOVED: Shown("drifted", "pin.nccl", r"nccl@package", "not held", "held"),
    Kind.DISK_FULL: Shown("drifted", "host.disk", r"host\.disk", r"/tmp \d+ %", r"below \d+ %"),
}
