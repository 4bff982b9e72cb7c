"""Brings the records of one perf DB file into another, in one transaction. Every import ends here.

A record that both have with different contents is a conflict: the one that was made last stays in its place, and the
other goes to the table ``superseded`` as a line of JSON. So nothing is lost, whatever is merged into what.
"""

from __future__ import annotations

import dataclasses
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from hipfind.errors import PerfDbError
from hipfind.perfdb import lines
from hipfind.perfdb.faults import printable
from hipfind.perfdb.store import BUSY_WAIT_S, PerfDb, transaction
from hipfind.perfdb.tables import ENVIRONMENT_COLUMNS, PROBLEM_COLUMNS, TARGET_COLUMNS

_CACHE_KIB = 65536
_OWNERS = (("problems", PROBLEM_COLUMNS), ("targets", TARGET_COLUMNS), ("environments", ENVIRONMENT_COLUMNS),
           ("reference_sources", lines.SOURCE_COLUMNS))  # fmt: skip
_RECORD_KEY: tuple[str, ...] = ("problem", "target", "environment", "solver_id")
_REFERENCE_KEY: tuple[str, ...] = ("target", "form", "miopen_key")
_NOTHING = {"time_ms": "-1", "refused": "''"}
"""What stands for NULL when two records are compared: of two that differ in the mark alone the marked one stays."""
_REFERENCE_DATA = ("problem", "source", "value", "best_solver", "best_ms")


@dataclasses.dataclass(frozen=True)
class Conflict:
    """A record that differed: ``problem`` and ``solver_id`` say which, ``kept_new`` which of both stays.

    ``had`` and ``got`` are times in ms, of the file merged into and of the other.
    """

    kind: str
    problem: str
    device: str
    environment: str
    solver_id: str
    had_ms: float | None
    got_ms: float | None
    kept_new: bool


@dataclasses.dataclass(frozen=True)
class MergeReport:
    """What a merge of one file did; counts by kind ("find", "perf", "reference")."""

    origin: str
    seen: dict[str, int]
    added: dict[str, int]
    same: dict[str, int]
    conflicts: tuple[Conflict, ...]

    @property
    def replaced(self) -> int:
        """Conflicts in which the other file's record was newer and stays."""
        return sum(one.kept_new for one in self.conflicts)


def newest_first(files: Sequence[PerfDb]) -> list[PerfDb]:
    """Files in the order of their newest environment, newest first; those without one last."""
    return sorted(files, key=lambda db: db.read("SELECT max(first_seen) FROM environments")[0][0] or 0.0, reverse=True)


def merge(into: PerfDb, source: PerfDb, origin: str = "") -> MergeReport:
    """Merge all records of ``source``, which stays as it is. ``origin``: name of the source in ``superseded``."""
    name = origin or printable(source.path)
    if _is_same(into.path, source.path):
        raise PerfDbError("a perf DB cannot be merged into itself", got=name)
    mode = "ro&immutable=1" if source.is_immutable else "ro"
    where = f"{Path(source.path).as_uri()}?mode={mode}" if into.path else source.path  # a DB in memory takes no URIs
    return into.run(f"merging {name}", lambda connection: _attached(connection, where, name))


def _is_same(one: str, other: str) -> bool:
    return bool(one) and Path(one).resolve() == Path(other).resolve()


def _attached(connection: sqlite3.Connection, where: str, origin: str) -> MergeReport:
    """Owners of records first, in a transaction of their own: without records they say nothing, and others may write
    in between."""
    connection.execute("ATTACH ? AS source", (where,))
    try:
        connection.execute(f"PRAGMA main.cache_size = -{_CACHE_KIB}")
        transaction(connection, _merge_all_owners, BUSY_WAIT_S)
        return transaction(connection, lambda connection: _merge(connection, origin), BUSY_WAIT_S)
    finally:
        connection.execute("DETACH source")


def _merge_all_owners(connection: sqlite3.Connection) -> None:
    for table, columns in _OWNERS:
        _merge_owners(connection, table, columns)


