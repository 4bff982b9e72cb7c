"""PerfDb: one perf DB file (or one in memory) with its records. Every failure leaves as a DbFault."""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import time
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Generic, TypeAlias, TypeVar

from hipfind.errors import PerfDbError
from hipfind.perfdb import paths, tables
from hipfind.perfdb.connect import Link, retry_while_locked
from hipfind.perfdb.faults import DbFault, Fault, db_fault, printable
from hipfind.perfdb.forksafe import ForkSafe
from hipfind.perfdb.records import Environment, FindRecord, PerfRecord, R, Stored, StoredFind, StoredPerf, is_text
from hipfind.perfdb.tables import FIND_RECORDS, PERF_RECORDS, OwnerTable, RecordTable, Row, writable
from hipfind.problem.base import Problem
from hipfind.target import Target

BUSY_WAIT_S = 5.0
"""How long a call waits for another process before it fails as locked."""

_KEPT_ANSWERS = 4096
_POINT = " WHERE p.key = ? AND t.key = ? ORDER BY r.time_ms IS NULL, r.time_ms, r.solver_id"

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class _Belonging(Generic[R]):
    """Records of one problem, with where they belong."""

    problem: Problem
    target: Target
    environment: Environment
    records: Sequence[R]


Finds: TypeAlias = _Belonging[FindRecord]
"""Find records of one problem, for ``PerfDb.store_finds``."""


class _Kept:
    """Answers of point look-ups, as long as nobody has changed the file: reading a row again costs ten times as much.

    sqlite tells by two numbers: ``data_version`` for other connections' changes, ``total_changes`` for our own.
    """

    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None
        self._state: tuple[int, int] = (0, 0)
        self._answers: dict[Any, Any] = {}

    def of(self, connection: sqlite3.Connection) -> dict[Any, Any]:
        """The answers that still hold; put new ones in."""
        state = (connection.execute("PRAGMA data_version").fetchone()[0], connection.total_changes)
        if connection is not self._connection or state != self._state or len(self._answers) >= _KEPT_ANSWERS:
            self._connection, self._state, self._answers = connection, state, {}
        return self._answers


