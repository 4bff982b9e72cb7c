"""``hipfind explain``: every solver of a problem, whether it applies or why not, and what it is expected to cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from hipfind.cli import text
from hipfind.cli.miopen_records import print_references
from hipfind.cli.options import AnyFunction, device_option, json_option, problem_options
from hipfind.cli.output import print_json
from hipfind.cli.table import Column, print_note, print_table
from hipfind.find import api
from hipfind.find.report import Explanation
from hipfind.find.session import session_for
from hipfind.problem.base import Problem
from hipfind.target import Target

_COLUMNS = (
    Column("Solver"),
    Column("Applicable", wraps=True),
    Column("WTI", right=True),
    Column("Est. ms", right=True),
    Column("Workspace", right=True, leave_out=3),
    Column("Dynamic", leave_out=2),
    Column("Algorithm", leave_out=1),
    Column("DB record", leave_out=4),
    Column("MIOpen ms", right=True, leave_out=5),
)


def explain_options(function: AnyFunction) -> AnyFunction:
    """What ``explain`` takes besides the problem."""
    return device_option(json_option(function))


@click.command("explain")
@problem_options
@explain_options
def explain(**arguments: Any) -> None:
    """Explain every solver's part in a convolution: applicable or the reason why not, estimate, workspace, DB record.

    Above the table stands what the problem costs on this device at its peak rates: its operations, its bytes, and the
    longer of both times (the floor). WTI is the expected fraction of the peak. MIOpen's own records of the problem,
    where `hipfind db import` has brought some, stand below.
    """
    run_explain(**arguments)


def run_explain(problems: Sequence[Problem], device: str | None, as_json: bool) -> None:
    """Explain each problem's solvers."""
    target = session_for(device).device.target
    rows = [
        (problem, _cost(problem, target), api.explain(problem, device), api.references(problem, device))
        for problem in problems
    ]
    if as_json:
        print_json(
            [
                {
                    "problem": problem.key(),
                    "target": target.key,
                    **cost,
                    "solvers": [one.to_dict() for one in found],
                    "references": [one.to_dict() for one in references],
                }
                for problem, cost, found, references in rows
            ]
        )
        return
    for problem, cost, found, references in rows:
        _print_cost(problem, target, cost)
        others = [one.solver_id for one in found if text.is_other_direction(one.reason)]
        print_table(_COLUMNS, [_row(one) for one in found if one.solver_id not in others])
        if others:
            print_note(f"no, {text.OTHER_DIRECTION}: {', '.join(others)}")
        click.echo()
        if references:
            print_references(references)
            click.echo()


def _cost(problem: Problem, target: Target) -> dict[str, Any]:
    """The problem's operations, bytes and roofline floor on this target."""
    dtype = problem.tensor(problem.output).dtype.value
    compute_ms = problem.flops / target.peak(dtype) * 1e3
    memory_ms = problem.min_bytes / (target.bandwidth_gbs * 1e9) * 1e3
    return {
        "flops": problem.flops,
        "min_bytes": problem.min_bytes,
        "compute_floor_ms": compute_ms,
        "memory_floor_ms": memory_ms,
        "floor_ms": max(compute_ms, memory_ms),
    }


def _print_cost(problem: Problem, target: Target, cost: dict[str, Any]) -> None:
    dtype = problem.tensor(problem.output).dtype.value
    bound = "arithmetic" if cost["compute_floor_ms"] >= cost["memory_floor_ms"] else "memory"
    peak, bandwidth = target.peak(dtype) / 1e12, target.bandwidth_gbs
    click.echo(f"problem     {problem.key()}")
    click.echo(f"device      {target.name} ({target.key}): {peak:.3g} TFLOP/s {dtype}, {bandwidth:.3g} GB/s")
    click.echo(f"arithmetic  {cost['flops'] / 1e9:.4g} GFLOP, {text.ms(cost['compute_floor_ms'])} ms at peak")
    click.echo(f"memory      {text.size(cost['min_bytes'])}, {text.ms(cost['memory_floor_ms'])} ms at full bandwidth")
    click.echo(f"floor       {text.ms(cost['floor_ms'])} ms, bound by {bound}")
    click.echo()


def _row(one: Explanation) -> list[str]:
    record = f"{one.record}, {text.ms(one.recorded_ms)} ms" if one.recorded_ms is not None else one.record
    return [
        one.solver_id,
        (f"yes ({one.reason})" if one.reason else "yes") if one.applicable else f"no: {one.reason}",
        "-" if one.wti is None else "unknown" if one.wti < 0 else f"{one.wti:.3g}",
        text.ms(one.expected_ms),
        text.size(one.workspace_bytes),
        "-" if one.dynamic is None else "yes" if one.dynamic else "no",
        one.algorithm,
        record or "-",
        text.ms(one.reference_ms),
    ]
