"""Other people's SQL on a perf DB: reading only, because sqlite refuses the rest, not because somebody parsed it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from hipfind.errors import PerfDbError
from hipfind.perfdb.faults import Fault, fault_of
from hipfind.perfdb.store import PerfDb
from hipfind.perfdb.tables import Row

_STEPS = 100_000
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})


def run_sql(db: PerfDb, sql: str, parameters: Sequence[Any] = (), limit: int = -1) -> tuple[list[str], list[Row]]:
    """Column names and rows of one SELECT, ``limit`` rows at most (-1: all).

    Writing, ATTACH, PRAGMA and loading extensions are refused by sqlite's authorizer, on a connection that is
    read-only anyway. Raises PerfDbError for SQL that is not legal or not allowed.
    """

    def work(connection: sqlite3.Connection) -> tuple[list[str], list[Row]]:
        connection.set_authorizer(_authorize)
        connection.set_progress_handler(lambda: 0, _STEPS)  # lets an interrupt end a query that runs for ever
        try:
            cursor = connection.execute(sql, parameters)
            rows = cursor.fetchall() if limit < 0 else cursor.fetchmany(limit)
            names = [column[0] for column in cursor.description or ()]
            cursor.close()
            return names, rows
        except (sqlite3.Error, sqlite3.Warning) as error:
            if not isinstance(error, sqlite3.Error) or fault_of(error) in (Fault.OTHER, Fault.READ_ONLY):
                raise PerfDbError(
                    f"this SQL cannot be run: {error}",
                    got=sql,
                    remedy="legal: one SELECT, e.g. SELECT solver, count(*) FROM results GROUP BY 1",
                ) from error
            raise
        finally:
            connection.set_progress_handler(None, 0)
            connection.set_authorizer(_allow)

    return db.run("running SQL", work)


def _authorize(action: int, first: str | None, second: str | None, *where: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION and second == "load_extension":
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _allow(*action: object) -> int:
    """Python before 3.11 cannot take an authorizer away again."""
    return sqlite3.SQLITE_OK
