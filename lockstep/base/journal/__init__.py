"""The journal: pools, locks, runs, leases, admissions, generations, host keys, fences. SQLite, or any SQLAlchemy URL.

May import: the standard library, SQLAlchemy, `lockstep.base`.
"""

from lockstep.base.journal.leases import Held, Leases
from lockstep.base.journal.store import Journal, open_for, open_if_there
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
