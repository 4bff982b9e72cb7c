"""Reads what can still be read of a damaged perf DB, row by row, and stores it in another one.

The damaged file is only read: the work is done on a copy. Where the file's header or its first page is damaged, those
of a new perf DB take their place, since every perf DB begins alike.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hipfind.perfdb.faults import DbFault, printable
from hipfind.perfdb.migrations import migrate
from hipfind.perfdb.store import PerfDb

_log = logging.getLogger("hipfind.perfdb")

OWNERS = {
    "problems": "key",
    "targets": "key",
    "environments": "fingerprint",
    "reference_sources": "digest",
}
"""Tables that records belong to, with the column that identifies a row."""
RECORDS: dict[str, dict[str, str]] = {
    "find_records": {"problem": "problems", "target": "targets", "environment": "environments"},
    "perf_records": {"problem": "problems", "target": "targets", "environment": "environments"},
    "reference_records": {"problem": "problems", "target": "targets", "source": "reference_sources"},
    "superseded": {},
}
"""Tables of records: which columns name rows of which owners."""
_FIRST = ("problems", "targets", "environments", "find_records", "perf_records")
"""Tables of the first schema: their place in the file is the same in every perf DB."""
_KEYED_BY_PROBLEM = ("find_records", "perf_records")
_HEADER_BYTES = 100
_PAGE_BYTES = 4096
_BATCH = 500
_FAR = 2**40
_TYPES: dict[str, type | tuple[type, ...]] = {"TEXT": str, "INTEGER": int, "REAL": (float, int)}

Row = tuple[Any, ...]
Repair = Callable[[bytes, bytes], bytes]


def salvage(damaged: Path, open_new: Callable[[], PerfDb]) -> int:
    """Store every readable record of the file ``damaged`` in the DB that ``open_new`` opens; returns how many.

    What that DB has already stays. ``open_new`` is called only when there is something to store. No fault leaves:
    what could not be stored is still in the damaged file.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=".hipfind-salvage-", dir=damaged.parent) as scratch:
            return _salvage(damaged, Path(scratch), open_new)
    except (DbFault, OSError, sqlite3.Error) as error:
        _log.warning("recovering the records of %s ended early: %s", printable(damaged), error)
        return 0


def _salvage(damaged: Path, scratch: Path, open_new: Callable[[], PerfDb]) -> int:
    template = _new_file(scratch / "template.db")
    for number, (repair, tables) in enumerate(_REPAIRS):
        copy = scratch / f"{number}.db"
        if repair is None:
            _copy(damaged, copy)
        else:
            copy.write_bytes(repair(template, damaged.read_bytes()))
        os.truncate(copy, copy.stat().st_size // _PAGE_BYTES * _PAGE_BYTES)  # half a page would be read as zeros
        with contextlib.closing(_connect(copy)) as connection:
            old = _Damaged(connection, tables)
            if any(True for _ in old.rows("problems", ("key",))):
                with open_new() as new:
                    return _Transfer(old, new).run()
    return 0


def _new_file(path: Path) -> bytes:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, str(path))
    return path.read_bytes()


def _copy(damaged: Path, copy: Path) -> None:
    shutil.copyfile(damaged, copy)
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(f"{damaged}-wal", f"{copy}-wal")


