"""Records as lines of JSON, each complete in itself: what ``db export`` writes and ``db import`` reads again.

``{"kind": "find", "problem": {...}, "target": {...}, "environment": {...}, "record": {...}, "created_at": ...}``;
kind "perf" for a tuned config; kind "reference" for a record of MIOpen's, with "source", "form", "miopen_key" and
"value" instead of environment and record.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from hipfind.errors import PerfDbError
from hipfind.perfdb.records import Environment, FindRecord, PerfRecord, is_text
from hipfind.perfdb.tables import (
    ENVIRONMENT_COLUMNS,
    FIND_RECORDS,
    PERF_RECORDS,
    PROBLEM_COLUMNS,
    TARGET_COLUMNS,
    RecordTable,
    Row,
)

KINDS = ("find", "perf", "reference")
RECORD_TABLES: dict[str, RecordTable[Any]] = {"find": FIND_RECORDS, "perf": PERF_RECORDS}
SOURCE_COLUMNS = ("digest", "name", "imported_at")
_REFERENCE_FIELDS = ("form", "miopen_key", "value", "best_solver", "best_ms")
_NEWER = ("refused",)
"""Columns that lines of an earlier schema do not have."""
_MOST_DEVICES = 2**31


def select(kind: str, schema: str = "main") -> str:
    """SELECT of all that a line of this kind says; add a WHERE clause on r, p, t, e (records) or r, p, t, s."""
    if kind == "reference":
        columns = [*_of("p", PROBLEM_COLUMNS), *_of("t", TARGET_COLUMNS), *_of("s", SOURCE_COLUMNS)]
        return (
            f"SELECT {', '.join([*columns, *_of('r', _REFERENCE_FIELDS)])} FROM {schema}.reference_records r "
            f"JOIN {schema}.targets t ON t.id = r.target JOIN {schema}.reference_sources s ON s.id = r.source "
            f"LEFT JOIN {schema}.problems p ON p.id = r.problem"
        )
    table = RECORD_TABLES[kind]
    columns = [*_of("p", PROBLEM_COLUMNS), *_of("t", TARGET_COLUMNS), *_of("e", ENVIRONMENT_COLUMNS)]
    return (
        f"SELECT {', '.join([*columns, *_of('r', table.columns), 'r.created_at'])} FROM {schema}.{table.name} r "
        f"JOIN {schema}.problems p ON p.id = r.problem JOIN {schema}.targets t ON t.id = r.target "
        f"JOIN {schema}.environments e ON e.id = r.environment"
    )


ORDER = {
    "find": " ORDER BY p.key, t.key, e.fingerprint, r.solver_id",
    "perf": " ORDER BY p.key, t.key, e.fingerprint, r.solver_id",
    "reference": " ORDER BY t.key, r.form, r.miopen_key",
}
"""A stable order: the same records give the same bytes, whatever order they were stored in."""


def _of(table: str, columns: Sequence[str]) -> list[str]:
    return [f"{table}.{column}" for column in columns]


def to_dict(kind: str, row: Row) -> dict[str, Any]:
    """A row of ``select`` as JSON-ready data."""
    parts = iter(row)
    problem = _take(parts, PROBLEM_COLUMNS)
    line: dict[str, Any] = {"kind": kind, "problem": problem, "target": _take(parts, TARGET_COLUMNS)}
    if kind == "reference":
        line["problem"] = problem if problem["key"] is not None else None
        line["source"] = _take(parts, SOURCE_COLUMNS)
        return {**line, **_take(parts, _REFERENCE_FIELDS[:3])}
    environment = _take(parts, ENVIRONMENT_COLUMNS)
    environment["facts"] = _facts(environment["facts"])
    record = _take(parts, RECORD_TABLES[kind].columns)
    return {**line, "environment": environment, "record": record, "created_at": next(parts)}


def _take(parts: Iterator[Any], columns: Sequence[str]) -> dict[str, Any]:
    return {column: next(parts) for column in columns}


def _facts(text: str) -> dict[str, str] | str:
    """Facts as an object; text that is none stays as it is, so that nothing is lost."""
    try:
        facts = json.loads(text)
    except ValueError:
        return text
    return facts if isinstance(facts, dict) else text


def encode(kind: str, row: Row) -> str:
    """A row of ``select`` as one line, ASCII only, without its end."""
    return json.dumps(to_dict(kind, row), sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclasses.dataclass(frozen=True)
class Line:
    """A line that was read: rows of its owners' columns and of its record's, checked."""

    kind: str
    problem: Row | None
    target: Row
    owner: Row
    """Values of ENVIRONMENT_COLUMNS, or of SOURCE_COLUMNS for a reference."""
    record: Row
    """Values of the record table's columns and the time of writing; form, key and value of a reference."""


