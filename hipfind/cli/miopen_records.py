"""The table of MIOpen's own records of a problem, for the commands that show them."""

from __future__ import annotations

from collections.abc import Sequence

from hipfind.cli import text
from hipfind.cli.table import Column, print_table
from hipfind.find.reference import Reference

_COLUMNS = (
    Column("Device"),
    Column("MIOpen's solver"),
    Column("Time ms", right=True),
    Column("Workspace", right=True, leave_out=2),
    Column("Params", wraps=True, leave_out=1),
)
_MOST_SOLVERS = 5


def print_references(references: Sequence[Reference]) -> None:
    """Print the fastest solvers of each record, or its tuned params."""
    print_table(_COLUMNS, [row for one in references for row in _rows(one)])


def _rows(one: Reference) -> list[list[str]]:
    times = sorted(one.times, key=lambda time: time.time_ms)[:_MOST_SOLVERS]
    rows = [
        [one.target_key, time.solver_id, text.ms(time.time_ms), text.size(time.workspace_bytes), ""] for time in times
    ]
    return rows + [[one.target_key, solver, "-", "-", params] for solver, params in one.params.items()]
