"""A transport with scripted answers: for tests, demonstrations and dry runs. Opens no socket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from bringup.transport.base import Failure, FailureKind, Outcome, Patience, Target
from lockstep.base.names import NodeName

__all__ = ["Answer", "Fake"]

Answer = Outcome | Failure | bytes | Callable[[Target, str], Outcome | Failure]
"""Bytes stand for an outcome with status 0."""


class Fake:
    """Answers by node name and records what was asked. A node without an answer is refused.

    A list of answers is given out one per call, the last one again and again.
    """

    def __init__(self, answers: Mapping[str, Answer | list[Answer]]) -> None:
        self._answers = {node: list(given) if isinstance(given, list) else [given] for node, given in answers.items()}
        self._lock = threading.Lock()
        self.calls: list[tuple[Target, str, Patience]] = []
        self.cuts: list[NodeName] = []
        self.closed = False

    def run(self, target: Target, script: str, patience: Patience) -> Outcome | Failure:
        """The next answer of the node."""
        with self._lock:
            self.calls.append((target, script, patience))
            queue = self._answers.get(target.node, [])
            answer = queue.pop(0) if len(queue) > 1 else queue[0] if queue else None
        if answer is None:
            return Failure(FailureKind.REFUSED, f"nothing listens on {target.address} port {target.port}")
        if isinstance(answer, bytes):
            return Outcome(answer, b"", 0, 0.0)
        return answer if isinstance(answer, (Outcome, Failure)) else answer(target, script)

    def cut(self, node: NodeName) -> None:
        """Only noted."""
        self.cuts.append(node)

    def close(self) -> None:
        """Only noted."""
        self.closed = True
