"""Where a fleet's journal lies, and opening it. Light: the database comes in only when there is one to open."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.base import settings as settings_module

if TYPE_CHECKING:
    from lockstep.base.journal.store import Journal

__all__ = ["open_for", "open_if_there"]


def open_for(settings: settings_module.Settings, fleet: str) -> Journal:
    """The journal of ``fleet`` in `settings.state`/journal.db, made when missing, or at the URL in LOCKSTEP_JOURNAL."""
    from lockstep.base.journal import store

    return store.Journal(_place(settings), fleet)


def open_if_there(settings: settings_module.Settings, fleet: str) -> Journal | None:
    """As `open_for`, but None where no journal exists yet: a reader leaves nothing behind."""
    place = _place(settings)
    if isinstance(place, Path) and not place.is_file():
        return None
    from lockstep.base.journal import store

    return store.Journal(place, fleet)


def _place(settings: settings_module.Settings) -> Path | str:
    return os.environ.get("LOCKSTEP_JOURNAL") or settings.state / "journal.db"
