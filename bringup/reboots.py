"""Waiting for machines to come back: a boot is proved by another boot id, and by nothing else."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Mapping
from typing import Final

from bringup.transport.base import Failure, Outcome, Patience, Target, Transport
from lockstep.base import limits
from lockstep.base.names import NodeName

__all__ = ["set_off", "wait_for_answer", "wait_for_boot"]

SCRIPT: Final = "cat /proc/sys/kernel/random/boot_id\n"
REBOOT: Final = """[ "$(cat /proc/sys/kernel/random/boot_id)" = "{boot_id}" ] || exit 0
setsid sh -c 'sleep 1; shutdown -r now' </dev/null >/dev/null 2>&1 &
"""
"""Detached and a moment later, so that the connection ends in order and an answer proves that it was set off.
Only in the boot that it is meant for: told twice, a node is rebooted once."""
TRIES: Final = 3
"""Of telling a node to reboot: a busy site answers late, and telling it again does no harm."""
POLL_SECONDS: Final = 1.0
TRY_SECONDS: Final = 10.0
"""One look at one node; a machine that is going down may accept a connection and fall silent."""

OFF_SECONDS: Final = 15.0
"""Between two questions to a silent node's BMC: each may start a program, and BMCs answer slowly."""

IsOff = Callable[[NodeName], bool]
"""Whether the machine is known to be powered off; False where nothing can tell."""


def set_off(
    targets: Mapping[NodeName, Target], boots: Mapping[NodeName, str], transport: Transport
) -> dict[NodeName, str]:
    """Tell every node to reboot out of the boot in ``boots``; node → why it could not be told."""
    left = dict(targets)
    failed: dict[NodeName, str] = {}
    for number in range(1, TRIES + 1):
        patience = Patience().times(number)
        scripts = {node: REBOOT.format(boot_id=boots[node]) for node in left}
        failed = {}
        for node, answer in _run(left, scripts, transport, patience).items():
            if not isinstance(answer, Outcome):
                failed[node] = str(answer)
            elif answer.status != 0:
                said = answer.stderr.decode("utf-8", "replace").strip()[:200]
                failed[node] = f"the reboot could not be set off: {said}"
        left = {node: target for node, target in left.items() if node in failed}
        if not left:
            break
    return failed


def wait_for_boot(
    targets: Mapping[NodeName, Target],
    before: Mapping[NodeName, str | None] | Mapping[NodeName, str],
    transport: Transport,
    *,
    seconds: float = limits.REBOOT_SECONDS,
    is_off: IsOff = lambda _: False,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> dict[NodeName, str]:
    """Wait until every node answers with a boot id other than ``before``; node → why it did not.

    Empty when all came back. A node whose old boot id is not known cannot prove
    anything and is a failure at once. One that is powered off is not waited for.
    """
    failed = {node: "its boot id was not known before the reboot" for node in targets if not before.get(node)}
    waiting = {node: target for node, target in targets.items() if node not in failed}
    deadline = time.monotonic() + seconds
    power = _Power(is_off, first=time.monotonic() + OFF_SECONDS)
    while waiting:
        seen = _look(waiting, transport)
        waiting = {node: target for node, target in waiting.items() if not _is_new(seen.get(node), before[node])}
        progress(len(targets) - len(waiting) - len(failed), len(targets))
        if not waiting:
            break
        late = time.monotonic() >= deadline
        for node in list(waiting):
            if late:
                kept = "still runs the boot from before" if seen.get(node) == before[node] else "does not answer"
                failed[node] = f"{kept}, {seconds:.0f} s after the reboot"
            elif seen.get(node) is None and power.is_off(node):
                failed[node] = "is powered off"
        waiting = {node: target for node, target in waiting.items() if node not in failed}
        if waiting:
            time.sleep(POLL_SECONDS)
    return failed


def wait_for_answer(
    targets: Mapping[NodeName, Target],
    transport: Transport,
    *,
    seconds: float,
    is_off: IsOff = lambda _: False,
) -> dict[NodeName, str]:
    """Wait until every node answers; node → its boot id, without those that did not in time."""
    found: dict[NodeName, str] = {}
    waiting = dict(targets)
    deadline = time.monotonic() + seconds
    power = _Power(is_off, first=0.0)
    while waiting:
        for node, boot_id in _look(waiting, transport).items():
            if boot_id is not None:
                found[node] = boot_id
        waiting = {node: target for node, target in waiting.items() if node not in found and not power.is_off(node)}
        if not waiting or time.monotonic() >= deadline:
            break
        time.sleep(POLL_SECONDS)
    return found


class _Power:
    """Asks for the power of a silent node, not more often than makes sense."""

    def __init__(self, is_off: IsOff, *, first: float) -> None:
        self._is_off = is_off
        self._first = first
        self._next: dict[NodeName, float] = {}

    def is_off(self, node: NodeName) -> bool:
        """What the BMC says now; False between two questions."""
        now = time.monotonic()
        if now < self._next.get(node, self._first):
            return False
        self._next[node] = now + OFF_SECONDS
        return self._is_off(node)


def _is_new(seen: str | None, before: str | None) -> bool:
    return seen is not None and seen != before


def _look(targets: Mapping[NodeName, Target], transport: Transport) -> dict[NodeName, str | None]:
    """The boot id of each node; None for one that does not answer."""
    scripts = dict.fromkeys(targets, SCRIPT)
    return {
        node: answer.stdout.decode("ascii", "replace").strip() or None
        if isinstance(answer, Outcome) and answer.status == 0
        else None
        for node, answer in _run(targets, scripts, transport, Patience.within(TRY_SECONDS)).items()
    }


def _run(
    targets: Mapping[NodeName, Target], scripts: Mapping[NodeName, str], transport: Transport, patience: Patience
) -> dict[NodeName, Outcome | Failure]:
    def one(node: NodeName) -> Outcome | Failure:
        return transport.run(targets[node], scripts[node], patience)

    with concurrent.futures.ThreadPoolExecutor(max(1, min(len(targets), limits.ANSIBLE_FORKS))) as workers:
        return dict(zip(targets, workers.map(one, targets), strict=True))
