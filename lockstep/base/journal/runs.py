"""Runs and what they did to each node: the record that a killed run is gone on with from."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Collection, Mapping

import sqlalchemy

from lockstep.base.journal import connection, tables, values

__all__ = ["Runs"]

_T = tables.attempts


class Runs:
    """The runs, attempts and replacements of one fleet."""

    def __init__(self, database: connection.Database, fleet: str) -> None:
        self._database = database
        self._fleet = fleet

    def begin(self, verb: str, pool: str) -> int:
        """Record that a run starts; its number."""
        with self._database.write() as database:
            done = database.execute(
                sqlalchemy.insert(tables.runs).values(
                    fleet=self._fleet,
                    verb=verb,
                    pool=pool,
                    owner=json.dumps(dataclasses.asdict(values.Owner.this_process())),
                    started=time.time(),
                )
            )
            return _new_id(done)

    def end(self, run: int, outcome: str) -> None:
        """Record how a run ended, in one word or sentence."""
        with self._database.write() as database:
            database.execute(
                sqlalchemy.update(tables.runs).where(tables.runs.c.id == run).values(ended=time.time(), outcome=outcome)
            )

    def start_stage(
        self, run: int, node: str, serial: str, generation: int, stage: str, lock: str, boot_id: str | None
    ) -> int:
        """Record that a stage of a node starts, before anything is done to it; the attempt's number."""
        with self._database.write() as database:
            done = database.execute(
                sqlalchemy.insert(_T).values(
                    run=run,
                    fleet=self._fleet,
                    node=node,
                    serial=serial,
                    generation=generation,
                    stage=stage,
                    lock=lock,
                    started=time.time(),
                    reason="",
                    boot_before=boot_id,
                )
            )
            return _new_id(done)

    def end_stage(
        self, attempt: int, outcome: values.AttemptOutcome, reason: str = "", boot_id: str | None = None
    ) -> None:
        """Record how it ended, after its verify."""
        with self._database.write() as database:
            database.execute(
                sqlalchemy.update(_T)
                .where(_T.c.id == attempt)
                .values(ended=time.time(), outcome=str(outcome), reason=reason, boot_after=boot_id)
            )

    def attempts(self, node: str | None = None) -> list[values.Attempt]:
        """Every stage record, oldest first; of one node when it is named."""
        query = sqlalchemy.select(_T).where(_T.c.fleet == self._fleet).order_by(_T.c.id)
        if node is not None:
            query = query.where(_T.c.node == node)
        with self._database.read() as database:
            return [_attempt(row) for row in database.execute(query)]

    def interrupted(self, *, also_failed: Collection[str] = ()) -> dict[str, values.Attempt]:
        """Node → its newest stage record, where that one never ended: the run was killed in it, or is still in it.

        ``also_failed`` names stages whose newest record counts as well when it failed.
        """
        newest = sqlalchemy.select(sqlalchemy.func.max(_T.c.id)).where(_T.c.fleet == self._fleet).group_by(_T.c.node)
        bad = [str(values.AttemptOutcome.FAILED), str(values.AttemptOutcome.LOST)]
        failed = sqlalchemy.and_(_T.c.stage.in_(list(also_failed)), _T.c.outcome.in_(bad))
        query = sqlalchemy.select(_T).where(_T.c.id.in_(newest), sqlalchemy.or_(_T.c.ended.is_(None), failed))
        with self._database.read() as database:
            return {row.node: _attempt(row) for row in database.execute(query)}

    def done(self, stage: str) -> frozenset[tuple[str, str, str]]:
        """(node, serial, lock) of every machine that passed a stage on a lock."""
        query = (
            sqlalchemy.select(_T.c.node, _T.c.serial, _T.c.lock)
            .where(_T.c.fleet == self._fleet, _T.c.stage == stage, _T.c.outcome == str(values.AttemptOutcome.DONE))
            .distinct()
        )
        with self._database.read() as database:
            return frozenset((row.node, row.serial, row.lock) for row in database.execute(query))

    def begin_replacement(self, node: str, slot: str, generation: int) -> values.Replacement:
        """The replacement of that slot that never ended, else a new one for the machine of ``generation``."""
        table = tables.replacements
        with self._database.write() as database:
            open_id = database.execute(
                sqlalchemy.select(table.c.id).where(
                    table.c.fleet == self._fleet, table.c.slot == slot, table.c.ended.is_(None)
                )
            ).scalar()
            if open_id is None:
                database.execute(
                    sqlalchemy.insert(table).values(
                        fleet=self._fleet, node=node, slot=slot, generation=generation, started=time.time()
                    )
                )
        found = self.open_replacement(slot)
        assert found is not None  # noqa: S101 - written above, and nothing deletes it
        return found

    def open_replacement(self, slot: str) -> values.Replacement | None:
        """The replacement of that slot that has not ended; None when there is none."""
        table, steps = tables.replacements, tables.replacement_steps
        with self._database.read() as database:
            row = database.execute(
                sqlalchemy.select(table).where(
                    table.c.fleet == self._fleet, table.c.slot == slot, table.c.ended.is_(None)
                )
            ).first()
            if row is None:
                return None
            done = database.execute(
                sqlalchemy.select(steps).where(steps.c.replacement == row.id).order_by(steps.c.at)
            ).all()
        return values.Replacement(
            row.id,
            row.node,
            row.slot,
            row.generation,
            row.started,
            row.ended,
            tuple(values.ReplacementStep(step.name, step.at, json.loads(step.detail)) for step in done),
        )

    def open_replacements(self) -> frozenset[str]:
        """Slots whose replacement has not ended."""
        table = tables.replacements
        query = sqlalchemy.select(table.c.slot).where(table.c.fleet == self._fleet, table.c.ended.is_(None))
        with self._database.read() as database:
            return frozenset(row.slot for row in database.execute(query))

    def step_done(self, replacement: int, name: str, detail: Mapping[str, str] | None = None) -> None:
        """Record a step as done, with what later steps need; a second record of the same step changes nothing."""
        table = tables.replacement_steps
        with self._database.write() as database:
            known = database.execute(
                sqlalchemy.select(table.c.name).where(table.c.replacement == replacement, table.c.name == name)
            ).first()
            if known is None:
                database.execute(
                    sqlalchemy.insert(table).values(
                        replacement=replacement, name=name, at=time.time(), detail=json.dumps(dict(detail or {}))
                    )
                )

    def end_replacement(self, replacement: int) -> float:
        """Close it; the time to repair in seconds."""
        table = tables.replacements
        now = time.time()
        with self._database.write() as database:
            started = database.execute(sqlalchemy.select(table.c.started).where(table.c.id == replacement)).scalar_one()
            database.execute(sqlalchemy.update(table).where(table.c.id == replacement).values(ended=now))
        return now - float(started)


def _new_id(done: sqlalchemy.CursorResult[tuple[object, ...]]) -> int:
    key = done.inserted_primary_key
    assert key is not None  # noqa: S101 - every insert here is into a table with a generated key
    return int(key[0])


def _attempt(row: sqlalchemy.Row[tuple[object, ...]]) -> values.Attempt:
    return values.Attempt(
        row.id,
        row.run,
        row.node,
        row.serial,
        row.generation,
        row.stage,
        row.lock,
        row.started,
        row.ended,
        values.AttemptOutcome(row.outcome) if row.outcome else None,
        row.reason,
        row.boot_before,
        row.boot_after,
    )
