"""Which running work of lower priority would have to end for a request to fit: advice, never acted on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from placement.occupancy import Occupancy, Placed
from placement.requests import Request

__all__ = ["Running", "to_end"]

Running = Mapping[str, tuple[Request, tuple[Placed, ...]]]
"""Name → request and where it runs."""


def to_end(running: Running, occupancy: Occupancy, request: Request, holds: Callable[[], bool]) -> tuple[str, ...]:
    """The least of it, lowest priority and smallest first; empty if even all of it would not make room.

    ``holds`` says whether ``request`` would be placed in ``occupancy`` as it is when asked.
    The occupancy is tried on and left as it was.
    """
    lower = sorted(
        (name for name, (other, _) in running.items() if other.priority < request.priority),
        key=lambda name: (running[name][0].priority, running[name][0].gpus, name),
    )
    return _Trial(running, occupancy, holds).least(lower)


class _Trial:
    """Work that is ended for the sake of the question."""

    def __init__(self, running: Running, occupancy: Occupancy, holds: Callable[[], bool]) -> None:
        self._running = running
        self._occupancy = occupancy
        self._holds = holds
        self._ended: list[str] = []

    def least(self, lower: list[str]) -> tuple[str, ...]:
        few, many = 1, len(lower)
        try:
            self._end(lower, many)
            if not self._holds():
                return ()
            # More room never hurts, so the shortest list that helps is found by halving.
            while few < many:
                middle = (few + many) // 2
                self._end(lower, middle)
                few, many = (few, middle) if self._holds() else (middle + 1, many)
            self._end(lower, many)
            self._drop_the_needless()
            return tuple(self._ended)
        finally:
            self._end(self._ended, 0)

    def _end(self, names: list[str], count: int) -> None:
        """Exactly the first ``count`` of ``names`` are ended."""
        while len(self._ended) < count:
            name = names[len(self._ended)]
            self._leave([name])
            self._ended.append(name)
        while len(self._ended) > count:
            self._stay([self._ended.pop()])

    def _drop_the_needless(self) -> None:
        """Who may stay after all, many at a time first; the last one is needed, or the list would be shorter."""
        chunk = len(self._ended) // 2
        while chunk:
            at = 0
            while at < len(self._ended) - 1:
                part = self._ended[at : min(at + chunk, len(self._ended) - 1)]
                self._stay(part)
                if self._holds():
                    del self._ended[at : at + len(part)]
                else:
                    self._leave(part)
                    at += chunk
            chunk //= 2

    def _leave(self, names: list[str]) -> None:
        for name in names:
            for placed in self._running[name][1]:
                self._occupancy.give(placed)

    def _stay(self, names: list[str]) -> None:
        for name in names:
            for placed in self._running[name][1]:
                self._occupancy.take(placed)
