"""Pushing samples: one HTTP request per round; a round that cannot be delivered is dropped, never queued."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx

from placement.agent.sources import Sample, Source

__all__ = ["Pusher", "run"]

SECONDS = 10.0
"""Between rounds: DCGM's own sampling interval."""


class Pusher:
    """Delivers rounds and counts what was lost. Stale samples would be refused anyway, so nothing is kept."""

    def __init__(self, client: httpx.Client, node: str) -> None:
        self._client = client
        self._node = node
        self.lost = 0

    def push(self, samples: list[Sample]) -> bool:
        """Whether the round was delivered."""
        try:
            answer = self._client.post("/v1/samples", json={"node": self._node, "samples": samples})
        except httpx.HTTPError:
            self.lost += 1
            return False
        if answer.status_code != 200:
            self.lost += 1
            return False
        return True


def run(
    source: Source, pusher: Pusher, *, seconds: float = SECONDS, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Read and push until the source ends (NVML never does); rounds delivered."""
    delivered = 0
    while samples := source.read():
        delivered += pusher.push(samples)
        sleep(seconds)
    return delivered
