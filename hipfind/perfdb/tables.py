"""Rows and statements: how problems, targets, environments and records map to the tables of the schema."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic

from hipfind.perfdb.records import Environment, FindRecord, PerfRecord, R, Stored
from hipfind.problem.base import Problem
from hipfind.problem.tensor import one_word
from hipfind.target import Target

Row = tuple[Any, ...]
_MAX_INTEGER = 2**63 - 1

PROBLEM_COLUMNS = (
    "key", "operation", "direction", "dtype", "layout", "n", "c", "k", "groups", "input", "filter", "output", "stride",
    "pad", "dilation", "miopen_key",
)  # fmt: skip


def problem_row(problem: Problem) -> Row:
    """Values of PROBLEM_COLUMNS for a canonical problem. What an operation does not have is None.

    Tensors that agree share one word ("fp32"); otherwise there is one each, joined by "_" as in the key.
    """
    dtypes = one_word([problem.tensor(role).dtype.value for role in problem.roles])
    common = (problem.key(), problem.operation, problem.direction, dtypes)
    facts = problem.facts()
    return common + tuple(_storable(facts.get(column)) for column in PROBLEM_COLUMNS[len(common) :])


def _storable(value: int | str | None) -> int | str | None:
    return None if isinstance(value, int) and value > _MAX_INTEGER else value


def _insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


TARGET_COLUMNS = ("key", "vendor", "arch", "compute_units", "name")
ENVIRONMENT_COLUMNS = ("fingerprint", "facts", "first_seen")


def target_row(target: Target) -> Row:
    """Values of TARGET_COLUMNS."""
    return (target.key, target.vendor, target.arch, target.compute_units, writable(target.name))


def environment_row(environment: Environment) -> Row:
    """Values of ENVIRONMENT_COLUMNS."""
    return (environment.fingerprint, environment.to_json(), time.time())


@dataclasses.dataclass(frozen=True)
class OwnerTable:
    """Statements for a table whose rows records belong to; its first column is the key."""

    name: str
    columns: tuple[str, ...]

    @property
    def select(self) -> str:
        return f"SELECT id FROM {self.name} WHERE {self.columns[0]} = ?"

    @property
    def insert(self) -> str:
        return _insert(self.name, self.columns)


PROBLEMS = OwnerTable("problems", PROBLEM_COLUMNS)
TARGETS = OwnerTable("targets", TARGET_COLUMNS)
ENVIRONMENTS = OwnerTable("environments", ENVIRONMENT_COLUMNS)


@dataclasses.dataclass(frozen=True)
class RecordTable(Generic[R]):
    """Statements for one table of records, and the way from a row to a record."""

    name: str
    columns: tuple[str, ...]
    make: Callable[[Sequence[Any]], R]

    @functools.cached_property
    def upsert(self) -> str:
        """Takes the record's columns, then problem, target and environment ids and the time of writing."""
        key = ("problem", "target", "environment", "solver_id")
        written = (*self.columns, "problem", "target", "environment", "created_at")
        new = ", ".join(f"{column} = excluded.{column}" for column in written if column not in key)
        return f"{_insert(self.name, written)} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {new}"

    @functools.cached_property
    def select(self) -> str:
        """Rows for ``stored``; add a WHERE clause on p (problems), t (targets), e (environments), r (records)."""
        record = ", ".join(f"r.{column}" for column in self.columns)
        return (
            f"SELECT p.key, t.key, e.fingerprint, r.created_at, {record} FROM problems p "
            f"JOIN {self.name} r ON r.problem = p.id JOIN targets t ON t.id = r.target "
            "JOIN environments e ON e.id = r.environment"
        )

    def row(self, record: R) -> Row:
        return tuple(writable(getattr(record, column)) for column in self.columns)

    def stored(self, row: Row, in_memory: bool) -> Stored[R]:
        problem_key, target_key, environment, created_at, *values = row
        return Stored(self.make(values), problem_key, target_key, environment, created_at, in_memory)


def writable(value: Any) -> Any:
    """Text as sqlite can hold it: a reason that quotes a strange path must not keep a record from being stored."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _names(record: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(record))


FIND_RECORDS: RecordTable[FindRecord] = RecordTable(
    "find_records", _names(FindRecord), lambda values: FindRecord(*(*values[:-1], bool(values[-1])))
)
PERF_RECORDS: RecordTable[PerfRecord] = RecordTable(
    "perf_records", _names(PerfRecord), lambda values: PerfRecord(*values)
)
