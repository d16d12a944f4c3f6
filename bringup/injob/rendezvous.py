"""Ranks meet at an address: rank 0 listens there, the others send their report and get the verdict back.

For jobs without a shared folder. One line each way; nothing that arrives is ever evaluated.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Final

from bringup.injob import judge, meeting, reports
from bringup.injob.meeting import Answer
from bringup.injob.reports import Report
from lockstep.base import errors

__all__ = ["address", "meet"]

_RETRY_SECONDS: Final = 0.25
"""Between two tries to connect while rank 0 is not up yet."""
_GRACE_SECONDS: Final = 5.0
"""For the verdict to reach every rank after it was made."""


def address(text: str) -> tuple[str, int]:
    """``HOST:PORT`` or ``[V6]:PORT``. Raises `errors.InputError`."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise errors.InputError(f"{text!r} is no HOST:PORT", place="--rendezvous", hint="10.0.0.1:29400")
    return host, int(port)


def meet(own: Report, at: tuple[str, int], *, seconds: float) -> Answer:
    """Bring the ranks together at ``at``. Raises as `meeting.meet` does."""
    return asyncio.run(_listen(own, at, seconds) if own.rank == 0 else _ask(own, at, seconds))


class _Desk:
    """Rank 0's side: takes reports until all are there or the time is over."""

    def __init__(self, own: Report) -> None:
        self._own = own
        self._found = {own.rank: own}
        self._problems: list[str] = []
        self._all = asyncio.Event()
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._served: set[asyncio.Task[None]] = set()
        if own.world == 1:
            self._all.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - inside a coroutine there is one
        self._served.add(task)
        try:
            refusal = self._take(await reader.readline())
            writer.write(refusal if refusal is not None else await asyncio.shield(self._answer))
            await writer.drain()
        except (OSError, ValueError):
            # It went away, or sent a line without end: rank 0 reports who is missing.
            pass
        finally:
            writer.close()
            self._served.discard(task)

    def _take(self, line: bytes) -> bytes | None:
        """Keep a report; the refusal when it is none of this attempt's."""
        try:
            report = reports.from_json(line)
        except ValueError as error:
            return _refusal(f"not taken: {error}")
        own = self._own
        if (report.attempt, report.world) != (own.attempt, own.world):
            return _refusal(
                f"this is attempt {own.attempt} of {own.world} ranks, not {report.attempt} of {report.world}"
            )
        before = self._found.get(report.rank)
        if before is not None:
            self._problems.append(f"rank {report.rank} came twice, from {before.host} and {report.host}")
            return _refusal(f"rank {report.rank} has reported already, from {before.host}")
        self._found[report.rank] = report
        if len(self._found) == own.world:
            self._all.set()
        return None

    async def decide(self, seconds: float) -> Answer:
        with contextlib.suppress(TimeoutError):
            # Who is missing then stands in the verdict.
            await asyncio.wait_for(self._all.wait(), seconds)
        verdict = judge.judge(list(self._found.values()), self._own.world, self._problems)
        data = meeting.to_verdict(verdict, {rank: report.nonce for rank, report in self._found.items()})
        self._answer.set_result(data)
        if self._served:
            await asyncio.wait(set(self._served), timeout=_GRACE_SECONDS)
        return meeting.from_verdict(data, self._own)


def _refusal(why: str) -> bytes:
    return json.dumps({"refused": why}).encode() + b"\n"


async def _listen(own: Report, at: tuple[str, int], seconds: float) -> Answer:
    desk = _Desk(own)
    try:
        server = await asyncio.start_server(desk.serve, *at, limit=reports.BYTES, backlog=4096)
    except OSError as error:
        raise errors.InputError(
            f"rank 0 cannot listen there: {error.strerror or error}",
            place=f"--rendezvous {at[0]}:{at[1]}",
            hint="give an address of rank 0's own host and a free port",
        ) from error
    async with server:
        return await desk.decide(seconds)


async def _ask(own: Report, at: tuple[str, int], seconds: float) -> Answer:
    until = time.monotonic() + seconds
    place = f"{at[0]}:{at[1]}"
    try:
        async with asyncio.timeout(seconds + _GRACE_SECONDS):
            reader, writer = await _connect(at, until)
            writer.write(reports.to_json(own))
            await writer.drain()
            line = await reader.readline()
            writer.close()
    except (TimeoutError, OSError, ValueError) as error:
        raise errors.NotMeasuredError(
            f"no verdict of rank 0 within {seconds:g} s ({error or 'no answer'})",
            place=place,
            hint="look at the log of rank 0; raise --timeout",
        ) from error
    try:
        value = json.loads(line)
        if isinstance(value, dict) and "refused" in value:
            raise errors.InputError(f"rank 0 refused the report: {value['refused']}", place=place)
        return meeting.from_verdict(line, own)
    except ValueError as error:
        raise errors.NotMeasuredError("rank 0 went away before its verdict", place=place) from error


async def _connect(at: tuple[str, int], until: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_connection(*at, limit=reports.BYTES * 4)
        except OSError:
            if time.monotonic() >= until:
                raise
            await asyncio.sleep(_RETRY_SECONDS)
