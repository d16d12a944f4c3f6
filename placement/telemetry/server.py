"""The fast path: node agents push samples over HTTP; one assignment per sample into the arrays."""

from __future__ import annotations

import hmac
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from starlette import applications, requests, responses, routing

from placement.headroom import Headroom
from placement.health.board import Board, Event
from placement.telemetry.samples import Batch, Dropped, Samples
from placement.telemetry.signals import Signal
from placement.topology import Topology

__all__ = ["Intake", "application"]

LARGEST_BODY = 1 << 20
"""Bytes; a node with eight GPUs sends under 4 kB."""
_NUMBERS = (int, float)
_NO_GPU = 1 << 20


@dataclass(slots=True)
class Intake:
    """Where samples and events go."""

    topology: Topology
    samples: Samples
    headroom: Headroom
    board: Board
    clock: Callable[[], float] = time.time
    accepted: int = 0
    restamped: int = 0
    """Events that came with a time that cannot be and were taken with ours."""
    _nodes: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._nodes = {name: index for index, name in enumerate(self.topology.names)}

    def take(self, body: Any) -> dict[str, int]:
        """One node's body: ``{"node": NAME, "samples": […], "events": […]}``.

        A sample is ``[gpu, signal, value, Unix seconds]``, an event ``[gpu, code, Unix seconds,
        recovery action or null]``. Returns how many were accepted and dropped. Raises ValueError
        for a body of another shape.
        """
        if not isinstance(body, dict) or not isinstance(body.get("node"), str):
            raise ValueError("a body is {node, samples, events}")
        listed, events = body.get("samples", []), body.get("events", [])
        if not isinstance(listed, list) or not isinstance(events, list):
            raise ValueError("samples and events are lists")
        node, now = self._nodes.get(body["node"], -1), self.clock()
        before = self.samples.dropped.total()
        self._samples(node, listed, now)
        for item in events:
            self._event(node, item, now)
        dropped = self.samples.dropped.total() - before
        taken = len(listed) + len(events) - dropped
        self.accepted += taken
        return {"accepted": taken, "dropped": dropped}

    def _samples(self, node: int, listed: list[Any], now: float) -> None:
        """A round at once; one that names a GPU's signal twice, sample by sample."""
        rows = [row for item in listed if (row := self._row(item)) is not None]
        if not rows:
            return
        if len({row[:2] for row in rows}) < len(rows):
            for gpu, number, value, at in rows:
                if self.samples.push(node, gpu, Signal(number), value, at, now) is None:
                    self.headroom.push(node, gpu, Signal(number), value, now)
            return
        gpus, numbers, values, times = zip(*rows, strict=True)
        batch = Batch(np.array(gpus), np.array(numbers), np.array(values), np.array(times))
        taken = self.samples.push_round(node, batch, now)
        if taken.any():
            self.headroom.push_round(node, batch.only(taken), now)

    def _row(self, item: Any) -> tuple[int, int, float, float] | None:
        """GPU, signal's number, value and time; None for what is not even addressed, counted."""
        if not (type(item) is list and len(item) == 4):
            self.samples.drop(Dropped.NOT_A_NUMBER)
            return None
        gpu, name, value, at = item
        if not (type(gpu) is int and type(name) is str and type(value) in _NUMBERS and type(at) in _NUMBERS):
            self.samples.drop(Dropped.NOT_A_NUMBER)
            return None
        signal = Signal.named(name)
        if signal is None:
            self.samples.drop(Dropped.UNKNOWN_SIGNAL)
            return None
        # An index beyond any node is as unknown as the next one, and fits an array.
        return max(min(gpu, _NO_GPU), -1), int(signal), _float(value), _float(at)

    def _event(self, node: int, item: Any, now: float) -> None:
        if not _shaped(item, (int, str, (int, float), (str, type(None)))):
            self.samples.drop(Dropped.NOT_A_NUMBER)
            return
        gpu, code, at, recovery = item[0], item[1], _float(item[2]), item[3]
        if not (math.isfinite(at) and at <= now + self.samples.policy.skew):
            # A fault stays a fault when its clock is wrong; taken as it stands the time would empty the alarm's window.
            at, self.restamped = now, self.restamped + 1
        try:
            self.board.report(Event(node, gpu, code, at, recovery))
        except IndexError:
            self.samples.drop(Dropped.UNKNOWN_DEVICE)

    def metrics(self) -> str:
        """Counters in Prometheus' text form."""
        lines = ["# TYPE lockstep_samples_accepted_total counter", f"lockstep_samples_accepted_total {self.accepted}"]
        lines.append("# TYPE lockstep_samples_dropped_total counter")
        lines += [f'lockstep_samples_dropped_total{{reason="{r}"}} {self.samples.dropped[r]}' for r in Dropped]
        lines.append("# TYPE lockstep_events_restamped_total counter")
        lines.append(f"lockstep_events_restamped_total {self.restamped}")
        return "\n".join(lines) + "\n"


def _shaped(item: Any, kinds: tuple[Any, ...]) -> bool:
    return (
        isinstance(item, list)
        and len(item) == len(kinds)
        and all(isinstance(part, kind) and not isinstance(part, bool) for part, kind in zip(item, kinds, strict=True))
    )


def _float(value: int | float) -> float:
    """A whole number of hundreds of digits is no measurement: NaN, which is dropped."""
    try:
        return float(value)
    except OverflowError:
        return float("nan")


def application(intake: Intake, token: str | None = None) -> applications.Starlette:
    """``POST /v1/samples`` with an optional bearer token; ``GET /metrics``."""

    async def push(request: requests.Request) -> responses.Response:
        given = request.headers.get("authorization", "")
        if token is not None and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return responses.JSONResponse({"error": "not allowed"}, 401)
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST_BODY:
                return responses.JSONResponse({"error": f"more than {LARGEST_BODY} bytes"}, 413)
        try:
            return responses.JSONResponse(intake.take(json.loads(body)))
        except (ValueError, RecursionError) as error:
            return responses.JSONResponse({"error": str(error)}, 400)

    async def metrics(request: requests.Request) -> responses.Response:
        return responses.PlainTextResponse(intake.metrics())

    return applications.Starlette(
        routes=[routing.Route("/v1/samples", push, methods=["POST"]), routing.Route("/metrics", metrics)]
    )
