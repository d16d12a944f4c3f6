"""What each kind of `lab break` must show as, in a preview and in an audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT = "main"
"""The pool whose policy allows every disruption but firmware and a new image."""
QUIET = "quiet"
"""The pool whose policy allows none."""


@dataclass(frozen=True)
class Case:
    """What a kind of `lab break` shows as; regular expressions."""

    pool: str
    at: int
    """Which node of the pool."""
    verdict: str
    word: str
    observed: str
    expected: str | None
    """None: the node as a whole, with a reason."""
    options: Mapping[str, str] = field(default_factory=dict)


CASES = {
    "other-version": Case(DEFAULT, 0, "drifted", r"nccl@library", r"2\.30\.7", r"2\.28\.9"),
    "upgraded-not-rebooted": Case(DEFAULT, 1, "drifted", r"driver@ondisk", r"580\.126\.20", r"580\.105\.08"),
    "gpu-firmware": Case(
        DEFAULT, 2, "drifted", r"firmware\.gpu\[gpu1\]@running", r"97\.\S+6A", r"97\.\S+69", {"slot": "gpu1"}
    ),
    "gpu-lost": Case(DEFAULT, 3, "drifted", r"gpu\[gpu2\]@running", "missing", "present", {"slot": "gpu2"}),
    "sshd-hung": Case(DEFAULT, 4, "unreachable", "unreachable", "no banner: TCP opened", None),
    "node-dead": Case(DEFAULT, 5, "unreachable", "unreachable", "refused: nothing listens", None),
    "host-key": Case(QUIET, 0, "unreachable", "unreachable", r"host key changed: \S+ .* offers ssh-ed25519", None),
    "smi-hangs": Case(QUIET, 1, "unreadable", r"firmware\.gpu\[gpu0\]@running", r"no answer in \d+ s", r"97\.\S+69"),
}


def blocks(shown: str) -> dict[str, str]:
    """Node → the lines under its name in a `pulumi preview --diff`."""
    found: dict[str, list[str]] = {}
    node = None
    for line in shown.splitlines():
        words = line.strip().lstrip("+-~ ")
        if words.endswith(": {"):
            node = words.removesuffix(": {").strip('"')
        elif words == "}":
            node = None
        elif node is not None:
            found.setdefault(node, []).append(words)
    return {node: "\n".join(lines) for node, lines in found.items()}
