"""``hipfind solvers``: every registered solver."""

from __future__ import annotations

from typing import Any

import click

from hipfind.cli.options import json_option
from hipfind.cli.output import print_json
from hipfind.cli.table import Column, print_table
from hipfind.problem.base import Problem
from hipfind.problem.conv import DIRECTIONS, ConvProblem
from hipfind.problem.upsample import DIRECTIONS as UPSAMPLE_DIRECTIONS
from hipfind.problem.upsample import UpsampleProblem
from hipfind.solvers.reasons import Reason
from hipfind.solvers.registry import AnySolver, default_registry
from hipfind.target import known

_COLUMNS = (
    Column("Solver"),
    Column("Operation", leave_out=1),
    Column("Directions"),
    Column("Algorithm"),
    Column("Version", right=True),
    Column("Tunable"),
)
_EXAMPLES: tuple[Problem, ...] = (
    *(ConvProblem.create(direction, (1, 1, 3, 3), (1, 1, 2, 2)) for direction in DIRECTIONS),
    *(UpsampleProblem.create(direction, (1, 1, 2, 2), (1, 1, 4, 4)) for direction in UPSAMPLE_DIRECTIONS),
)
"""A small problem of every operation in every direction."""


@click.command("solvers")
@json_option
def solvers(as_json: bool) -> None:
    """List every solver in order of preference: a tie in time goes to the upper one."""
    rows = [_facts(solver) for solver in default_registry().solvers]
    if as_json:
        print_json(rows)
        return
    print_table(
        _COLUMNS,
        [
            [
                row["solver_id"],
                row["operation"],
                " ".join(row["directions"]) or "-",
                row["algorithm"],
                str(row["version"]),
                "yes" if row["tunable"] else "no",
            ]
            for row in rows
        ],
    )


def _facts(solver: AnySolver) -> dict[str, Any]:
    return {
        "solver_id": solver.SolverDbId(),
        "operation": solver.operation,
        "directions": _directions(solver),
        "algorithm": solver.algorithm,
        "version": solver.version,
        "tunable": solver.IsTunable(),
    }


def _directions(solver: AnySolver) -> list[str]:
    """Directions for which a solver does not refuse a small problem because of its direction."""
    target = known("gfx942")
    examples = {one.direction: one for one in _EXAMPLES if one.operation == solver.operation}
    return [name for name, one in examples.items() if solver.IsApplicable(target, one).reason is not Reason.DIRECTION]
