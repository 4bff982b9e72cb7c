"""``hipfind immediate``: ranked solutions without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from hipfind.cli import text
from hipfind.cli.exits import FAILED, complain
from hipfind.cli.options import AnyFunction, device_option, json_option, problem_options, workspace_limit_option
from hipfind.cli.output import print_json
from hipfind.cli.table import Column, print_table
from hipfind.find import api
from hipfind.find.report import Choice
from hipfind.problem.base import Problem

_COLUMNS = (
    Column("Rank", right=True),
    Column("Solver"),
    Column("Time ms", right=True),
    Column("Workspace", right=True),
    Column("Source"),
)


def immediate_options(function: AnyFunction) -> AnyFunction:
    """What ``immediate`` takes besides the problem."""
    return workspace_limit_option(device_option(json_option(function)))


@click.command("immediate")
@problem_options
@immediate_options
def immediate(**arguments: Any) -> int:
    """Rank the solutions of a convolution without running anything: by the perf DB, else by expected time.

    The problem is given by MIOpenDriver's flags, or by --key. -F 0 (the default) ranks for all three directions.
    """
    return run_immediate(**arguments)


def run_immediate(problems: Sequence[Problem], workspace_limit: int | None, device: str | None, as_json: bool) -> int:
    """Rank for each problem, print the choices; returns the exit code."""
    answers = [(problem, api.immediate(problem, workspace_limit, device)) for problem in problems]
    if as_json:
        print_json(
            [{"problem": problem.key(), "choices": [one.to_dict() for one in found]} for problem, found in answers]
        )
    for problem, choices in answers:
        if not choices:
            complain(f"no solver applies (got {problem.key()}); `hipfind explain` shows every solver's reason")
        elif not as_json:
            _print_choices(problem, choices)
    return 0 if all(choices for _, choices in answers) else FAILED


def _print_choices(problem: Problem, choices: Sequence[Choice]) -> None:
    click.echo(f"problem  {problem.key()}")
    click.echo()
    rows = [
        [str(rank), one.solver_id, text.ms(one.time_ms), text.size(one.workspace_bytes), one.source.value]
        for rank, one in enumerate(choices, start=1)
    ]
    print_table(_COLUMNS, rows, best_first=True)
    click.echo()
