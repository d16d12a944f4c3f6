"""The journal of one fleet: what was decided and done, apart from the machines and from the engine's state."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import sqlalchemy

from lockstep.base.journal import connection, leases, runs, tables, values

__all__ = ["Journal"]


class Journal:
    """Use as a context manager. Safe for several threads and processes; every call is one transaction."""

    def __init__(self, place: Path | str, fleet: str) -> None:
        self.fleet = fleet
        self._database = connection.Database(place)
        self.leases = leases.Leases(self._database, fleet)
        self.runs = runs.Runs(self._database, fleet)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    # Pools

    def pool_nodes(self, pool: str) -> tuple[str, ...] | None:
        """The nodes that the pool had when last brought into step; None for a pool never seen."""
        row = self._one(tables.pools, pool=pool)
        return tuple(json.loads(row.nodes)) if row is not None else None

    def see_pool(self, pool: str, nodes: Collection[str]) -> None:
        """Remember the pool's nodes; nothing else is done to those that are gone."""
        self._replace(tables.pools, {"pool": pool}, nodes=json.dumps(sorted(nodes)), seen=time.time())

    # Locks

    def keep_lock(self, full: str, job: str, text: str) -> None:
        """Keep a lock's whole canonical JSON under its digest; what is kept never changes."""
        table = tables.locks
        with self._database.write() as database:
            if database.execute(sqlalchemy.select(table.c.full).where(table.c.full == full)).first() is None:
                database.execute(sqlalchemy.insert(table).values(full=full, job=job, text=text))

    def lock_text(self, full: str) -> str | None:
        """The lock's JSON; None when this journal never held it."""
        table = tables.locks
        with self._database.read() as database:
            return database.execute(sqlalchemy.select(table.c.text).where(table.c.full == full)).scalar()

    def assign(self, node: str, serial: str, lock: str, job: str, previous: str | None) -> None:
        """Hold the machine to a lock from now on; ``previous`` counts as in step too until the roll-out ends."""
        self._replace(
            tables.assignments,
            {"node": node, "serial": serial},
            lock=lock,
            job=job,
            previous=previous,
            since=time.time(),
        )

    def assignment(self, node: str, serial: str) -> values.Assignment | None:
        """What that machine is held to; None for a machine never seen."""
        row = self._one(tables.assignments, node=node, serial=serial)
        return _assignment(row) if row is not None else None

    def assignments(self) -> dict[str, values.Assignment]:
        """Node → the newest assignment of the machines that stood there."""
        rows = self._all(tables.assignments, tables.assignments.c.since)
        return {row.node: _assignment(row) for row in rows}

    # Admissions and generations

    def admit(self, admission: values.Admission) -> None:
        """Record an admission."""
        table = tables.admissions
        with self._database.write() as database:
            database.execute(
                sqlalchemy.insert(table).values(
                    fleet=self.fleet,
                    node=admission.node,
                    slot=admission.slot,
                    serial=admission.serial,
                    generation=admission.generation,
                    lock=admission.lock,
                    job=admission.job,
                    versions=json.dumps(dict(admission.versions), sort_keys=True),
                    burnin=admission.burnin,
                    at=admission.at,
                )
            )

    def admissions(self) -> dict[str, values.Admission]:
        """Node → its newest admission."""
        return {row.node: _admission(row) for row in self._all(tables.admissions, tables.admissions.c.id)}

    def last_admission(self, slot: str, *, before_generation: int | None = None) -> values.Admission | None:
        """The newest admission in a slot, of a machine earlier than ``before_generation`` when given."""
        rows = self._all(tables.admissions, tables.admissions.c.id)
        found = [
            row
            for row in rows
            if row.slot == slot and (before_generation is None or row.generation < before_generation)
        ]
        return _admission(found[-1]) if found else None

    def generation(self, slot: str) -> int | None:
        """The generation of the machine in a slot; None for a slot never seen."""
        row = self._one(tables.generations, slot=slot)
        return int(row.generation) if row is not None else None

    def generations(self) -> dict[str, int]:
        """Slot → generation, of every slot ever seen."""
        return {row.slot: int(row.generation) for row in self._all(tables.generations, tables.generations.c.slot)}

    def record_generation(self, slot: str, generation: int) -> None:
        """Note which generation stands in a slot."""
        self._replace(tables.generations, {"slot": slot}, generation=generation, at=time.time())

    # Host keys

    def host_keys(self, node: str) -> values.HostKeys | None:
        """The keys of the newest generation; None when none were recorded."""
        return self.all_host_keys().get(node)

    def all_host_keys(self) -> dict[str, values.HostKeys]:
        """Node → the keys of its newest generation."""
        return {
            row.node: values.HostKeys(row.node, row.generation, tuple(json.loads(row.keys)), row.origin, row.at)
            for row in self._all(tables.host_keys, tables.host_keys.c.generation)
        }

    def pin_host_keys(self, node: str, generation: int, keys: Sequence[str], origin: str) -> None:
        """Accept exactly ``keys`` for the machine of that generation; earlier generations' are refused from now on."""
        self._replace(
            tables.host_keys,
            {"node": node, "generation": generation},
            keys=json.dumps(list(keys)),
            origin=origin,
            at=time.time(),
        )

    # Fences

    def fences(self) -> dict[str, values.Fence]:
        """Node → our taint or cordon there."""
        return {
            row.node: values.Fence(row.node, values.FenceKind(row.kind), row.reason, row.at)
            for row in self._all(tables.fences, tables.fences.c.node)
        }

    def fence(self, node: str, kind: values.FenceKind, reason: str) -> None:
        """Record our taint or cordon before it is set, so that a killed run's is found and lifted."""
        self._replace(tables.fences, {"node": node}, kind=str(kind), reason=reason, at=time.time())

    def unfence(self, node: str) -> None:
        """Forget it, after it was lifted."""
        with self._database.write() as database:
            database.execute(sqlalchemy.delete(tables.fences).where(*self._where(tables.fences, {"node": node})))

    # Findings

    def findings_seen(self, pool: str) -> frozenset[str] | None:
        """Deviations as `pinsets.causes.seen` writes them, of the last reading that was acted on; None: never read."""
        row = self._one(tables.findings_seen, pool=pool)
        return frozenset(json.loads(row.seen)) if row is not None else None

    def see_findings(self, pool: str, seen: Collection[str]) -> None:
        """Remember them: what is remembered is not new, so it is no common cause next time."""
        self._replace(tables.findings_seen, {"pool": pool}, seen=json.dumps(sorted(seen)), at=time.time())

    # Rows

    def _where(self, table: sqlalchemy.Table, key: Mapping[str, object]) -> list[sqlalchemy.ColumnElement[bool]]:
        return [table.c.fleet == self.fleet, *(table.c[name] == value for name, value in key.items())]

    def _one(self, table: sqlalchemy.Table, **key: object) -> sqlalchemy.Row[Any] | None:
        with self._database.read() as database:
            return database.execute(sqlalchemy.select(table).where(*self._where(table, key))).first()

    def _all(self, table: sqlalchemy.Table, order: sqlalchemy.ColumnElement[Any]) -> Sequence[sqlalchemy.Row[Any]]:
        with self._database.read() as database:
            return database.execute(sqlalchemy.select(table).where(*self._where(table, {})).order_by(order)).all()

    def _replace(self, table: sqlalchemy.Table, key: Mapping[str, object], **columns: object) -> None:
        with self._database.write() as database:
            done = database.execute(sqlalchemy.update(table).where(*self._where(table, key)).values(**columns))
            if done.rowcount == 0:
                database.execute(sqlalchemy.insert(table).values(fleet=self.fleet, **key, **columns))


def _assignment(row: sqlalchemy.Row[Any]) -> values.Assignment:
    return values.Assignment(row.node, row.serial, row.lock, row.job, row.previous, row.since)


def _admission(row: sqlalchemy.Row[Any]) -> values.Admission:
    return values.Admission(
        row.node,
        row.slot,
        row.serial,
        row.generation,
        row.lock,
        row.job,
        json.loads(row.versions),
        row.burnin,
        row.at,
    )
