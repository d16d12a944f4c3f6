"""Fleet files by the reference that the state holds, each read once per process."""

from __future__ import annotations

import threading

from inventory import load, model
from lockstep.base import errors, settings

__all__ = ["Fleets", "pool"]


class Fleets:
    """A cache: Check and Read of every pool ask for the same fleet, and 100,000 nodes take seconds to unfold."""

    def __init__(self, where: settings.Settings) -> None:
        self.where = where
        self._known: dict[str, model.Fleet] = {}
        self._lock = threading.Lock()

    def get(self, reference: str) -> model.Fleet:
        """The fleet of a name or absolute path. Raises `errors.InputError`; that is not remembered."""
        with self._lock:
            if reference not in self._known:
                self._known[reference] = load.fleet(reference, self.where)
            return self._known[reference]


def pool(fleet: model.Fleet, name: str) -> model.Pool:
    """The pool of that name. Raises `errors.InputError` when the file has none (any more)."""
    for candidate in fleet.pools:
        if candidate.name == name:
            return candidate
    raise errors.InputError(f"the fleet file has no pool `{name}` any more", place=str(fleet.path))