def decode(text: str) -> Line:
    """The line that ``encode`` wrote. Raises PerfDbError saying what is missing or not legal."""
    try:
        line = json.loads(text)
    except ValueError as error:
        raise _illegal(f"it is not JSON: {error}", text) from error
    except RecursionError as error:
        raise _illegal("it is nested too deeply", text) from error
    if not isinstance(line, dict) or line.get("kind") not in KINDS:
        raise _illegal('it is not an object whose "kind" is one of ' + ", ".join(KINDS), text)
    try:
        return _reference(line) if line["kind"] == "reference" else _record(line)
    except (KeyError, TypeError, ValueError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise _illegal(reason, text) from error


def _illegal(reason: str, text: str) -> PerfDbError:
    shown = text if len(text) <= 100 else f"{text[:97]}..."
    return PerfDbError(f"this is not a line of hipfind's export: {reason}", got=shown)


def _record(line: dict[str, Any]) -> Line:
    kind = line["kind"]
    table = RECORD_TABLES[kind]
    given = line["record"]
    values = {column: given.get(column) if column in _NEWER else given[column] for column in table.columns}
    for column, value in values.items():  # JSON of other programs writes 1.0 as 1, and true for 1
        if column.endswith("_ms") and isinstance(value, int):
            values[column] = float(value)
    record: FindRecord | PerfRecord = table.make(list(values.values()))
    reason = record.invalid_reason()
    if reason:
        raise ValueError(reason)
    environment = line["environment"]
    facts = environment["facts"]
    text = Environment(tuple(facts.items())).to_json() if isinstance(facts, dict) else _text("facts", facts)
    owner = (_key(environment["fingerprint"]), text, _number("first_seen", environment["first_seen"]))
    row = (*table.row(record), _number("created_at", line["created_at"]))
    return Line(kind, _problem(line["problem"]), _target(line["target"]), owner, row)


def _reference(line: dict[str, Any]) -> Line:
    source = line["source"]
    owner = (_key(source["digest"]), _text("name", source["name"]), _number("imported_at", source["imported_at"]))
    if line["form"] not in ("find", "perf"):
        raise ValueError(f'"form" is find or perf, not {line["form"]!r}')
    record = (line["form"], _key(line["miopen_key"]), _text("value", line["value"]))
    problem = None if line["problem"] is None else _problem(line["problem"])
    return Line("reference", problem, _target(line["target"]), owner, record)


def _problem(columns: dict[str, Any]) -> Row:
    required = ("key", "operation", "direction", "dtype", "layout")
    row = []
    for column in PROBLEM_COLUMNS:
        value = columns[column]
        is_count = column in ("n", "c", "k", "groups")
        if column in required:
            _text(column, value)
        elif value is not None and not (_is_integer(value) if is_count else is_text(value)):
            raise ValueError(
                f"a problem's {column} is {'a whole number' if is_count else 'text'} or null, not {value!r}"
            )
        row.append(value)
    _key(columns["key"])
    return tuple(row)


def _target(columns: dict[str, Any]) -> Row:
    units = columns["compute_units"]
    if not (_is_integer(units) and 0 <= units < _MOST_DEVICES):
        raise ValueError(f"compute_units is a whole number, not {units!r}")
    texts = {name: _text(name, columns[name]) for name in TARGET_COLUMNS if name != "compute_units"}
    _key(columns["key"])
    return tuple(units if name == "compute_units" else texts[name] for name in TARGET_COLUMNS)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _key(value: object) -> str:
    if not value:
        raise ValueError("a key or a fingerprint is empty")
    return _text("a key", value)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not is_text(value):
        raise ValueError(f"{name} is Unicode text, not {value!r}")
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is a number, not {value!r}")
    return float(value)
