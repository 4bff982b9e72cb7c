"""Keeping a perf DB file: a copy of it that is whole, giving back its free space, taking out what is not wanted."""

from __future__ import annotations

import dataclasses
import os
import sqlite3
from pathlib import Path

from hipfind.perfdb.copies import copy_whole, free_name
from hipfind.perfdb.store import PerfDb


def backup(db: PerfDb, to: str | os.PathLike[str] | None = None) -> Path:
    """Copy the file as it is at one moment, other processes' writing notwithstanding; returns the copy's path.

    ``to`` None: ``<file>.backup-<UTC time>`` beside it. The copy is checked, and written to the disk before its name
    appears. Raises PerfDbError where there is such a file already, DbFault where it cannot be written.
    """
    target = free_name(Path(db.path), "backup") if to is None else Path(to).absolute()
    db.run("making a backup", lambda connection: copy_whole(connection, target, "making a backup"))
    return target


def compact(db: PerfDb) -> tuple[int, int]:
    """Give free pages back to the file system and refresh what sqlite knows of the indexes; bytes before and after.

    Needs as much free room as the file takes, for the time that it works.
    """
    before = _bytes(db)
    db.run("compacting", lambda connection: connection.execute("VACUUM"))
    db.run("compacting", lambda connection: connection.execute("PRAGMA optimize").fetchall())
    db.run("compacting", lambda connection: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
    return before, _bytes(db)


def _bytes(db: PerfDb) -> int:
    return sum(os.path.getsize(one) for one in (db.path, f"{db.path}-wal") if os.path.exists(one))


@dataclasses.dataclass(frozen=True)
class Unwanted:
    """Which records a prune takes out: those that every given field fits; all where none is given.

    ``before``: made before this time (seconds since 1970); ``device``: target key, architecture or vendor;
    ``environment``: a fingerprint. With ``reference`` MIOpen's records are meant, ``source`` the name of their file,
    else our own find and perf records.
    """

    before: float | None = None
    solver: str = ""
    device: str = ""
    environment: str = ""
    reference: bool = False
    source: str = ""


@dataclasses.dataclass(frozen=True)
class Pruned:
    """What a prune took out, or would: numbers of rows by table."""

    rows: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.rows.values())


_OWN = ("find_records", "perf_records")


def prune(db: PerfDb, unwanted: Unwanted, *, dry_run: bool) -> Pruned:
    """Take the records out, in one transaction, with the owners that nothing belongs to any more; or only count."""
    chosen = ("reference_records",) if unwanted.reference else _OWN
    where, values = _where(unwanted)
    if dry_run:
        counts = {
            table: db.read(f"SELECT count(*) FROM {table} WHERE {where[table]}", values)[0][0] for table in chosen
        }
        return Pruned(counts)

    def delete(connection: sqlite3.Connection) -> dict[str, int]:
        counts = {
            table: connection.execute(f"DELETE FROM {table} WHERE {where[table]}", values).rowcount for table in chosen
        }
        for statement in _ORPHANS:
            connection.execute(statement)
        return counts

    return Pruned(db.write("pruning", delete))


_ORPHANS = (
    "DELETE FROM problems WHERE NOT EXISTS (SELECT 1 FROM find_records r WHERE r.problem = problems.id) "
    "AND NOT EXISTS (SELECT 1 FROM perf_records r WHERE r.problem = problems.id) "
    "AND NOT EXISTS (SELECT 1 FROM reference_records r WHERE r.problem = problems.id)",
    "DELETE FROM reference_sources WHERE id NOT IN (SELECT source FROM reference_records)",
    *(
        f"DELETE FROM {owners} WHERE id NOT IN "
        f"(SELECT {column} FROM find_records UNION SELECT {column} FROM perf_records{more})"
        for owners, column, more in (
            ("targets", "target", " UNION SELECT target FROM reference_records"),
            ("environments", "environment", ""),
        )
    ),
)


def _where(unwanted: Unwanted) -> tuple[dict[str, str], list[object]]:
    """A WHERE clause for each table; all take the same values."""
    tests: list[tuple[str, object]] = []
    if unwanted.device:
        tests.append(("target IN (SELECT id FROM targets WHERE ? IN (key, arch, vendor))", unwanted.device))
    if unwanted.reference:
        if unwanted.source:
            tests.append(("source IN (SELECT id FROM reference_sources WHERE name = ?)", unwanted.source))
        if unwanted.before is not None:
            tests.append(("source IN (SELECT id FROM reference_sources WHERE imported_at < ?)", unwanted.before))
        if unwanted.solver:
            tests.append(("best_solver = ?", unwanted.solver))
        return {"reference_records": " AND ".join(sql for sql, _ in tests) or "true"}, [value for _, value in tests]
    if unwanted.before is not None:
        tests.append(("created_at < ?", unwanted.before))
    if unwanted.solver:
        tests.append(("solver_id = ?", unwanted.solver))
    if unwanted.environment:
        tests.append(("environment IN (SELECT id FROM environments WHERE fingerprint = ?)", unwanted.environment))
    clause = " AND ".join(sql for sql, _ in tests) or "true"
    return dict.fromkeys(_OWN, clause), [value for _, value in tests]
