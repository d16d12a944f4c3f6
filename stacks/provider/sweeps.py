"""One reading of the whole fleet per process: the first pool starts it, the others wait for it.

A node that was not read says so (``unreachable``, ``unreadable``); what an earlier run knew of
it is never repeated. A reading that fails as a whole says that of the pool: the preview goes
on and shows it, and `up` then fails for the same reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inventory import model
from lockstep.base import errors, settings
from lockstep.base.names import NodeName, PoolName
from pinsets import skew as skews
from stacks import pools
from stacks.provider import fleets

if TYPE_CHECKING:
    from bringup import reading

__all__ = ["ADMISSION", "Read", "Say", "Sweeps", "Waiting", "of", "real", "real_waiting"]

MAX_AGE_SECONDS = 120.0
"""A reading older than this is not shared any more: a person may have thought for long before saying yes."""

PROGRESS_SECONDS = 1.0
"""Between two lines about a sweep."""

ADMISSION = "admission"
"""Word in ``skew`` for a node of ours that is in step and not admitted yet: an earlier run stopped before that."""

OUT_OF_SERVICE = (model.NodeState.REPAIR, model.NodeState.HELD)

Say = Callable[[str], None]
"""Takes a line about the progress of a reading."""

Read = Callable[[model.Fleet, Say], "reading.Reading"]
"""Reads a fleet; the real one is `real`."""


Waiting = Callable[[model.Fleet, model.Pool, "reading.Reading"], Mapping[NodeName, str]]
"""Says which in-step nodes of a pool still wait for their admission, and why; the real one is `real_waiting`."""


@dataclass(slots=True)
class _Started:
    at: float
    task: asyncio.Task[reading.Reading]


class Sweeps:
    """Shared readings by fleet reference."""

    def __init__(self, known: fleets.Fleets, read: Read, waiting: Waiting) -> None:
        self._fleets = known
        self._read = read
        self._waiting = waiting
        self._started: dict[str, _Started] = {}

    async def skew(self, reference: str, pool: str, say: Say) -> pools.Skew:
        """What deviates in a pool now; ``say`` is used when this call starts the reading."""
        try:
            fleet = await asyncio.to_thread(self._fleets.get, reference)
            declared = fleets.pool(fleet, pool)
            found = await self._shared(reference, fleet, say)
            return await asyncio.to_thread(lambda: of(declared, found, self._waiting(fleet, declared, found)))
        except errors.LockstepError as error:
            return {pool: {"unreadable": error.diagnostics().splitlines()[0]}}

    def forget(self) -> None:
        """Called when an act begins: what was read before is not a fact any more."""
        self._started.clear()

    async def _shared(self, reference: str, fleet: model.Fleet, say: Say) -> reading.Reading:
        started = self._started.get(reference)
        if started is None or time.monotonic() - started.at > MAX_AGE_SECONDS:
            task = asyncio.create_task(asyncio.to_thread(self._read, fleet, say))
            started = self._started[reference] = _Started(time.monotonic(), task)
        # Shielded: one pool's cancelled call must not take the others' reading away.
        return await asyncio.shield(started.task)


def of(pool: model.Pool, found: reading.Reading, waiting: Mapping[NodeName, str]) -> pools.Skew:
    """The skew of one pool out of a reading, nodes ``waiting`` for their admission included.

    Without the nodes declared in repair or held: nothing will be done about them, and a change that no `up` can make
    would hide those that it can. `lockstep audit` lists them apart.
    """
    comparison = found.comparisons[PoolName(pool.name)]
    skew: pools.Skew = {str(node): dict(entry) for node, entry in skews.of(comparison).items()}
    for name, why in waiting.items():
        skew.setdefault(str(name), {})[ADMISSION] = why
    for node in pool.nodes:
        if node.state in OUT_OF_SERVICE:
            skew.pop(str(node.name), None)
        elif node.name not in comparison.nodes:
            skew[str(node.name)] = {"unreadable": "was not read"}
    return pools.odd(skew)


def real_waiting(where: settings.Settings) -> Waiting:
    """By the journal and the nodes' own admission files."""

    def waiting(fleet: model.Fleet, pool: model.Pool, found: reading.Reading) -> Mapping[NodeName, str]:
        from bringup import preflight

        return preflight.unfinished(fleet, pool, found.snapshot, found.comparisons[PoolName(pool.name)], where)

    return waiting


def real(where: settings.Settings) -> Read:
    """The real reading: over SSH, or from a stored snapshot when LOCKSTEP_FACTS says so."""

    def read(fleet: model.Fleet, say: Say) -> reading.Reading:
        # Late: what a preview from a stored snapshot does not need, it does not import.
        from bringup import reading as readings

        last = time.monotonic()

        def progress(step: readings.Progress) -> None:
            nonlocal last
            if time.monotonic() - last >= PROGRESS_SECONDS or step.done == step.total:
                last = time.monotonic()
                say(f"read {step.done} of {step.total} nodes")

        found = readings.read_fleet(fleet, where, progress=progress)
        say(found.source)
        return found

    return read
