"""What BMCs said a short while ago. `up` reads a node before its plan, while it empties, and after every act; its BMC
takes minutes, and its firmware does not change meanwhile.

What is kept counts for one boot of the host, as the host itself names it, and for one address: firmware that somebody
wrote runs after a reboot or a power cycle, and each of ours gives the host another boot. Lockstep writes no firmware
and resets no device. An audit and a preview remember nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from inventory.model import Node
from lockstep.base import limits
from lockstep.base.names import NodeName
from pinsets.facts import NodeFacts

__all__ = ["Memory"]


@dataclass(frozen=True, slots=True)
class _Kept:
    url: str | None
    boot: str
    at: float
    facts: NodeFacts


class Memory:
    """Whole readings of BMCs, for `limits.BMC_MEMORY_SECONDS` each."""

    def __init__(self, seconds: float = limits.BMC_MEMORY_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._kept: dict[NodeName, _Kept] = {}
        self._lock = threading.Lock()

    def recall(self, node: Node, boot: str | None) -> NodeFacts | None:
        """What its BMC said during this boot; None where it has to be asked. Of a host that is silent always None."""
        with self._lock:
            kept = self._kept.get(node.name)
        if kept is None or boot is None or (kept.boot, kept.url) != (boot, _url(node)):
            return None
        return kept.facts if self._clock() - kept.at <= self._seconds else None

    def keep(self, node: Node, boot: str | None, facts: NodeFacts) -> None:
        """Take a reading; one that has gaps, or of a host whose boot is not known, is forgotten with the one before."""
        with self._lock:
            if boot is None or facts.unreachable is not None or "bmc.unread" in facts.attributes:
                self._kept.pop(node.name, None)
            else:
                self._kept[node.name] = _Kept(_url(node), boot, self._clock(), facts)


def _url(node: Node) -> str | None:
    return node.bmc.redfish if node.bmc is not None else None
