"""Node leases with fencing tokens: at most one process acts on a node."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
import time
from collections.abc import Collection, Iterator

import sqlalchemy

from lockstep.base import errors, limits
from lockstep.base.journal import connection, tables, values

__all__ = ["Held", "Leases"]

_T = tables.leases


class Leases:
    """The leases of one fleet."""

    def __init__(self, database: connection.Database, fleet: str) -> None:
        self._database = database
        self._fleet = fleet

    def take(
        self, nodes: Collection[str], purpose: str, *, seconds: float = limits.LEASE_SECONDS
    ) -> dict[str, values.Lease]:
        """Leases on all of ``nodes``, or on none.

        A dead owner on this host is replaced at once, an expired one anywhere too.
        Raises `errors.BusyError` naming node and holder when another one holds an
        unexpired lease; this process is no exception, so two threads do not share a node.
        """
        owner = values.Owner.this_process()
        now = time.time()
        taken: dict[str, values.Lease] = {}
        with self._database.write() as database:
            rows = self._rows(database)
            for node in sorted(nodes):
                row = rows.get(node)
                holder = _owner(row)
                if row is not None and holder is not None and row.expires > now and not holder.is_dead_here():
                    raise errors.BusyError(
                        f"{node} is held by {holder} for {row.purpose}, {row.expires - now:.0f} s more",
                        place=node,
                        hint="wait for it to end; a dead holder on this host is replaced at once",
                    )
                token = (row.token if row is not None else 0) + 1
                taken[node] = values.Lease(node, token, owner, purpose, now + seconds)
                self._put(database, taken[node], known=row is not None)
        return taken

    def renew(self, leases: Collection[values.Lease], *, seconds: float = limits.LEASE_SECONDS) -> list[values.Lease]:
        """The leases with a later end. Raises `errors.BusyError` when one is ours no longer: its holder must stop."""
        renewed = [dataclasses.replace(lease, expires=time.time() + seconds) for lease in leases]
        with self._database.write() as database:
            rows = self._rows(database)
            for lease in renewed:
                row = rows.get(lease.node)
                if row is None or row.token != lease.token or row.owner is None:
                    raise errors.BusyError(f"the lease on {lease.node} was lost", place=lease.node)
                self._put(database, lease, known=True)
        return renewed

    def release(self, leases: Collection[values.Lease]) -> None:
        """Free them; one that another holder took since is left alone. The token stays, so it only grows."""
        with self._database.write() as database:
            for lease in leases:
                database.execute(
                    sqlalchemy.update(_T)
                    .where(_T.c.fleet == self._fleet, _T.c.node == lease.node, _T.c.token == lease.token)
                    .values(owner=None, expires=0.0)
                )

    def holder(self, node: str) -> values.Lease | None:
        """Who holds the node now; None when it is free, expired, or its owner is known to be dead."""
        with self._database.read() as database:
            row = self._rows(database).get(node)
        owner = _owner(row)
        if row is None or owner is None or row.expires <= time.time() or owner.is_dead_here():
            return None
        return values.Lease(node, row.token, owner, row.purpose, row.expires)

    @contextlib.contextmanager
    def holding(self, nodes: Collection[str], purpose: str, *, seconds: float = limits.LEASE_SECONDS) -> Iterator[Held]:
        """Hold ``nodes`` for the length of the block, renewed in the background. Raises as `take` does."""
        held = Held(self, self.take(nodes, purpose, seconds=seconds), seconds)
        try:
            yield held
        finally:
            held.end()

    def _rows(self, database: sqlalchemy.Connection) -> dict[str, sqlalchemy.Row[tuple[object, ...]]]:
        rows = database.execute(sqlalchemy.select(_T).where(_T.c.fleet == self._fleet))
        return {row.node: row for row in rows}

    def _put(self, database: sqlalchemy.Connection, lease: values.Lease, *, known: bool) -> None:
        columns = {
            "token": lease.token,
            "owner": json.dumps(dataclasses.asdict(lease.owner)),
            "purpose": lease.purpose,
            "expires": lease.expires,
        }
        if known:
            database.execute(
                sqlalchemy.update(_T).where(_T.c.fleet == self._fleet, _T.c.node == lease.node).values(**columns)
            )
        else:
            database.execute(sqlalchemy.insert(_T).values(fleet=self._fleet, node=lease.node, **columns))


class Held:
    """Leases kept alive by a thread while a block runs."""

    def __init__(self, leases: Leases, taken: dict[str, values.Lease], seconds: float) -> None:
        self._leases = leases
        self._taken = taken
        self._seconds = seconds
        self._ending = threading.Event()
        self._lost: errors.LockstepError | None = None
        self._thread = threading.Thread(target=self._keep, name="leases", daemon=True)
        self._thread.start()

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes held."""
        return frozenset(self._taken)

    def check(self) -> None:
        """Raise `errors.BusyError` when a lease was lost meanwhile: an act must call this first."""
        if self._lost is not None:
            raise self._lost
        self._leases.renew(self._taken.values(), seconds=self._seconds)

    def end(self) -> None:
        """Stop renewing and free them."""
        self._ending.set()
        self._thread.join()
        self._leases.release(self._taken.values())

    def _keep(self) -> None:
        while not self._ending.wait(self._seconds / 3):
            try:
                self._leases.renew(self._taken.values(), seconds=self._seconds)
            except errors.LockstepError as error:
                # Kept for `check`, which the next act calls in the thread that acts.
                self._lost = error
                return


def _owner(row: sqlalchemy.Row[tuple[object, ...]] | None) -> values.Owner | None:
    if row is None or row.owner is None:
        return None
    return values.Owner(**json.loads(row.owner))