def _merge(connection: sqlite3.Connection, origin: str) -> MergeReport:
    for table, columns in _OWNERS:
        _map_owners(connection, table, columns[0])
    seen: dict[str, int] = {}
    added: dict[str, int] = {}
    conflicts: list[Conflict] = []
    for kind in lines.KINDS:
        table = _table(kind)
        seen[kind] = _count(connection, f"source.{table}")
        before = _count(connection, f"main.{table}")
        conflicts += _settle_conflicts(connection, kind, origin)
        connection.execute(_insert(kind))
        added[kind] = _count(connection, f"main.{table}") - before
    same = {kind: seen[kind] - added[kind] - sum(one.kind == kind for one in conflicts) for kind in lines.KINDS}
    return MergeReport(origin, seen, added, same, tuple(conflicts))


def _table(kind: str) -> str:
    return "reference_records" if kind == "reference" else lines.RECORD_TABLES[kind].name


def _count(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def _merge_owners(connection: sqlite3.Connection, table: str, columns: Sequence[str]) -> None:
    """Make the rows that are new."""
    key, names = columns[0], ", ".join(columns)
    seen = "first_seen = min(first_seen, excluded.first_seen)"
    then = f"UPDATE SET {seen}" if table == "environments" else "NOTHING"
    connection.execute(
        f"INSERT INTO main.{table} ({names}) SELECT {names} FROM source.{table} WHERE true ORDER BY {key} "
        f"ON CONFLICT ({key}) DO {then}"
    )


def _map_owners(connection: sqlite3.Connection, table: str, key: str) -> None:
    """A map from the source's ids to ours."""
    connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS new_{table} (id INTEGER PRIMARY KEY, new INTEGER NOT NULL)")
    connection.execute(f"DELETE FROM temp.new_{table}")
    connection.execute(
        f"INSERT INTO temp.new_{table} SELECT s.id, m.id FROM source.{table} s JOIN main.{table} m ON m.{key} = s.{key}"
    )


def _joined(kind: str) -> str:
    """The source's records s with our ids of their owners (np, nt, ne, ns)."""
    if kind == "reference":
        return (
            "FROM source.reference_records s JOIN temp.new_targets nt ON nt.id = s.target "
            "JOIN temp.new_reference_sources ns ON ns.id = s.source LEFT JOIN temp.new_problems np ON np.id = s.problem"
        )
    return (
        f"FROM source.{_table(kind)} s JOIN temp.new_problems np ON np.id = s.problem "
        "JOIN temp.new_targets nt ON nt.id = s.target JOIN temp.new_environments ne ON ne.id = s.environment"
    )


def _same_record(kind: str) -> str:
    """Which record m of ours is the source's s."""
    if kind == "reference":
        return "m.target = nt.new AND m.form = s.form AND m.miopen_key = s.miopen_key"
    return "m.problem = np.new AND m.target = nt.new AND m.environment = ne.new AND m.solver_id = s.solver_id"


def _contents(kind: str, schema: str, record: str) -> str:
    """What two records are compared by: when they were made first, then all the rest, so that any order of merging
    ends in the same."""
    if kind == "reference":
        made = f"(SELECT imported_at FROM {schema}.reference_sources o WHERE o.id = {record}.source)"
        return f"{made}, {record}.value"
    columns = (one for one in lines.RECORD_TABLES[kind].columns if one != "solver_id")
    compared = (
        f"coalesce({record}.{one}, {_NOTHING[one]})" if one in _NOTHING else f"{record}.{one}" for one in columns
    )
    return ", ".join((f"{record}.created_at", *compared))


def _settle_conflicts(connection: sqlite3.Connection, kind: str, origin: str) -> list[Conflict]:
    """Put the older one of each differing pair into ``superseded``; delete ours where the other one is newer."""
    table = _table(kind)
    key = _REFERENCE_KEY if kind == "reference" else _RECORD_KEY
    theirs, ours = _contents(kind, "source", "s"), _contents(kind, "main", "m")
    what_differs = ("s.value", "m.value") if kind == "reference" else (theirs, ours)
    ids = [f"{one}.{column}" for one in ("s", "m") for column in key]
    connection.execute("DROP TABLE IF EXISTS temp.conflicts")
    columns = ", ".join(f"{name} AS {name.replace('.', '_')}" for name in ids)
    connection.execute(
        f"CREATE TEMP TABLE conflicts AS SELECT {columns}, ({theirs}) > ({ours}) AS is_new {_joined(kind)} "
        f"JOIN main.{table} m ON {_same_record(kind)} WHERE ({what_differs[0]}) IS NOT ({what_differs[1]})"
    )
    if not _count(connection, "temp.conflicts"):
        return []
    conflicts = _describe(connection, kind, key)
    for schema, prefix, wanted in (("main", "m", 1), ("source", "s", 0)):
        same = " AND ".join(f"r.{column} = c.{prefix}_{column}" for column in key)
        sql = lines.select(kind, schema) + f" JOIN temp.conflicts c ON {same} WHERE c.is_new = {wanted}"
        losers = [(kind, lines.encode(kind, row), origin, time.time()) for row in connection.execute(sql)]
        connection.executemany(
            "INSERT INTO main.superseded (kind, content, origin, replaced_at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (content) DO NOTHING",
            losers,
        )
    ours_gone = ", ".join(f"m_{column}" for column in key)
    connection.execute(
        f"DELETE FROM main.{table} WHERE ({', '.join(key)}) IN (SELECT {ours_gone} FROM temp.conflicts WHERE is_new)"
    )
    return conflicts


def _describe(connection: sqlite3.Connection, kind: str, record_key: Sequence[str]) -> list[Conflict]:
    table = _table(kind)
    mine = " AND ".join(f"m.{column} = c.m_{column}" for column in record_key)
    theirs = " AND ".join(f"s.{column} = c.s_{column}" for column in record_key)
    shown = (
        "m.miopen_key, t.key, '', coalesce(m.best_solver, ''), m.best_ms, s.best_ms"
        if kind == "reference"
        else "p.key, t.key, e.fingerprint, m.solver_id, m.time_ms, s.time_ms"
    )
    owners = (
        ""
        if kind == "reference"
        else ("JOIN main.problems p ON p.id = m.problem JOIN main.environments e ON e.id = m.environment")
    )
    rows = connection.execute(
        f"SELECT {shown}, c.is_new FROM temp.conflicts c JOIN main.{table} m ON {mine} JOIN source.{table} s "
        f"ON {theirs} JOIN main.targets t ON t.id = m.target {owners} ORDER BY 1, 2, 3, 4"
    )
    return [
        Conflict(kind, key, device, environment, solver, had, got, bool(is_new))
        for key, device, environment, solver, had, got, is_new in rows
    ]


def _insert(kind: str) -> str:
    """Copies what is not there: new records, and those for which ours has just made room."""
    if kind == "reference":
        return (
            f"INSERT INTO main.reference_records ({', '.join((*_REFERENCE_KEY, *_REFERENCE_DATA))}) "
            "SELECT nt.new, s.form, s.miopen_key, np.new, ns.new, s.value, s.best_solver, s.best_ms "
            f"{_joined(kind)} WHERE true ORDER BY s.id ON CONFLICT ({', '.join(_REFERENCE_KEY)}) DO NOTHING"
        )
    columns = [one for one in (*lines.RECORD_TABLES[kind].columns, "created_at") if one != "solver_id"]
    return (
        f"INSERT INTO main.{_table(kind)} ({', '.join((*_RECORD_KEY, *columns))}) SELECT np.new, nt.new, ne.new, "
        f"s.solver_id, {', '.join(f's.{one}' for one in columns)} {_joined(kind)} WHERE true "
        f"ON CONFLICT ({', '.join(_RECORD_KEY)}) DO NOTHING"
    )
