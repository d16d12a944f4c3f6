"""Opening the journal's database: private file, WAL, schema check; transactions for readers and for writers."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import event, exc
from sqlalchemy.pool import NullPool

from lockstep.base import errors
from lockstep.base.journal import tables

__all__ = ["Database"]

BUSY_SECONDS = 20.0
"""How long a writer waits for another one; every transaction here takes milliseconds."""
WRITERS_LOCK = 5_417_329
"""Key of the advisory lock that makes writers wait for each other on PostgreSQL; any number that nothing else uses."""


class Database:
    """One database, by path (SQLite) or URL; safe for several processes and threads."""

    def __init__(self, place: Path | str) -> None:
        if isinstance(place, Path):
            _private_file(place)
        self._sqlite = isinstance(place, Path) or place.startswith("sqlite")
        options: dict[str, Any] = {"connect_args": {"timeout": BUSY_SECONDS}} if self._sqlite else {}
        try:
            url = sqlalchemy.make_url(f"sqlite:///{place}" if isinstance(place, Path) else place)
            # No pool: a connection is a file, opening it is cheap, and nothing has to survive a fork.
            self._engine = sqlalchemy.create_engine(url, poolclass=NullPool, **options)
        except ModuleNotFoundError as error:
            raise errors.InputError(
                f"the database needs the Python package {error.name}, which is not installed",
                place="LOCKSTEP_JOURNAL",
                hint="for PostgreSQL install `lockstep-fleet[postgresql]`",
            ) from error
        except (exc.ArgumentError, exc.NoSuchModuleError, ValueError) as error:
            # The text itself stays unsaid: it may hold a password where none is looked for.
            raise errors.InputError(
                "not a database URL", place="LOCKSTEP_JOURNAL", hint="postgresql://USER:PASSWORD@HOST/DATABASE"
            ) from error
        self.shown = str(place) if isinstance(place, Path) else url.render_as_string()
        self._remedy = (
            "is the disk full, or the folder gone?"
            if isinstance(place, Path)
            else "does the server of LOCKSTEP_JOURNAL run, and may this user use the database?"
        )
        if self._sqlite:
            event.listen(self._engine, "connect", _on_connect)
            event.listen(self._engine, "begin", _on_begin)
        self._check_schema()

    def close(self) -> None:
        """Let go of the database; the object is of no use afterwards."""
        self._engine.dispose()

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlalchemy.Connection]:
        """A transaction that sees one state."""
        with self._translated(), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[sqlalchemy.Connection]:
        """A transaction that is alone among writers from its first statement on, so read-then-write is safe."""
        with self._translated(), self._engine.connect() as opened:
            connection = opened.execution_options(lockstep_write=True)
            with connection.begin():
                if connection.dialect.name == "postgresql":
                    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITERS_LOCK})")
                yield connection

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except exc.OperationalError as error:
            reason = str(error.orig).splitlines()[0] if error.orig else type(error).__name__
            raise errors.EngineError(
                f"the journal cannot be used: {reason}", place=self.shown, hint=self._remedy
            ) from error
        except exc.DatabaseError as error:
            reason = str(error.orig).splitlines()[0] if error.orig else type(error).__name__
            raise errors.EngineError(
                f"the journal cannot be read: {reason}",
                place=self.shown,
                hint="move the file away; nodes are adopted anew",
            ) from error

    def _check_schema(self) -> None:
        with self.write() as connection:
            tables.metadata.create_all(connection)
            found = connection.execute(
                sqlalchemy.select(tables.meta.c.value).where(tables.meta.c.name == "schema")
            ).scalar()
            if found is None:
                connection.execute(
                    sqlalchemy.insert(tables.meta),
                    [{"name": "schema", "value": str(tables.SCHEMA)}, {"name": "journal", "value": str(uuid.uuid4())}],
                )
            elif int(found) > tables.SCHEMA:
                raise errors.RefusedError(
                    f"the journal has schema {found}, this program knows {tables.SCHEMA}",
                    place=self.shown,
                    hint="use the newer checkout that wrote it",
                )


def _private_file(path: Path) -> None:
    """Make the file 0600 in a folder 0700 before SQLite makes it with the umask's mode."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise errors.EngineError(f"the journal cannot be opened: {error.strerror}", place=str(path)) from error


def _on_connect(connection: sqlite3.Connection, _record: object) -> None:
    # The driver's own transaction handling begins none before reads and commits at will; ours is explicit.
    connection.isolation_level = None
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError:
            # The switch to WAL, once in a file's life, does not wait for another opener by itself.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    connection.execute("PRAGMA synchronous = FULL")


def _on_begin(connection: sqlalchemy.Connection) -> None:
    write = connection.get_execution_options().get("lockstep_write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
