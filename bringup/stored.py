"""Snapshots kept in the state folder: written after a live reading, read for `--facts snapshot`."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Collection, Mapping
from pathlib import Path

from bringup import folders
from inventory.model import Sku
from lockstep.base import errors, limits
from lockstep.base.names import ComponentName, NodeName
from lockstep.base.settings import Settings
from pinsets import snapshots
from pinsets.facts import Snapshot
from pinsets.model import Component

__all__ = ["before", "folder", "latest", "load", "merge", "save"]

_SUFFIX = ".jsonl.gz"


def folder(settings: Settings) -> Path:
    """Where a fleet's snapshots lie."""
    return settings.state / "snapshots"


def _listed(settings: Settings, fleet: str) -> list[Path]:
    """Oldest first: names hold the time of the reading in UTC."""
    return sorted(folder(settings).glob(f"{fleet}-[0-9]*T[0-9]*Z{_SUFFIX}"))


def latest(settings: Settings, fleet: str) -> Path | None:
    """The newest stored snapshot of a fleet."""
    listed = _listed(settings, fleet)
    return listed[-1] if listed else None


def before(settings: Settings, fleet: str, when: float) -> Path | None:
    """The newest one that was taken at that time (Unix seconds) or earlier."""
    limit = f"{fleet}-{datetime.datetime.fromtimestamp(when, datetime.UTC):%Y%m%dT%H%M%S.%f}Z{_SUFFIX}"
    older = [path for path in _listed(settings, fleet) if path.name <= limit]
    return older[-1] if older else None


def save(snapshot: Snapshot, settings: Settings, fleet: str) -> Path:
    """Write it beside the earlier ones and drop the oldest. Raises OSError."""
    place = folder(settings)
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    moment = datetime.datetime.fromtimestamp(snapshot.taken_at, datetime.UTC)
    path = place / f"{fleet}-{moment:%Y%m%dT%H%M%S.%f}Z{_SUFFIX}"
    snapshots.write(path, snapshot)
    for old in _listed(settings, fleet)[: -limits.SNAPSHOTS_KEPT]:
        with contextlib.suppress(OSError):
            old.unlink()
    return path


def merge(older: Snapshot | None, newer: Snapshot, members: Collection[NodeName]) -> Snapshot:
    """A reading of some nodes over an earlier one of all: each node keeps the time at which it was read."""
    if older is None:
        return newer
    kept = {name: facts for name, facts in older.nodes.items() if name in members}
    return dataclasses.replace(newer, nodes={**kept, **newer.nodes})


def load(
    facts: str,
    settings: Settings,
    fleet: str,
    components: Mapping[ComponentName, Component],
    skus: Mapping[NodeName, Sku],
) -> tuple[Snapshot, Path]:
    """``snapshot``: the newest stored one; else a path: a stored file, or a folder of probe outputs ``NODE.jsonl``.

    Raises `errors.NotMeasuredError` when there is none, `errors.InputError` when it cannot be read.
    """
    if facts != "snapshot":
        path = Path(facts).expanduser()
    elif (newest := latest(settings, fleet)) is not None:
        path = newest
    else:
        raise errors.NotMeasuredError(
            f"no snapshot of fleet {fleet} in {folder(settings)}", hint=f"take one: lockstep audit {fleet}"
        )
    if path.is_dir():
        return folders.read(path, components, skus), path
    try:
        return snapshots.read(path), path
    except OSError as error:
        raise errors.InputError(f"cannot read it: {error.strerror}", place=str(path)) from error
    except (ValueError, EOFError) as error:
        raise errors.InputError(f"not a snapshot: {error}", place=str(path)) from error
