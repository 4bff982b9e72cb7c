"""Sums over a perf DB: who wins how often, what that saves, how old the records are, and their environments."""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
import sqlite3
from collections.abc import Sequence
from typing import Any

from hipfind.perfdb.records import WON
from hipfind.perfdb.store import PerfDb
from hipfind.perfdb.tables import Row

NAIVE = "ConvDirectNaiveConv"
"""Start of the ids of MIOpen's naive solvers, the yardstick that every problem has."""

_RACES = """
WITH newest AS (
  SELECT problem, target, environment,
    row_number() OVER (PARTITION BY problem, target ORDER BY created_at DESC) AS place
  FROM find_records WHERE outcome = ? AND time_ms IS NOT NULL
)
SELECT r.problem, r.target, t.key, r.solver_id, r.outcome = ?, r.time_ms, r.created_at
FROM newest n JOIN find_records r
  ON r.problem = n.problem AND r.target = n.target AND r.environment = n.environment
  JOIN targets t ON t.id = r.target
WHERE n.place = 1 AND r.outcome IN (?, 'lost', 'skipped_slow') AND r.time_ms IS NOT NULL
  AND ? IN ('', t.key, t.arch, t.vendor)
ORDER BY r.problem, r.target, r.time_ms"""

_ENVIRONMENTS = """
SELECT e.fingerprint, e.first_seen, count(r.solver_id), min(r.created_at), max(r.created_at), count(DISTINCT r.problem)
FROM environments e LEFT JOIN find_records r ON r.environment = e.id
GROUP BY e.id ORDER BY e.first_seen DESC, e.fingerprint"""

_REFERENCES = """
SELECT t.key, s.name, r.form, count(*), s.imported_at FROM reference_records r JOIN targets t ON t.id = r.target
JOIN reference_sources s ON s.id = r.source GROUP BY 1, 2, 3, 5 ORDER BY 1, 3, 2"""

_CONFIGS = """
SELECT device, solver, count(*), count(refused), max(created_at) FROM tuned_configs
WHERE device IN (SELECT key FROM targets WHERE ? IN ('', key, arch, vendor)) GROUP BY 1, 2 ORDER BY 1, 2"""


@dataclasses.dataclass(frozen=True)
class SolverStats:
    """One solver's wins on one device, in each problem's newest environment.

    ``saved_*_ms``: sum of what it was faster by than the second best and than the naive solver, over those of its wins
    that have one; ``*_ratio``: the geometric mean of their time over its own, None where no win has one.
    """

    solver_id: str
    device: str
    wins: int
    total_ms: float
    saved_second_ms: float
    second_ratio: float | None
    saved_naive_ms: float
    naive_ratio: float | None
    newest_at: float


@dataclasses.dataclass(frozen=True)
class ConfigStats:
    """Tuned configs of one solver on one device, in all environments, and how many of them were refused."""

    device: str
    solver_id: str
    configs: int
    refused: int
    newest_at: float


@dataclasses.dataclass(frozen=True)
class EnvironmentStats:
    """One environment's records; times in seconds since 1970, None without records."""

    fingerprint: str
    first_seen: float
    find_records: int
    oldest_at: float | None
    newest_at: float | None
    problems: int


@dataclasses.dataclass(frozen=True)
class ReferenceStats:
    """Records of one of MIOpen's files."""

    device: str
    source: str
    form: str
    records: int
    imported_at: float


@dataclasses.dataclass(frozen=True)
class Stats:
    """All of it. ``to_dict`` gives JSON-ready data."""

    solvers: tuple[SolverStats, ...]
    configs: tuple[ConfigStats, ...]
    environments: tuple[EnvironmentStats, ...]
    references: tuple[ReferenceStats, ...]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass
class _Sums:
    wins: int = 0
    total_ms: float = 0.0
    newest_at: float = 0.0
    second: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    naive: list[tuple[float, float]] = dataclasses.field(default_factory=list)


def stats(db: PerfDb, device: str = "") -> Stats:
    """Figures of the file; ``device``: only of this target key, architecture or vendor ("": all)."""
    sums = db.run("reading", lambda connection: _sum(connection, device))
    solvers = [_solver_stats(solver, target, one) for (target, solver), one in sums.items()]
    solvers.sort(key=lambda one: (one.device, -one.wins, one.solver_id))
    return Stats(
        tuple(solvers),
        tuple(ConfigStats(*row) for row in db.read(_CONFIGS, (device,))),
        tuple(EnvironmentStats(*row) for row in db.read(_ENVIRONMENTS)),
        tuple(ReferenceStats(*row) for row in db.read(_REFERENCES)),
    )


def _sum(connection: sqlite3.Connection, device: str) -> dict[tuple[str, str], _Sums]:
    """Sums by device and solver, from rows that are read one race at a time."""
    sums: dict[tuple[str, str], _Sums] = {}
    rows = connection.execute(_RACES, (WON, WON, WON, device))
    for _, race in itertools.groupby(rows, key=operator.itemgetter(0, 1)):
        _add(sums, [row[2:] for row in race])
    return sums


def _add(sums: dict[tuple[str, str], _Sums], race: Sequence[Row]) -> None:
    """Add one problem's race: its rows are (device, solver, won, time, when), fastest first."""
    winner = next((row for row in race if row[2]), None)
    if winner is None:
        return
    device, solver, _, time_ms, created_at = winner
    one = sums.setdefault((device, solver), _Sums())
    one.wins += 1
    one.total_ms += time_ms
    one.newest_at = max(one.newest_at, created_at)
    others = [row for row in race if row is not winner]
    if others:
        one.second.append((time_ms, others[0][3]))
    naive = next((row for row in others if row[1].startswith(NAIVE)), None)
    if naive is not None:
        one.naive.append((time_ms, naive[3]))


def _solver_stats(solver: str, device: str, one: _Sums) -> SolverStats:
    return SolverStats(
        solver, device, one.wins, one.total_ms, _saved(one.second), _ratio(one.second), _saved(one.naive),
        _ratio(one.naive), one.newest_at,
    )  # fmt: skip


def _saved(pairs: Sequence[tuple[float, float]]) -> float:
    return sum(other - own for own, other in pairs)


def _ratio(pairs: Sequence[tuple[float, float]]) -> float | None:
    logs = [math.log(other / own) for own, other in pairs if own > 0.0 and other > 0.0]
    return math.exp(sum(logs) / len(logs)) if logs else None
