"""MIOpen's records of a problem, beside ours and never taken for ours: looked up by problem, on any device."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from hipfind.perfdb.miopen_text import ReferenceTime, parse_value
from hipfind.perfdb.records import is_text
from hipfind.perfdb.store import PerfDb
from hipfind.perfdb.tables import Row


@dataclasses.dataclass(frozen=True)
class Reference:
    """A record of one of MIOpen's files. ``form``: "find" (times) or "perf" (tuned params).

    ``target_key``, ``compute_units``: the device that MIOpen was run on; ``source``: the file's name.
    """

    target_key: str
    arch: str
    compute_units: int
    form: str
    miopen_key: str
    value: str
    source: str

    @property
    def times(self) -> tuple[ReferenceTime, ...]:
        """Solvers and their times, in MIOpen's order; empty for tuned params."""
        return parse_value(self.value) if self.form == "find" else ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data, with times and params instead of MIOpen's text."""
        facts = {**dataclasses.asdict(self), "times": [dataclasses.asdict(one) for one in self.times]}
        del facts["value"]
        return {**facts, "params": self.params}

    @property
    def params(self) -> dict[str, str]:
        """Tuned params by MIOpen's solver id, as MIOpen writes them; empty for times."""
        if self.form == "find":
            return {}
        return dict(part.split(":", 1) for part in self.value.split(";"))


_COLUMNS = "t.key, t.arch, t.compute_units, r.form, r.miopen_key, r.value, s.name"
_JOINS = "JOIN targets t ON t.id = r.target JOIN reference_sources s ON s.id = r.source"
_BY_PROBLEM = f"""
SELECT {_COLUMNS} FROM problems p JOIN reference_records r ON r.problem = p.id {_JOINS} WHERE p.key = ?
ORDER BY t.key, r.miopen_key"""
_BY_MIOPEN_KEY = f"""
SELECT {_COLUMNS} FROM targets t
CROSS JOIN reference_records r ON r.target = t.id AND r.form = ? AND r.miopen_key = ?
JOIN reference_sources s ON s.id = r.source ORDER BY t.key"""


def references(db: PerfDb, problem_key: str, perf_key: str = "") -> list[Reference]:
    """Records with times of the problem with hipfind's key, then params under MIOpen's perf-db key, by device."""
    found = db.look_up(_BY_PROBLEM, (problem_key,), _reference) if is_text(problem_key) else []
    if perf_key:
        found += db.look_up(_BY_MIOPEN_KEY, ("perf", perf_key), _reference)
    return found


def _reference(row: Row) -> Reference:
    return Reference(*row)


def references_under(db: PerfDb, miopen_key: str) -> list[Reference]:
    """Records with times under this find-db key of MIOpen's, which need not be of a problem that hipfind has."""
    return db.look_up(_BY_MIOPEN_KEY, ("find", miopen_key), _reference) if is_text(miopen_key) else []


def nearest(found: Sequence[Reference], arch: str, compute_units: int) -> list[Reference]:
    """Those of the device itself, else of the device of its architecture with the closest number of compute units.

    Two devices equally close: the one with fewer units. Empty where no record is of this architecture.
    """
    same = [one for one in found if one.arch == arch]
    if not same:
        return []
    closest = min((abs(one.compute_units - compute_units), one.compute_units, one.target_key) for one in same)
    return [one for one in same if one.target_key == closest[2]]
