"""Named migrations, in order. Each runs in one transaction together with its record and the schema version.

Before a file with records is migrated, a copy of it is made beside it and kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import time
from pathlib import Path

from hipfind.perfdb import schema
from hipfind.perfdb.copies import copy_whole, free_name
from hipfind.perfdb.faults import DbFault, Fault


@dataclasses.dataclass(frozen=True)
class Migration:
    """A step from one schema version to the next. Its name and statements never change once released."""

    name: str
    statements: tuple[str, ...]


MIGRATIONS: tuple[Migration, ...] = (
    Migration("find_and_perf_records", schema.FIRST_TABLES),
    Migration("reference_records", schema.REFERENCE_TABLES),
    Migration("refused_configs", schema.REFUSED_CONFIGS),
)
"""The n-th migration leads to schema version n."""


def schema_version(connection: sqlite3.Connection, path: str) -> int:
    """Version of the schema in the file, 0 for an empty one; reads only the file's header and list of tables.

    Raises DbFault for a file of another program (FOREIGN) or of a newer hipfind (NEWER); nothing is written.
    """
    if connection.in_transaction:
        application, version, has_tables = _identify(connection)
    else:  # one look: another process may be making the tables
        connection.execute("BEGIN")
        try:
            application, version, has_tables = _identify(connection)
        finally:
            _roll_back(connection)
    if application != schema.APPLICATION_ID and (application or version or has_tables):
        raise DbFault(Fault.FOREIGN, path, f"its application id is {application}")
    if version > len(MIGRATIONS):
        raise DbFault(Fault.NEWER, path, f"schema {version}, this hipfind knows up to {len(MIGRATIONS)}")
    return version


def _identify(connection: sqlite3.Connection) -> tuple[int, int, bool]:
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if application == schema.APPLICATION_ID:
        return application, version, True
    return application, version, connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None


def pending(connection: sqlite3.Connection, path: str) -> tuple[Migration, ...]:
    """Migrations that the file still needs, in order. Reads only."""
    return MIGRATIONS[schema_version(connection, path) :]


def migrate(connection: sqlite3.Connection, path: str) -> tuple[str, ...]:
    """Apply what is pending; returns the names. Safe when several processes open a new file at once.

    ``path`` "" is a DB in memory. Raises DbFault where the copy cannot be made; the file stays as it is then.
    """
    applied: list[str] = []
    while pending(connection, path):
        name = _apply_next(connection, path, is_first=not applied)
        if name:
            applied.append(name)
    return tuple(applied)


def _apply_next(connection: sqlite3.Connection, path: str, is_first: bool) -> str:
    """Apply the first pending migration; "" when another process was faster."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        waiting = pending(connection, path)
        if not waiting:
            return ""
        version = len(MIGRATIONS) - len(waiting) + 1
        if is_first and path and version > 1:
            _keep_a_copy(path, version - 1)
        for statement in (schema.MIGRATIONS_TABLE, *waiting[0].statements):
            connection.execute(statement)
        connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", (version, waiting[0].name, time.time()))
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
        return waiting[0].name
    finally:
        _roll_back(connection)


def _roll_back(connection: sqlite3.Connection) -> None:
    """End the transaction, if an error has not done so: that must not be hidden by another error."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _keep_a_copy(path: str, version: int) -> None:
    """Copy the file beside it, under the migration's write lock: so only one of several processes does."""
    file = Path(path).resolve()
    with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True, isolation_level=None)) as reader:
        copy_whole(reader, free_name(file, f"schema{version}"), "keeping a copy before its migration")
