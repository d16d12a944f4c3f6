"""The journal: pools, locks, runs, leases, admissions, generations, host keys, fences. SQLite, or any SQLAlchemy URL.

May import: the standard library, SQLAlchemy, `lockstep.base`. Importing it is cheap:
SQLAlchemy comes in with the first journal that is opened.
"""

from typing import TYPE_CHECKING

from lockstep.base.journal.opening import open_for, open_if_there
from lockstep.base.journal.values import (
    Admission,
    Assignment,
    Attempt,
    AttemptOutcome,
    Fence,
    FenceKind,
    HostKeys,
    Lease,
    Owner,
    Replacement,
    ReplacementStep,
)

if TYPE_CHECKING:
    from lockstep.base.journal.leases import Held, Leases
    from lockstep.base.journal.store import Journal

__all__ = [
    "Admission",
    "Assignment",
    "Attempt",
    "AttemptOutcome",
    "Fence",
    "FenceKind",
    "Held",
    "HostKeys",
    "Journal",
    "Lease",
    "Leases",
    "Owner",
    "Replacement",
    "ReplacementStep",
    "open_for",
    "open_if_there",
]

_LATE = {"Held": "leases", "Leases": "leases", "Journal": "store"}


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_LATE[name]}"), name)
