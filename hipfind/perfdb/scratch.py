"""A perf DB file that an import fills before anything is merged: fast, and without promises if the power fails."""

from __future__ import annotations

import sqlite3

from hipfind.perfdb.lines import RECORD_TABLES, SOURCE_COLUMNS, Line
from hipfind.perfdb.store import PerfDb
from hipfind.perfdb.tables import (
    ENVIRONMENTS,
    PROBLEMS,
    TARGETS,
    OwnerTable,
    Row,
)

_BATCH = 2000
_PRAGMAS = ("journal_mode = DELETE", "journal_mode = OFF", "synchronous = OFF", "cache_size = -65536")
_SOURCES = OwnerTable("reference_sources", SOURCE_COLUMNS)
_PROBLEM = f"{PROBLEMS.insert} ON CONFLICT (key) DO NOTHING"
_REFERENCE = (
    "INSERT INTO reference_records (target, source, form, miopen_key, value, best_solver, best_ms, problem) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, (SELECT id FROM problems WHERE key = ?))"
)


class Scratch:
    """Fills an empty perf DB with rows that are checked already. ``flush`` at the end."""

    def __init__(self, db: PerfDb) -> None:
        self._db = db
        self._ids: dict[tuple[str, str], int] = {}
        self._seen: set[tuple[object, ...]] = set()
        self._problems: list[Row] = []
        self._references: list[Row] = []
        self._records: dict[str, list[Row]] = {kind: [] for kind in RECORD_TABLES}
        db.run("preparing an import", _set_pragmas)

    def reference_owner(self, target: Row, source: Row) -> tuple[int, int]:
        """Ids of a device and of the file that its records came from."""
        return self._id(TARGETS, target), self._id(_SOURCES, source)

    def add_reference(self, owner: tuple[int, int], record: Row, problem: Row | None) -> bool:
        """Add form, key, value, fastest solver and its time. False where the device has this key already."""
        form, key = record[:2]
        if not self._is_new(owner[0], form, key):
            return False
        if problem is not None:
            self._problems.append(problem)
        self._references.append((*owner, *record, None if problem is None else problem[0]))
        self._flush_when_many()
        return True

    def add_record(self, line: Line) -> bool:
        """Add a find record or a perf record. False where the file has this one already."""
        assert line.problem is not None
        target, environment = self._id(TARGETS, line.target), self._id(ENVIRONMENTS, line.owner)
        solver = line.record[RECORD_TABLES[line.kind].columns.index("solver_id")]
        if not self._is_new(line.kind, line.problem[0], target, environment, solver):
            return False
        self._problems.append(line.problem)
        *record, created_at = line.record
        self._records[line.kind].append((*record, line.problem[0], target, environment, created_at))
        self._flush_when_many()
        return True

    def flush(self) -> None:
        """Write what is waiting."""
        self._db.write("reading an import", self._write)

    def _is_new(self, *key: object) -> bool:
        is_new = key not in self._seen
        self._seen.add(key)
        return is_new

    def _id(self, table: OwnerTable, row: Row) -> int:
        found = self._ids.get((table.name, row[0]))
        if found is None:
            found = self._db.write("reading an import", lambda connection: _made(connection, table, row))
            self._ids[table.name, row[0]] = found
        return found

    def _flush_when_many(self) -> None:
        if len(self._problems) >= _BATCH or len(self._references) >= _BATCH:
            self.flush()

    def _write(self, connection: sqlite3.Connection) -> None:
        connection.executemany(_PROBLEM, self._problems)
        connection.executemany(_REFERENCE, self._references)
        for kind, rows in self._records.items():
            connection.executemany(_record_insert(kind), rows)
            rows.clear()
        self._problems.clear()
        self._references.clear()


def _set_pragmas(connection: sqlite3.Connection) -> None:
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").fetchall()


def _made(connection: sqlite3.Connection, table: OwnerTable, row: Row) -> int:
    return connection.execute(table.insert, row).lastrowid or 0


def _record_insert(kind: str) -> str:
    """Takes the record's columns, the problem's key, the ids of target and environment, the time of writing."""
    table = RECORD_TABLES[kind]
    marks = ", ".join("?" * len(table.columns))
    return (
        f"INSERT INTO {table.name} ({', '.join(table.columns)}, problem, target, environment, created_at) "
        f"VALUES ({marks}, (SELECT id FROM problems WHERE key = ?), ?, ?, ?)"
    )
