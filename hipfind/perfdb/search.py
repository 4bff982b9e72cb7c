"""Records by what is known of them: shape, solver, device, time, age; over the views that people query too."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from hipfind.perfdb.sql import run_sql
from hipfind.perfdb.store import PerfDb

SHAPE_FIELDS = (
    "operation", "direction", "dtype", "layout", "n", "c", "k", "groups", "input", "filter", "output", "stride",
    "pad", "dilation",
)  # fmt: skip
"""Fields of a problem, as the columns of the views; numbers an axis are joined by "x" (``14x14``)."""

_OWN_COLUMNS = (
    "problem, device, environment, solver, outcome, time_ms, spread_ms, samples, workspace_bytes, config, verified, "
    "detail, created_at"
)
_REFERENCE_COLUMNS = "miopen_key, problem, device, form, solver, time_ms, value, source, imported_at"


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What records must fit; "" and None stand for any.

    ``shape``: values of SHAPE_FIELDS; ``device``: target key, architecture or vendor; ``least_ms`` and ``most_ms``
    bound the time, ``since`` and ``until`` when it was made (seconds since 1970). With ``reference`` MIOpen's records
    are meant: ``solver`` is then the fastest of a record.
    """

    shape: Mapping[str, str | int] = dataclasses.field(default_factory=dict)
    solver: str = ""
    outcome: str = ""
    device: str = ""
    environment: str = ""
    least_ms: float | None = None
    most_ms: float | None = None
    since: float | None = None
    until: float | None = None
    reference: bool = False


def search(db: PerfDb, wanted: Wanted, limit: int = -1) -> list[dict[str, Any]]:
    """Records as dictionaries, by problem and device, fastest first; ``limit`` of them at most (-1: all)."""
    columns, view = (_REFERENCE_COLUMNS, "reference_results") if wanted.reference else (_OWN_COLUMNS, "results")
    key, made = ("miopen_key", "imported_at") if wanted.reference else ("problem", "created_at")
    tests: list[tuple[str, Any]] = [(f"{name} = ?", value) for name, value in wanted.shape.items()]
    own_only = () if wanted.reference else (("outcome = ?", wanted.outcome), ("environment = ?", wanted.environment))
    tests += [(sql, value) for sql, value in (("solver = ?", wanted.solver), *own_only) if value]
    if wanted.device:
        tests.append(("device IN (SELECT key FROM targets WHERE ? IN (key, arch, vendor))", wanted.device))
    bounds = (("time_ms >= ?", wanted.least_ms), ("time_ms <= ?", wanted.most_ms),
              (f"{made} >= ?", wanted.since), (f"{made} <= ?", wanted.until))  # fmt: skip
    tests += [(sql, value) for sql, value in bounds if value is not None]
    where = " AND ".join(sql for sql, _ in tests) or "true"
    sql = f"SELECT {columns} FROM {view} WHERE {where} ORDER BY {key}, device, time_ms IS NULL, time_ms, solver"
    names, rows = run_sql(db, sql, [value for _, value in tests], limit)
    return [dict(zip(names, row, strict=True)) for row in rows]
