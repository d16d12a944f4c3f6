"""Pushing: one HTTP request per round. Samples of a round that cannot be delivered are dropped, events are kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import httpx

from placement.agent.sources import Event, Round, Source

__all__ = ["Pusher", "run"]

SECONDS = 10.0
"""Between rounds: DCGM's own sampling interval."""
KEPT: Final = 1000
"""Events that wait for an intake that does not answer; older ones are of GPUs that are out already."""


class Pusher:
    """Delivers rounds and counts what was lost.

    Stale samples would be refused anyway, so none is kept. A fault that nobody heard of is
    another matter: events go with the next round, until one is delivered.
    """

    def __init__(self, client: httpx.Client, node: str) -> None:
        self._client = client
        self._node = node
        self._events: list[Event] = []
        self.lost = 0

    def push(self, found: Round) -> bool:
        """Whether the round was delivered."""
        self._events = [*self._events, *found.events][-KEPT:]
        body = {"node": self._node, "samples": found.samples, "events": self._events}
        try:
            answer = self._client.post("/v1/samples", json=body)
        except httpx.HTTPError:
            self.lost += 1
            return False
        if answer.status_code != 200:
            self.lost += 1
            return False
        self._events = []
        return True


def run(
    source: Source, pusher: Pusher, *, seconds: float = SECONDS, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Read and push until the source ends (NVML never does, whatever becomes of its GPUs); rounds delivered."""
    delivered = 0
    while (found := source.read()) is not None:
        delivered += pusher.push(found)
        sleep(seconds)
    return delivered
