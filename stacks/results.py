"""What became of each pool, from the plugin to `lockstep up`, as JSON lines in a private file.

The engine knows only success and failure; exit codes need to tell forbidden from unmendable.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lockstep.base import errors

__all__ = ["VARIABLE", "PoolOutcome", "append", "read"]

VARIABLE: Final = "LOCKSTEP_RESULTS"
"""Names the file; unset with plain `pulumi`."""


@dataclass(frozen=True, slots=True)
class PoolOutcome:
    """One pool after an act, or after a refusal to act."""

    pool: str
    exit_code: errors.ExitCode
    nodes: Mapping[str, str] = field(default_factory=dict)
    """Node → outcome and reason, only those not in step."""
    error: str | None = None
    """Why nothing was done at all."""


def append(outcome: PoolOutcome, environ: Mapping[str, str]) -> None:
    """Add a line to the file named by `VARIABLE`; without one, nothing."""
    path = environ.get(VARIABLE)
    if not path:
        return
    line = json.dumps(
        {"pool": outcome.pool, "exit": int(outcome.exit_code), "nodes": dict(outcome.nodes), "error": outcome.error}
    )
    # One write to a file opened for appending stays in one piece: pools end in parallel.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def read(path: Path) -> tuple[PoolOutcome, ...]:
    """Everything that was appended; a line cut short by a kill is left out."""
    try:
        lines: Iterable[str] = path.read_text().splitlines()
    except FileNotFoundError:
        return ()
    found = []
    for line in lines:
        try:
            data = json.loads(line)
        except json.JSONDecodeError:
            continue
        found.append(PoolOutcome(data["pool"], errors.ExitCode(data["exit"]), data["nodes"], data["error"]))
    return tuple(found)
