"""What each kind of `lab break` must show as, in a preview and in an audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.faults import Kind
from tests.bringup.breaks import SHOWN

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


def _case(pool: str, at: int, kind: Kind) -> Case:
    shown = SHOWN[kind]
    return Case(pool, at, shown.verdict, shown.word, shown.observed, shown.expected, shown.options)


CASES = {
    kind.value: _case(pool, at, kind)
    for kind, pool, at in (
        (Kind.OTHER_VERSION, DEFAULT, 0),
        (Kind.UPGRADED_NOT_REBOOTED, DEFAULT, 1),
        (Kind.GPU_FIRMWARE, DEFAULT, 2),
        (Kind.GPU_LOST, DEFAULT, 3),
        (Kind.SSHD_HUNG, DEFAULT, 4),
        (Kind.NODE_DEAD, DEFAULT, 5),
        (Kind.HOST_KEY, QUIET, 0),
        (Kind.SMI_HANGS, QUIET, 1),
    )
}
"""Those that fit on the nodes of the walk; all kinds at once are in tests/bringup/test_audit_of_lab_nodes.py."""


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
