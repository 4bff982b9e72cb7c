"""``db export``: own records or MIOpen's, as lines of JSON, as CSV, or as MIOpen's find-db text, in a stable order."""

from __future__ import annotations

import csv
import functools
import itertools
import operator
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from hipfind.errors import PerfDbError
from hipfind.perfdb import lines, miopen_text
from hipfind.perfdb.records import WON
from hipfind.perfdb.store import PerfDb
from hipfind.perfdb.tables import PROBLEM_COLUMNS, Row
from hipfind.problem.conv import ConvProblem

AlgorithmOf = Callable[[str], str]
"""The algorithm ("GEMM", "Direct", ...) of a solver id; "" for one that is not known."""

_DEVICE = " WHERE ? IN ('', t.key, t.arch, t.vendor)"
_USABLE = (WON, "lost")


def export_lines(db: PerfDb, out: TextIO, kinds: Sequence[str], device: str = "") -> int:
    """Write all records of these kinds ("find", "perf", "reference") as lines of JSON; returns their number.

    ``device``: only of this target key, architecture or vendor; "" means all.
    """
    return sum(_write(db, out, _sql(kind), (device,), functools.partial(lines.encode, kind)) for kind in kinds)


def export_superseded(db: PerfDb, out: TextIO) -> int:
    """Write the records that merges replaced as lines of JSON, each version of one that was; returns their number."""
    return _write(db, out, "SELECT content FROM superseded ORDER BY content", (), operator.itemgetter(0))


def export_csv(db: PerfDb, out: TextIO, kind: str, device: str = "") -> int:
    """Write records of one kind as CSV, a heading first; returns their number."""
    writer = csv.writer(out, lineterminator="\n")
    heading: list[str] = []

    def take(row: Row) -> None:
        flat = _flat(lines.to_dict(kind, row))
        if not heading:
            heading.extend(flat)
            writer.writerow(heading)
        writer.writerow(flat.values())

    return _each(db, _sql(kind), (device,), take)


def _sql(kind: str) -> str:
    return lines.select(kind) + _DEVICE + lines.ORDER[kind]


def _write(db: PerfDb, out: TextIO, sql: str, parameters: Sequence[Any], encode: Callable[[Row], str]) -> int:
    def take(row: Row) -> None:
        out.write(encode(row) + "\n")

    return _each(db, sql, parameters, take)


def _each(db: PerfDb, sql: str, parameters: Sequence[Any], take: Callable[[Row], None]) -> int:
    """Give rows to ``take`` as they are read, so that a file of any size takes the same memory; returns their number.

    An OSError of ``take`` is the output's, not the DB's: it leaves as it is.
    """
    count = 0
    failed: list[OSError] = []

    def read(connection: sqlite3.Connection) -> None:
        nonlocal count
        for row in connection.execute(sql, parameters):
            try:
                take(row)
            except OSError as error:
                failed.append(error)
                return
            count += 1

    db.run("exporting", read)
    if failed:
        raise failed[0]
    return count


def _flat(line: dict[str, Any]) -> dict[str, Any]:
    """One level: the columns of problem and record by their own names, device and environment by their keys."""
    problem = line["problem"] or dict.fromkeys(PROBLEM_COLUMNS)
    flat: dict[str, Any] = {"problem" if name == "key" else name: value for name, value in problem.items()}
    flat |= {"device": line["target"]["key"], "device_name": line["target"]["name"]}
    if line["kind"] == "reference":
        names = ("form", "miopen_key", "value")
        flat |= {name: line[name] for name in names}
        flat["source"] = line["source"]["name"]
        return flat
    flat |= {"environment": line["environment"]["fingerprint"]}
    flat |= line["record"]
    flat["created_at"] = line["created_at"]
    return flat


# MIOpen's find-db text ------------------------------------------------------------------------------------------------


def export_references(db: PerfDb, out: TextIO, device: str = "") -> int:
    """Write MIOpen's records of one device as MIOpen wrote them, sorted by key as its own files are.

    Raises PerfDbError where ``device`` leaves none or several, since such a file is of one device.
    """
    target = _one_device(db, "reference_records", device)
    rows = "SELECT miopen_key, value FROM reference_records r JOIN targets t ON t.id = r.target "
    where = "WHERE t.key = ? AND r.form = 'find' ORDER BY CAST(miopen_key AS BLOB)"
    return _write(db, out, rows + where, (target,), "=".join)


def export_find_db(db: PerfDb, out: TextIO, algorithm_of: AlgorithmOf, device: str = "") -> int:
    """Write our own find records of one device as MIOpen's find-db text; returns the number of lines.

    Of a problem found in several environments the newest one counts. Left out are problems that MIOpen's keys cannot
    tell from another (alpha, beta, deterministic), and solvers whose algorithm is not known.
    """
    target = _one_device(db, "find_records", device)
    count = 0
    for (key, miopen_key, direction), rows in itertools.groupby(
        db.read(_OWN, (*_USABLE, target)), key=operator.itemgetter(0, 1, 2)
    ):
        times = [
            miopen_text.ReferenceTime(solver, time_ms, workspace, miopen_text.algorithm_name(direction, name))
            for *_, solver, time_ms, workspace in rows
            if (name := algorithm_of(solver))
        ]
        if times and ConvProblem.from_miopen_key(miopen_key).key() == key:
            out.write(f"{miopen_key}={miopen_text.format_value(times)}\n")
            count += 1
    return count


_OWN = """
SELECT p.key, p.miopen_key, p.direction, r.solver_id, r.time_ms, r.workspace_bytes
FROM find_records r JOIN problems p ON p.id = r.problem JOIN targets t ON t.id = r.target
WHERE r.outcome IN (?, ?) AND r.time_ms IS NOT NULL AND p.miopen_key IS NOT NULL AND t.key = ?
  AND r.environment = (
    SELECT n.environment FROM find_records n
    WHERE n.problem = r.problem AND n.target = r.target ORDER BY n.created_at DESC LIMIT 1)
ORDER BY CAST(p.miopen_key AS BLOB), p.key, r.time_ms, r.solver_id"""


def _one_device(db: PerfDb, table: str, device: str) -> str:
    sql = f"SELECT t.key FROM targets t{_DEVICE} AND EXISTS (SELECT 1 FROM {table} r WHERE r.target = t.id) ORDER BY 1"
    found: list[str] = [key for (key,) in db.read(sql, (device,))]
    if len(found) != 1:
        raise PerfDbError(
            "a find-db file is of one device" if found else "there are no records of this device",
            got=", ".join(found) or device or "none of any device",
            remedy="give one with --device" if found else "`hipfind db info` lists the devices",
        )
    return found[0]