class PerfDb(ForkSafe):
    """A perf DB. Use ``PerfDb.open`` or ``PerfDb.in_memory``; close it, or use it as a context manager.

    Safe from several threads, across ``fork``, and with any number of processes on one file. A file that is moved or
    deleted meanwhile is opened anew. Methods raise DbFault (a PerfDbError that knows its kind).
    """

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._is_closed = False
        self._kept = _Kept()
        self._at_exit = weakref.finalize(self, link.close)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str] | None = None, read_only: bool = False, *, wait_s: float = BUSY_WAIT_S
    ) -> PerfDb:
        """Open a perf DB file; None means the one that the settings name.

        A file that is not there is made, with its directory; ``read_only`` makes and changes nothing, and reads files
        on read-only media too. ``wait_s``: longest wait for a lock.
        """
        db = cls(Link(paths.resolve(path), read_only, wait_s))
        db.read("SELECT 1")
        return db

    @classmethod
    def in_memory(cls) -> PerfDb:
        """An empty perf DB that ends with this object."""
        return cls(Link(None, read_only=False, wait_s=0.0))

    @property
    def path(self) -> str:
        """Path of the file, "" for a DB in memory."""
        return self._link.name

    @property
    def read_only(self) -> bool:
        return self._link.read_only

    @property
    def is_immutable(self) -> bool:
        """True when the file could be read only under the promise that nobody changes it (a read-only directory)."""
        return self._link.immutable

    def close(self) -> None:
        """Close the file. Closing twice is fine; any other use after it raises PerfDbError."""
        with self.lock:
            self._is_closed = True
            self._at_exit()

    def __enter__(self) -> PerfDb:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def before_fork(self) -> None:
        if self._link.path is not None:
            self._link.close()

    # records -----------------------------------------------------------------------------------------------------

    def store_find(
        self, problem: Problem, target: Target, environment: Environment, records: Sequence[FindRecord]
    ) -> None:
        """Store how candidates ended, in one transaction; a record replaces the same solver's in this environment."""
        self.store_finds([Finds(problem, target, environment, records)])

    def store_finds(self, batch: Sequence[Finds]) -> None:
        """Store the records of many problems in one transaction, so that all of them cost one wait for the disk."""
        self._store(FIND_RECORDS, batch)

    def find_records(self, problem_key: str, target_key: str) -> list[StoredFind]:
        """Records of one problem and target, of every environment: fastest first, those without a time last."""
        return self._point(FIND_RECORDS, problem_key, target_key)

    def store_perf(
        self, problem: Problem, target: Target, environment: Environment, records: Sequence[PerfRecord]
    ) -> None:
        """Store tuned configs, in one transaction; a record replaces the same solver's in this environment."""
        self._store(PERF_RECORDS, [_Belonging(problem, target, environment, records)])

    def perf_records(self, problem_key: str, target_key: str) -> list[StoredPerf]:
        """Tuned configs of one problem and target, of every environment, fastest first."""
        return self._point(PERF_RECORDS, problem_key, target_key)

    def refuse_perf(self, refused: StoredPerf, rule: str) -> None:
        """Mark a tuned config as refused with the rule that it breaks; one written since then stays as it is."""
        one = refused.record
        mark = (writable(rule), refused.problem_key, refused.target_key, refused.environment, one.solver_id, one.config)
        self.write("marking a perf record", lambda connection: connection.execute(_REFUSE_PERF, mark).close())

    def remove_perf(self, problem_key: str, target_key: str) -> None:
        """Remove the tuned configs of one problem and target, of every environment."""
        if is_text(problem_key):
            keys = (problem_key, target_key)
            self.write("removing perf records", lambda connection: connection.execute(_REMOVE_PERF, keys).close())

    def environments(self) -> dict[str, Environment]:
        """Every environment that records were made in, by fingerprint. Unreadable facts count as none."""
        return {fingerprint: _environment(facts) for fingerprint, facts in self.read(_ENVIRONMENTS)}

    def info(self) -> dict[str, Any]:
        """Facts about the file as JSON-ready data: path, size, schema, journal mode, rows by table, environments."""
        counts = {name: self.read(f"SELECT count(*) FROM {name}")[0][0] for name in _COUNTED}
        return {
            "path": printable(self.path),
            "size_bytes": self.read(_SIZE)[0][0],
            "schema_version": self.read("PRAGMA user_version")[0][0],
            "migrations": [name for (name,) in self.read("SELECT name FROM migrations ORDER BY id")],
            "journal_mode": self.read("PRAGMA journal_mode")[0][0],
            "read_only": self.read_only,
            "immutable": self.is_immutable,
            "sqlite_version": sqlite3.sqlite_version,
            "rows": counts,
            "targets": [dict(zip(("key", "name", "find_records"), row, strict=True)) for row in self.read(_TARGETS)],
            "environments": [
                {"fingerprint": fingerprint, "facts": dict(_environment(facts).facts), "first_seen": first_seen,
                 "find_records": count}
                for fingerprint, facts, first_seen, count in self.read(_ENVIRONMENT_USE)
            ],
        }  # fmt: skip

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Rows of a SELECT. Takes no write lock."""
        for value in parameters:
            if isinstance(value, str) and not is_text(value):
                raise DbFault(
                    Fault.REFUSED, self.path, f"{value!r} is not Unicode text", "nothing can be stored under it"
                )
        return self.run("reading", lambda connection: connection.execute(sql, parameters).fetchall())

    def look_up(self, sql: str, parameters: tuple[str, ...], make: Callable[[Row], T]) -> list[T]:
        """Rows of a SELECT as ``make`` makes them; from memory where they were asked for and nobody has written since.

        For look-ups of a few rows by a key; ``make`` gives immutable values.
        """

        def work(connection: sqlite3.Connection) -> list[T]:
            kept = self._kept.of(connection)
            found: list[T] | None = kept.get((sql, parameters))
            if found is None:
                found = kept[sql, parameters] = [make(row) for row in connection.execute(sql, parameters)]
            return list(found)

        return self.run("reading", work)

    def stored(self, table: RecordTable[R], where: str, parameters: Sequence[Any] = ()) -> list[Stored[R]]:
        """Records of a table by a WHERE clause on p, t, e, r (see RecordTable.select)."""
        rows = self.read(table.select + where, parameters)
        in_memory = self._link.path is None
        return [table.stored(row, in_memory) for row in rows]

    # how ---------------------------------------------------------------------------------------------------------

    def _point(self, table: RecordTable[R], problem_key: str, target_key: str) -> list[Stored[R]]:
        if not (is_text(problem_key) and is_text(target_key)):
            return []
        in_memory = self._link.path is None
        return self.look_up(table.select + _POINT, (problem_key, target_key), lambda row: table.stored(row, in_memory))

    def _store(self, table: RecordTable[R], batch: Sequence[_Belonging[R]]) -> None:
        for one in batch:
            check(one.problem.canonical(), one.records)
        rows = [[table.row(record) for record in one.records] for one in batch]

        def write(connection: sqlite3.Connection) -> None:
            ids: dict[tuple[str, str], int] = {}
            now = time.time()
            for one, values in zip(batch, rows, strict=True):
                owners = _owners(connection, one, ids)
                connection.executemany(table.upsert, [(*row, *owners, now) for row in values])

        self.write("storing records", write)

    def write(self, doing: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """Result of ``work`` in one write transaction: all of it is stored, or nothing."""
        return self.run(doing, lambda connection: transaction(connection, work, self._link.wait_s))

    def run(self, doing: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """Result of ``work`` on the connection, begun again while another process is in the way.

        ``doing`` says what is tried, for the message of a fault.
        """
        with self.lock:
            if self._is_closed:
                raise PerfDbError("the perf DB is closed", got=self.path, remedy="open it again")
            try:
                return retry_while_locked(lambda: work(self._link.connection()), self._link.wait_s)
            except (sqlite3.Error, OSError) as error:
                raise db_fault(error, self.path, doing) from error


_REMOVE_PERF = (
    "DELETE FROM perf_records WHERE problem = (SELECT id FROM problems WHERE key = ?) "
    "AND target = (SELECT id FROM targets WHERE key = ?)"
)
_REFUSE_PERF = (
    "UPDATE perf_records SET refused = ? WHERE problem = (SELECT id FROM problems WHERE key = ?) "
    "AND target = (SELECT id FROM targets WHERE key = ?) "
    "AND environment = (SELECT id FROM environments WHERE fingerprint = ?) AND solver_id = ? AND config = ?"
)
_COUNTED = ("problems", "targets", "environments", "find_records", "perf_records", "reference_records")
_SIZE = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
_ENVIRONMENTS = "SELECT fingerprint, facts FROM environments ORDER BY first_seen"
_ENVIRONMENT_USE = (
    "SELECT fingerprint, facts, first_seen, (SELECT count(*) FROM find_records WHERE environment = environments.id) "
    "FROM environments ORDER BY first_seen DESC"
)
_TARGETS = "SELECT key, name, (SELECT count(*) FROM find_records WHERE target = targets.id) FROM targets ORDER BY key"


def check(problem: Problem, records: Sequence[FindRecord | PerfRecord]) -> None:
    """Raises DbFault (REFUSED) for a key or a record that must not be stored, saying which rule it breaks."""
    if not problem.key() or not is_text(problem.key()):
        raise DbFault(Fault.REFUSED, "", f"a problem key must be Unicode text, not {problem.key()!r}")
    for record in records:
        reason = record.invalid_reason()
        if reason:
            raise DbFault(Fault.REFUSED, "", f"{record.solver_id}: {reason}")


def transaction(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], wait_s: float) -> T:
    """Result of ``work`` in one write transaction: all of it is stored, or nothing. Raises sqlite3.Error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        retry_while_locked(lambda: connection.execute("COMMIT"), wait_s)
        return result
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _owners(
    connection: sqlite3.Connection, one: _Belonging[R], ids: dict[tuple[str, str], int]
) -> tuple[int, int, int]:
    """Ids of problem, target and environment, made where they are new; ``ids``: those known in this transaction."""
    problem, target, environment = one.problem.canonical(), one.target, one.environment

    def known(table: OwnerTable, key: str, make_row: Callable[[], Row]) -> int:
        found = ids.get((table.name, key))
        if found is None:
            found = ids[table.name, key] = _id(connection, table, key, make_row)
        return found

    return (
        _id(connection, tables.PROBLEMS, problem.key(), lambda: tables.problem_row(problem)),
        known(tables.TARGETS, target.key, lambda: tables.target_row(target)),
        known(tables.ENVIRONMENTS, environment.fingerprint, lambda: tables.environment_row(environment)),
    )


def _id(connection: sqlite3.Connection, table: OwnerTable, key: str, make_row: Callable[[], Row]) -> int:
    """Id of the row with this key, made when it is new. Inside a write transaction nobody else can make it."""
    found = connection.execute(table.select, (key,)).fetchone()
    if found is not None:
        return int(found[0])
    return connection.execute(table.insert, make_row()).lastrowid or 0


def _environment(facts: str) -> Environment:
    try:
        return Environment.from_json(facts)
    except ValueError:
        return Environment(())
