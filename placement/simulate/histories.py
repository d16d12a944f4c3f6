"""Recorded histories of devices, and the check that each is linearizable.

Per device (partitioning as in Porcupine) the sequential model is a lock: ``hold`` by a
claim needs it free, ``free`` needs it held by that claim, a refusal that names the device
needs it held by another claim. Calls that never returned may have happened or not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from placement.ledger.records import NodeGrant, Record

__all__ = ["Call", "History", "NotLinearizable", "linearizable"]


class NotLinearizable(AssertionError):  # noqa: N818 - a verdict
    """No order of the calls explains what they returned."""


@dataclass(slots=True)
class Call:
    """One call on one device."""

    device: str
    kind: str
    """``hold``, ``free`` or ``refused``."""
    claim: str
    begun: float
    ended: float = math.inf
    """Infinite: it never returned."""


@dataclass(slots=True)
class History:
    """Gathers calls; time is counted in steps."""

    now: int = 0
    calls: list[Call] = field(default_factory=list)

    def tick(self) -> None:
        """One step of anybody."""
        self.now += 1

    def invoke(self, claim: str, parts: Mapping[str, tuple[NodeGrant, ...]]) -> list[Call]:
        """A reservation begins: one call per device."""
        calls = [
            Call(grant.device, "hold", claim, self.now)
            for part in parts.values()
            for node in part
            for grant in node.grants
        ]
        self.calls += calls
        return calls

    def held(self, calls: list[Call]) -> None:
        """It returned with all devices held."""
        for call in calls:
            call.ended = self.now

    def refused(self, calls: list[Call], reason: str) -> None:
        """It returned with nothing held. Parts may have been held for a moment: those calls stay unreturned."""
        for call in calls:
            if reason.startswith(f"{call.device}:"):
                self.calls.remove(call)
                self.calls.append(Call(call.device, "refused", call.claim, call.begun, self.now))

    def observe(self, before: Record, after: Record) -> None:
        """A commit went through: devices that it freed are freed at this very step."""
        for claim, hold in before.holds.items():
            kept = {
                grant.device
                for node in (after.holds[claim].nodes if claim in after.holds else ())
                for grant in node.grants
            }
            self.calls += [
                Call(grant.device, "free", claim, self.now, self.now)
                for node in hold.nodes
                for grant in node.grants
                if grant.device not in kept
            ]

    def check(self) -> None:
        """Raises `NotLinearizable` naming the device."""
        devices: dict[str, list[Call]] = {}
        for call in self.calls:
            devices.setdefault(call.device, []).append(call)
        for device, calls in devices.items():
            if not linearizable(calls):
                raise NotLinearizable(f"{device}: {[(c.kind, c.claim, c.begun, c.ended) for c in calls]}")


def linearizable(calls: list[Call]) -> bool:
    """Whether some order that respects begun/ended explains the calls (Wing and Gong, with memory)."""
    total = len(calls)
    must = sum(1 << index for index, call in enumerate(calls) if call.ended < math.inf)
    seen: set[tuple[int, str | None]] = set()
    stack: list[tuple[int, str | None]] = [(0, None)]
    while stack:
        done, holder = stack.pop()
        if done & must == must:
            return True
        if (done, holder) in seen:
            continue
        seen.add((done, holder))
        # Whoever began after a call that is not done yet has ended must wait for it.
        limit = min((calls[i].ended for i in range(total) if not done >> i & 1), default=math.inf)
        for index, call in enumerate(calls):
            if done >> index & 1 or call.begun > limit:
                continue
            if _possible(call, holder):
                after = {"hold": call.claim, "free": None}.get(call.kind, holder)
                stack.append((done | 1 << index, after))
    return False


def _possible(call: Call, holder: str | None) -> bool:
    """Whether the call could return what it did while ``holder`` has the device."""
    if call.kind == "hold":
        return holder is None
    if call.kind == "free":
        return holder == call.claim
    return holder is not None and holder != call.claim