def _with_new_start(length: int) -> Repair:
    """Replaces the first bytes by a new file's, and sets the number of pages in the header to what is there."""

    def repair(template: bytes, damaged: bytes) -> bytes:
        data = bytearray(template[:length] + damaged[length:])
        data[28:32] = (len(damaged) // _PAGE_BYTES).to_bytes(4, "big")
        return bytes(data)

    return repair


_REPAIRS: tuple[tuple[Repair | None, tuple[str, ...]], ...] = (
    (None, (*OWNERS, *RECORDS)),
    (_with_new_start(_HEADER_BYTES), (*OWNERS, *RECORDS)),
    (_with_new_start(_PAGE_BYTES), _FIRST),
)
"""Tried in order until one gives rows: the file as it is, with a new header, with a new first page."""


def _connect(copy: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(copy, isolation_level=None)
    connection.text_factory = bytes  # text may be damaged, too; decoded one by one
    with contextlib.suppress(sqlite3.Error):
        connection.execute("PRAGMA writable_schema = ON")  # opens files that are shorter than their header says
        connection.execute("PRAGMA cell_size_check = ON")
    return connection


class _Damaged:
    """Rows of a damaged file: what cannot be read, or is not what its column holds, is passed over."""

    def __init__(self, connection: sqlite3.Connection, tables: tuple[str, ...]) -> None:
        self._connection = connection
        self.tables = tables

    def columns(self, table: str) -> set[str]:
        """Names of a table's columns; empty where they cannot be read."""
        with contextlib.suppress(sqlite3.Error, UnicodeDecodeError):
            return {name.decode() for _, name, *_ in self._connection.execute(f"PRAGMA table_info({table})")}
        return set()

    def rows(self, table: str, columns: tuple[str, ...]) -> Iterator[Row]:
        """Id and columns of every readable row of a table with ids."""
        sql = f"SELECT id, {', '.join(columns)} FROM {table} NOT INDEXED WHERE id >= ? ORDER BY id"
        start: int | None = 1
        while start is not None:
            last = start - 1
            try:
                for row in self._connection.execute(sql, (start,)):
                    last = row[0]
                    yield row
                return
            except sqlite3.Error:
                start = self._next_readable(table, last + 1)

    def rows_of(self, table: str, columns: tuple[str, ...], problem: int) -> Iterator[Row]:
        """Columns of every readable row of one problem."""
        with contextlib.suppress(sqlite3.Error):
            yield from self._connection.execute(
                f"SELECT {', '.join(columns)} FROM {table} WHERE problem = ?", (problem,)
            )

    def _next_readable(self, table: str, start: int) -> int | None:
        """Smallest id from ``start`` on that can be read: damage covers a range of ids. None without one."""
        low, step = start, 1
        while not self._is_readable(table, low + step):
            step *= 2
            if step > _FAR:
                return None
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._is_readable(table, middle) else (middle, high)
        return high

    def _is_readable(self, table: str, start: int) -> bool:
        sql = f"SELECT id FROM {table} NOT INDEXED WHERE id >= ? ORDER BY id LIMIT 1"
        try:
            self._connection.execute(sql, (start,)).fetchone()
        except sqlite3.Error:
            return False
        return True


class _Transfer:
    """Carries rows from a damaged file into a sound one, whose ids are others."""

    def __init__(self, old: _Damaged, new: PerfDb) -> None:
        self._old = old
        self._new = new
        self._ids: dict[str, dict[int, int]] = {}

    def run(self) -> int:
        for table in OWNERS:
            self._ids[table] = {}
            if table in self._old.tables:
                self._carry_owners(table)
        return sum(self._carry_records(table) for table in RECORDS if table in self._old.tables)

    def _carry_owners(self, table: str) -> None:
        columns = self._columns(table)
        key = tuple(columns).index(OWNERS[table])
        insert = _insert(table, columns)
        select = f"SELECT id FROM {table} WHERE {OWNERS[table]} = ?"

        def write(connection: sqlite3.Connection, rows: list[Row]) -> None:
            connection.executemany(insert, [values for _, *values in rows])
            for old, *values in rows:
                found = connection.execute(select, (values[key],)).fetchone()
                if found is not None:
                    self._ids[table][old] = found[0]

        readable = self._old.rows(table, tuple(columns))
        decoded = ((row[0], _decoded(row[1:], columns)) for row in readable)
        self._in_batches(((old, *values) for old, values in decoded if values is not None), write)

    def _carry_records(self, table: str) -> int:
        columns = self._columns(table)
        owners = {tuple(columns).index(column): self._ids[of] for column, of in RECORDS[table].items()}
        insert = _insert(table, columns)
        stored = 0

        def write(connection: sqlite3.Connection, rows: list[Row]) -> None:
            nonlocal stored
            stored += connection.executemany(insert, rows).rowcount

        decoded = (_decoded(row, columns) for row in self._record_rows(table, tuple(columns)))
        with_owners = (_with_owners(row, owners) for row in decoded if row is not None)
        self._in_batches((row for row in with_owners if row is not None), write)
        return stored

    def _record_rows(self, table: str, columns: tuple[str, ...]) -> Iterator[Row]:
        if table in _KEYED_BY_PROBLEM:
            for problem in self._ids["problems"]:
                yield from self._old.rows_of(table, columns, problem)
        else:
            for row in self._old.rows(table, columns):
                yield row[1:]

    def _in_batches(self, rows: Iterable[Row], write: Callable[[sqlite3.Connection, list[Row]], None]) -> None:
        rows = iter(rows)
        while batch := list(itertools.islice(rows, _BATCH)):
            self._new.write("storing recovered records", lambda connection, batch=batch: write(connection, batch))  # type: ignore[misc]

    def _columns(self, table: str) -> dict[str, str]:
        """Names and types of a table's columns but for the id, and for those that the old file's schema has not yet."""
        old = self._old.columns(table)
        new = self._new.read(f"PRAGMA table_info({table})")
        return {name: kind for _, name, kind, *_ in new if name != "id" and (not old or name in old)}


def _insert(table: str, columns: Mapping[str, str]) -> str:
    """A row that is there already, or that breaks a rule of the table, is passed over."""
    return f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


def _decoded(row: Row, columns: Mapping[str, str]) -> Row | None:
    """The row with its text as text; None where a value is not of its column's type."""
    values: list[Any] = []
    for value, kind in zip(row, columns.values(), strict=True):
        if isinstance(value, bytes):
            try:
                value = value.decode()
            except UnicodeDecodeError:
                return None
        if value is not None and not isinstance(value, _TYPES[kind]):
            return None
        values.append(value)
    return tuple(values)


def _with_owners(row: Row, owners: Mapping[int, Mapping[int, int]]) -> Row | None:
    """The row with its owners' new ids; None where an owner could not be read."""
    values = list(row)
    for place, ids in owners.items():
        if values[place] is not None:
            values[place] = ids.get(values[place])
            if values[place] is None:
                return None
    return tuple(values)
