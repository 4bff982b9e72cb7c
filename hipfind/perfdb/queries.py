"""Questions that people ask a perf DB: who won what, and everything known of one problem."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from hipfind.perfdb.records import WON, StoredFind, StoredPerf, is_text
from hipfind.perfdb.store import PerfDb
from hipfind.perfdb.tables import FIND_RECORDS, PERF_RECORDS, PROBLEM_COLUMNS
from hipfind.target import Target


@dataclasses.dataclass(frozen=True)
class Winner:
    """The solver that won a problem on a target. ``environment`` is a fingerprint, ``created_at`` seconds since 1970.

    ``trusted``: True when the environment is the present one of a device that is here, False when such a device has
    another one now, None when there is no such device here.
    """

    problem_key: str
    target_key: str
    solver_id: str
    time_ms: float
    spread_ms: float
    workspace_bytes: int
    environment: str
    created_at: float
    trusted: bool | None


@dataclasses.dataclass(frozen=True)
class Filter:
    """Which winners to list; "" stands for any. ``device``: a target key, an architecture or a vendor."""

    solver: str = ""
    direction: str = ""
    dtype: str = ""
    device: str = ""


_WINNERS = """
SELECT problem, target, solver_id, time_ms, spread_ms, workspace_bytes, environment, created_at FROM (
  SELECT p.key AS problem, t.key AS target, r.solver_id, r.time_ms, r.spread_ms, r.workspace_bytes,
    e.fingerprint AS environment, r.created_at,
    row_number() OVER (
      PARTITION BY r.problem, r.target
      ORDER BY (t.key || ' ' || e.fingerprint) IN ({trusted}) DESC, r.created_at DESC, r.time_ms
    ) AS place
  FROM find_records r JOIN problems p ON p.id = r.problem JOIN targets t ON t.id = r.target
    JOIN environments e ON e.id = r.environment
  WHERE r.outcome = '{won}' AND r.time_ms IS NOT NULL {where}
)
WHERE place = 1 AND (? = '' OR solver_id = ?)
ORDER BY created_at DESC, problem, target LIMIT ?"""


def list_winners(
    db: PerfDb, wanted: Filter, trusted: Mapping[str, str] | None = None, limit: int | None = None
) -> list[Winner]:
    """The winner of every problem and target, newest first.

    ``trusted``: the present environment's fingerprint by target key; a problem that was found in several environments
    shows the winner of a trusted one, else of the newest.
    """
    here = trusted or {}
    pairs = [f"{target} {fingerprint}" for target, fingerprint in here.items()]
    clauses, values = _clauses(wanted)
    sql = _WINNERS.format(trusted=", ".join("?" * len(pairs)), won=WON, where=clauses)
    last = (wanted.solver, wanted.solver, -1 if limit is None else limit)
    return [_winner(row, here) for row in db.read(sql, (*pairs, *values, *last))]


def _clauses(wanted: Filter) -> tuple[str, list[str]]:
    tests = (
        ("p.direction = ?", wanted.direction),
        ("p.dtype = ?", wanted.dtype),
        ("? IN (t.key, t.arch, t.vendor)", wanted.device),
    )
    given = [(sql, value) for sql, value in tests if value]
    return "".join(f" AND {sql}" for sql, _ in given), [value for _, value in given]


def _winner(row: Sequence[Any], here: Mapping[str, str]) -> Winner:
    present = here.get(row[1])
    return Winner(*(*row, None if present is None else present == row[6]))


@dataclasses.dataclass(frozen=True)
class ProblemRecords:
    """One problem's columns, find records and tuned configs, of every target and environment.

    Records are ordered by target, then by the newest environment.
    """

    columns: dict[str, Any]
    records: tuple[StoredFind, ...]
    configs: tuple[StoredPerf, ...]


def problem_records(db: PerfDb, key: str) -> list[ProblemRecords]:
    """All that is known of the problem with this key, or of the problems with this MIOpen key; empty when none is."""
    columns = ", ".join(PROBLEM_COLUMNS)
    rows = db.read(f"SELECT {columns} FROM problems WHERE key = ? OR miopen_key = ? ORDER BY key", (key, key))
    order = " WHERE p.key = ? ORDER BY t.key, e.first_seen DESC, r.time_ms IS NULL, r.time_ms, r.solver_id"
    return [
        ProblemRecords(
            dict(zip(PROBLEM_COLUMNS, row, strict=True)),
            tuple(db.stored(FIND_RECORDS, order, row[:1])),
            tuple(db.stored(PERF_RECORDS, order, row[:1])),
        )
        for row in rows
    ]


_NEAREST = (
    " WHERE p.key = ? AND t.vendor = ? AND t.arch = ? AND t.key <> ? ORDER BY r.time_ms IS NULL, r.time_ms, r.solver_id"
)


def nearest_find_records(db: PerfDb, problem_key: str, target: Target) -> list[StoredFind]:
    """Find records of a problem on other devices of the target's architecture, fastest first."""
    if not is_text(problem_key):
        return []
    return db.stored(FIND_RECORDS, _NEAREST, (problem_key, target.vendor, target.arch, target.key))
