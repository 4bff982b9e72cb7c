"""``hipfind find``: measure every candidate of a problem and keep the winner."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import click

from hipfind import settings
from hipfind.cli import text
from hipfind.cli.exits import FAILED, complain
from hipfind.cli.options import (
    AnyFunction,
    device_option,
    find_mode_option,
    json_option,
    problem_options,
    workspace_limit_option,
)
from hipfind.cli.output import print_json
from hipfind.cli.progress import find_progress
from hipfind.cli.table import Column, print_note, print_table
from hipfind.find import api
from hipfind.find.report import Candidate, FindReport, Outcome
from hipfind.problem.base import Problem

_COLUMNS = (
    Column("Solver"),
    Column("Outcome", wraps=True),
    Column("Time ms", right=True),
    Column("Samples", right=True, leave_out=2),
    Column("Workspace", right=True),
    Column("Est. ms", right=True, leave_out=3),
    Column("Config", leave_out=1),
    Column("Source", leave_out=4),
)


def _parse_configs(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    configs = {}
    for value in values:
        solver_id, equals, config = value.partition("=")
        if not (solver_id and equals and config):
            raise click.BadParameter(f"a config is given as ID=TEXT, e.g. GemmFwdRest=rank=1 (got {value!r})")
        configs[solver_id] = config
    return configs


def find_options(function: AnyFunction) -> AnyFunction:
    """What ``find`` takes besides the problem."""
    for option in (
        json_option,
        device_option,
        click.option(
            "--solver", "solvers", multiple=True, metavar="ID", help="Only this solver is a candidate. Repeatable."
        ),
        click.option(
            "--verify",
            type=click.Choice(settings.VERIFY_MODES),
            help="Check outputs before a solver's first win, always, or off.  [default: HIPFIND_VERIFY]",
        ),
        click.option(
            "--tune",
            is_flag=True,
            help="First search the best perf config of every tunable solver; Ctrl-C keeps what was found.",
        ),
        click.option(
            "--config",
            "configs",
            multiple=True,
            metavar="ID=TEXT",
            callback=_parse_configs,
            help="Measure this solver with this perf config, and all as NORMAL does; nothing is stored. Repeatable.",
        ),
        workspace_limit_option,
        find_mode_option,
    ):
        function = option(function)
    return function


@click.command("find")
@problem_options
@find_options
def find(**arguments: Any) -> int:
    """Find the fastest solver of a convolution: measure what the perf DB does not know, and store it.

    The problem is given by MIOpenDriver's flags, or by --key. -F 0 (the default) finds all three directions.
    """
    return run_find(**arguments)


def run_find(
    problems: Sequence[Problem],
    find_mode: str | None,
    workspace_limit: int | None,
    verify: str | None,
    tune: bool,
    solvers: tuple[str, ...],
    configs: dict[str, str],
    device: str | None,
    as_json: bool,
) -> int:
    """Find for each problem, print the reports; returns the exit code."""
    reports = []
    with _only(solvers):
        for problem in problems:
            with find_progress() as on_progress:
                report = api.find(problem, find_mode, workspace_limit, device, verify, tune, on_progress, configs)
            reports.append(report)
            if not as_json:
                print_report(report)
    if as_json:
        print_json([report.to_dict() for report in reports])
    hopeless = [report for report in reports if report.best is None]
    for report in hopeless:
        complain(nothing_usable(report))
    return FAILED if hopeless else 0


@contextlib.contextmanager
def _only(solvers: tuple[str, ...]) -> Iterator[None]:
    with settings.override(**({"find_only_solver": solvers} if solvers else {})):
        yield


def nothing_usable(report: FindReport) -> str:
    """Why a Find has no result: the candidates that came closest, each with its reason."""
    tried = [one for one in report.candidates if one.outcome not in (Outcome.NOT_APPLICABLE, Outcome.EXCLUDED)]
    reasons = "; ".join(f"{one.solver_id}: {text.one_line(outcome_of(one))}" for one in tried)
    return (
        f"no solver has a usable result on {report.device} ({reasons or 'none applies'})"
        f" (got {report.problem.key()}); `hipfind explain` shows every solver's reason"
    )


def print_report(report: FindReport) -> None:
    """A Find's answer for people: the winner, the table of every candidate, the notes."""
    click.echo(f"problem  {report.problem.key()}")
    click.echo(f"device   {report.device}, mode {report.mode}")
    click.echo(f"answer   {_answer(report)}")
    click.echo()
    others = [one.solver_id for one in report.candidates if text.is_other_direction(one.reason)]
    rows = [_row(one) for one in _ranked(report) if one.solver_id not in others]
    print_table(_COLUMNS, rows, best_first=report.best is not None)
    if others:
        print_note(f"not applicable, {text.OTHER_DIRECTION}: {', '.join(others)}")
    for note in report.notes:
        print_note(f"note: {note}")
    click.echo()


def _answer(report: FindReport) -> str:
    best = report.best
    if best is None:
        return "nothing usable"
    reached = text.rate(report.problem.flops, best.time_ms)
    kept = ", stored in the perf DB" if report.stored else ""
    return f"{best.solver_id}, {text.ms(best.time_ms)} ms, {reached}; {best.source.value}{kept}"


def _ranked(report: FindReport) -> list[Candidate]:
    """The choices in their order, then the other candidates: those that applied before those that did not."""
    place = {choice.solver_id: index for index, choice in enumerate(report.results)}
    return sorted(report.candidates, key=lambda one: (place.get(one.solver_id, len(place)), one.expected_ms is None))


def _row(one: Candidate) -> list[str]:
    applied = one.expected_ms is not None
    return [
        one.solver_id,
        text.one_line(outcome_of(one)),
        text.ms_with_spread(one.time_ms, one.spread_ms) if one.time_ms is not None else "-",
        str(one.samples) if one.samples else "-",
        text.size(one.workspace_bytes) if applied else "-",
        text.ms(one.expected_ms),
        one.config or "-",
        one.source.value if one.time_ms is not None else "-",
    ]


def outcome_of(one: Candidate) -> str:
    """A candidate's outcome with its reason."""
    return f"{one.outcome.value}: {one.reason}" if one.reason else one.outcome.value
