"""Ranks meet in a shared folder: each writes one file, rank 0 judges, all read its verdict.

Every write is a rename, so that a reader sees all of a file or nothing. Only names decide what belongs together: one
folder per attempt, since a file of an attempt before would be judged as if it were new.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bringup.injob import judge, reports
from bringup.injob.reports import Report
from lockstep.base import errors, plaintext

__all__ = ["Answer", "from_verdict", "meet", "to_verdict"]

_FILE: Final = re.compile(r"rank-([0-9]{1,9})\.json")
_ATTEMPT: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_VERDICT: Final = "verdict.json"
_SHORTEST: Final = 0.05
_LONGEST: Final = 1.0
"""Seconds between two looks, growing: 512 ranks that look all the time would keep a shared file system busy."""

Judged = Callable[[judge.Verdict], None]


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict as every rank gets it."""

    exit_code: errors.ExitCode
    lines: tuple[str, ...]


def to_verdict(verdict: judge.Verdict, nonces: dict[int, str]) -> bytes:
    """The verdict's form on the folder and on the wire; ``nonces`` name the reports that it was made from."""
    value = {
        "exit": int(verdict.exit_code),
        "lines": verdict.lines(),
        "reports": {str(k): v for k, v in nonces.items()},
    }
    return json.dumps(value).encode() + b"\n"


def from_verdict(data: bytes, own: Report) -> Answer:
    """Raises ValueError for a damaged one, `errors.NotMeasuredError` for one made without this rank's report."""
    value: Any = json.loads(data)
    if not isinstance(value, dict) or not isinstance(value.get("reports"), dict):
        raise ValueError("no verdict")
    if value["reports"].get(str(own.rank)) != own.nonce:
        raise errors.NotMeasuredError(
            f"the verdict was made without the report of rank {own.rank}",
            hint="it came too late, or an earlier run used the same name: raise --timeout, or give another --attempt",
        )
    return Answer(errors.ExitCode(value["exit"]), tuple(plaintext.visible(str(line)) for line in value["lines"]))


def meet(own: Report, folder: Path, *, seconds: float, sleep: Callable[[float], None] = time.sleep) -> Answer:
    """Write ``own`` below ``folder``/ATTEMPT; rank 0 waits for all and judges, the others wait for its verdict.

    Raises `errors.InputError` for a folder that cannot be used or holds an attempt before,
    `errors.NotMeasuredError` when no verdict comes within ``seconds``.
    """
    if not _ATTEMPT.fullmatch(own.attempt):
        raise errors.InputError(
            f"{own.attempt!r} cannot name an attempt", place="--attempt", hint="letters, digits, dot, dash, underscore"
        )
    place = folder / own.attempt
    until = time.monotonic() + seconds
    try:
        place.mkdir(mode=0o777, parents=True, exist_ok=True)
        if (place / _VERDICT).exists() or (place / f"rank-{own.rank}.json").exists():
            raise errors.InputError(
                f"that name of an attempt was used before ({own.attempt})",
                place=str(place),
                hint="give every attempt its own --attempt, or remove the folder",
            )
        _write(place, f"rank-{own.rank}.json", reports.to_json(own))
        if own.rank == 0:
            return _judge(own, place, until, sleep)
        return _wait(own, place, until, sleep, seconds)
    except OSError as error:
        raise errors.InputError(
            f"the shared folder cannot be used: {error.strerror}",
            place=str(place),
            hint="give a folder all ranks can write",
        ) from error


def _write(place: Path, name: str, data: bytes) -> None:
    draft = place / f".{name}.{os.getpid()}"
    draft.write_bytes(data)
    draft.replace(place / name)


def _judge(own: Report, place: Path, until: float, sleep: Callable[[float], None]) -> Answer:
    found: dict[int, Report] = {}
    problems: dict[str, str] = {}
    pause = _SHORTEST
    while True:
        fresh = _collect(own, place, found, problems)
        if len(found) + len(problems) >= own.world or time.monotonic() >= until:
            break
        pause = _SHORTEST if fresh else min(pause * 1.5, _LONGEST)
        sleep(min(pause, max(0.0, until - time.monotonic())))
    verdict = judge.judge(list(found.values()), own.world, list(problems.values()))
    data = to_verdict(verdict, {rank: report.nonce for rank, report in found.items()})
    _write(place, _VERDICT, data)
    return from_verdict(data, own)


def _collect(own: Report, place: Path, found: dict[int, Report], problems: dict[str, str]) -> int:
    """Read the files that are new; how many there were."""
    fresh = 0
    for entry in os.scandir(place):
        match = _FILE.fullmatch(entry.name)
        if match is None or int(match[1]) in found or entry.name in problems:
            continue
        fresh += 1
        if not entry.is_file(follow_symlinks=False):
            # A pipe would hold rank 0 for ever.
            problems[entry.name] = f"{entry.name} is no file"
            continue
        try:
            with open(entry.path, "rb") as file:
                report = reports.from_json(file.read(reports.BYTES + 1))
        except ValueError as error:
            problems[entry.name] = f"{entry.name}: {error}"
            continue
        if report.rank != int(match[1]) or report.world != own.world:
            problems[entry.name] = f"{entry.name} speaks of rank {report.rank} of {report.world}, not of {own.world}"
        else:
            found[report.rank] = report
    return fresh


def _wait(own: Report, place: Path, until: float, sleep: Callable[[float], None], seconds: float) -> Answer:
    pause = _SHORTEST
    # Rank 0 may use its whole time for those who are late; its verdict comes a moment after it.
    while time.monotonic() < until + 2 * _LONGEST:
        try:
            return from_verdict((place / _VERDICT).read_bytes(), own)
        except FileNotFoundError:
            sleep(pause)
            pause = min(pause * 1.5, _LONGEST)
        except ValueError as error:
            raise errors.NotMeasuredError(f"the verdict is damaged: {error}", place=str(place / _VERDICT)) from error
    raise errors.NotMeasuredError(
        f"no verdict of rank 0 within {seconds:g} s",
        place=str(place),
        hint="look at the log of rank 0; raise --timeout",
    )
