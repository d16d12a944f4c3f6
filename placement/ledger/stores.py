"""What a ledger needs of a store: read a record, replace it if nobody else did in between."""

from __future__ import annotations

from typing import Protocol

from lockstep.base import errors
from placement.ledger.records import Record

__all__ = ["Conflict", "Memory", "Store", "Versioned"]


class Conflict(errors.BusyError):
    """The record changed since it was read; read again and decide again."""


Versioned = tuple[Record, str]
"""A record and the store's version of it; the version is opaque and only compared by the store."""


class Store(Protocol):
    """Records by domain. Every call may suspend; between two calls anything may happen."""

    async def read(self, domain: str) -> Versioned:
        """The current record; an empty one for a domain never written."""

    async def replace(self, record: Record, version: str) -> Versioned:
        """Write ``record`` over ``version``. Raises `Conflict` if that is not the current version any more."""

    async def domains(self) -> list[str]:
        """Every domain that has a record."""


class Memory:
    """A store inside this process, for simulations and tests; atomic because it never suspends inside a call."""

    def __init__(self) -> None:
        self._records: dict[str, tuple[Record, int]] = {}

    async def read(self, domain: str) -> Versioned:
        """See `Store`."""
        record, version = self._records.get(domain, (Record(domain), 0))
        return record, str(version)

    async def replace(self, record: Record, version: str) -> Versioned:
        """See `Store`."""
        _, current = self._records.get(record.domain, (None, 0))
        if version != str(current):
            raise Conflict(f"domain {record.domain} was changed by another planner", place=f"version {version}")
        self._records[record.domain] = (record, current + 1)
        return record, str(current + 1)

    async def domains(self) -> list[str]:
        """See `Store`."""
        return sorted(self._records)
