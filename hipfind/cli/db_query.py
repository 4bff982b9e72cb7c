"""``hipfind db query``, ``stats`` and ``diff``: questions to one perf DB or two."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from hipfind.cli import text
from hipfind.cli.db_open import DAY_S, age, of_device_option, open_to_read, reads_db
from hipfind.cli.output import print_json
from hipfind.cli.rows import print_csv, print_rows, row_options
from hipfind.cli.table import Column, print_note, print_table
from hipfind.perfdb.diff import Difference, differences
from hipfind.perfdb.queries import Filter
from hipfind.perfdb.search import SHAPE_FIELDS, Wanted, search
from hipfind.perfdb.sql import run_sql
from hipfind.perfdb.stats import Stats, stats
from hipfind.perfdb.store import PerfDb
from hipfind.problem.conv import DIRECTIONS
from hipfind.problem.dtypes import DType

_SHOWN = 100
_RECORDS = (
    Column("Problem", wraps=True),
    Column("Device", leave_out=4),
    Column("Solver"),
    Column("Outcome", leave_out=2),
    Column("Time ms", right=True),
    Column("Workspace", right=True, leave_out=3),
    Column("Age", right=True, leave_out=1),
)
_REFERENCES = (
    Column("MIOpen's key", wraps=True),
    Column("Device", leave_out=2),
    Column("Fastest"),
    Column("Time ms", right=True),
    Column("Source", leave_out=1),
)
_SOLVERS = (
    Column("Device"),
    Column("Solver"),
    Column("Wins", right=True),
    Column("Total ms", right=True, leave_out=2),
    Column("Saved: 2nd best", right=True),
    Column("x", right=True, leave_out=4),
    Column("Saved: naive", right=True),
    Column("x", right=True, leave_out=3),
    Column("Newest", right=True, leave_out=1),
)
_CONFIGS = (
    Column("Device"),
    Column("Solver"),
    Column("Tuned configs", right=True),
    Column("Refused", right=True),
    Column("Newest", right=True),
)
_ENVIRONMENTS = (
    Column("Environment"),
    Column("Records", right=True),
    Column("Problems", right=True),
    Column("First seen", right=True, leave_out=1),
    Column("Oldest", right=True, leave_out=2),
    Column("Newest", right=True),
)
_SOURCES = (
    Column("Device"),
    Column("MIOpen's file", wraps=True),
    Column("Form"),
    Column("Records", right=True),
    Column("Imported", right=True),
)
_DIFFERENCES = (
    Column("Problem", wraps=True),
    Column("Device", leave_out=1),
    Column("A"),
    Column("A ms", right=True),
    Column("B"),
    Column("B ms", right=True),
    Column("B/A", right=True),
)
_CHOICES: dict[str, Sequence[str]] = {"direction": DIRECTIONS, "dtype": [one.value for one in DType]}
_SHAPE = "shape_"


def _shape_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for name in reversed(SHAPE_FIELDS):
        kind = click.INT if name in ("n", "c", "k", "groups") else click.STRING
        choices = click.Choice(_CHOICES[name]) if name in _CHOICES else None
        function = click.option(
            f"--{name}", f"{_SHAPE}{name}", type=choices or kind, help=f"Only this {name}{_EXAMPLES.get(name, '')}."
        )(function)
    return function


_EXAMPLES = {"input": ", e.g. 56x56", "filter": ", e.g. 3x3", "dtype": " (one word where all tensors have it)"}


@click.command("query")
@_shape_options
@click.option("--solver", default="", metavar="ID", help="Only this solver; with --reference the fastest.")
@click.option("--outcome", default="", metavar="WORD", help="Only this outcome: won, lost, compile_failed, ...")
@of_device_option
@click.option("--environment", default="", metavar="FINGERPRINT", help="Only this environment.")
@click.option("--slower-than", type=click.FloatRange(min=0), metavar="MS", help="Only times of so much or more.")
@click.option("--faster-than", type=click.FloatRange(min=0), metavar="MS", help="Only times of so much or less.")
@click.option("--newer-than", type=click.FloatRange(min=0), metavar="DAYS", help="Only what is so old at most.")
@click.option("--older-than", type=click.FloatRange(min=0), metavar="DAYS", help="Only what is so old at least.")
@click.option("--reference", is_flag=True, help="Records that were imported from MIOpen, instead of our own.")
@click.option(
    "--sql", metavar="SELECT", help="One SELECT instead, e.g. of the views results, tuned_configs, reference_results."
)
@click.option("--limit", type=click.IntRange(min=0), default=_SHOWN, show_default=True, help="At most so many; 0: all.")
@reads_db
@row_options
def query(db: PerfDb, form: str, sql: str | None, limit: int, **fields: Any) -> None:
    """Find records by shape, solver, device, time and age, or by SQL that only reads.

    SQL is run on a connection on which sqlite itself refuses all but reading.
    """
    most = limit or -1
    if sql is not None:
        given = click.get_current_context()
        used = [name for name in fields if given.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE]
        if used:
            raise click.UsageError(f"--sql is the whole question; leave out --{used[0].removeprefix(_SHAPE)}")
        _print_sql(form, *run_sql(db, sql, limit=most))
        return
    now = time.time()
    found = search(db, _wanted(fields, now), most)
    if fields["reference"]:
        print_rows(form, found, _REFERENCES, [_reference_cells(one) for one in found])
    else:
        print_rows(form, found, _RECORDS, [_record_cells(one, now) for one in found])
    if form == "table" and len(found) == most:
        print_note(f"(the first {most}; --limit 0 has all)")


def _wanted(fields: dict[str, Any], now: float) -> Wanted:
    shape = {name: fields[_SHAPE + name] for name in SHAPE_FIELDS if fields[_SHAPE + name] is not None}
    newer, older = fields["newer_than"], fields["older_than"]
    return Wanted(
        shape, fields["solver"], fields["outcome"], fields["device"], fields["environment"],
        fields["slower_than"], fields["faster_than"],
        None if newer is None else now - newer * DAY_S,
        None if older is None else now - older * DAY_S,
        fields["reference"],
    )  # fmt: skip


def _print_sql(form: str, names: list[str], rows: list[tuple[Any, ...]]) -> None:
    cells = [["-" if value is None else text.one_line(str(value)) for value in row] for row in rows]
    unique = [name if names.index(name) == place else f"{name}_{place}" for place, name in enumerate(names)]
    data = [dict(zip(unique, map(_plain, row), strict=True)) for row in rows]
    print_rows(form, data, [Column(name) for name in names], cells)


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _record_cells(one: dict[str, Any], now: float) -> list[str]:
    return [
        one["problem"],
        one["device"],
        one["solver"],
        one["outcome"].replace("_", " "),
        text.ms_with_spread(one["time_ms"], one["spread_ms"]),
        text.size(one["workspace_bytes"]),
        age(now - one["created_at"]),
    ]


def _reference_cells(one: dict[str, Any]) -> list[str]:
    return [one["miopen_key"], one["device"], one["solver"] or "-", text.ms(one["time_ms"]), one["source"]]


@click.command("stats")
@of_device_option
@reads_db
@row_options
def stats_(db: PerfDb, form: str, device: str) -> None:
    """Show who wins how often, what that saves, tuned configs, how old records are, and their environments.

    A problem counts in its newest environment. Saved: the sum of ms against the second best solver, and against the
    naive one, over the problems timed with it; x: the geometric mean of the ratio. --csv has the solvers only.
    """
    found = stats(db, device)
    if form == "json":
        print_json(found.to_dict())
    elif form == "csv":
        print_csv([dataclasses.asdict(one) for one in found.solvers])
    else:
        _print_stats(found, time.time())


def _print_stats(found: Stats, now: float) -> None:
    print_table(_SOLVERS, [
        [one.device, one.solver_id, str(one.wins), text.ms(one.total_ms), text.ms(one.saved_second_ms),
         _ratio(one.second_ratio), text.ms(one.saved_naive_ms), _ratio(one.naive_ratio), age(now - one.newest_at)]
        for one in found.solvers
    ])  # fmt: skip
    if found.configs:
        click.echo()
        print_table(_CONFIGS, [
            [one.device, one.solver_id, str(one.configs), str(one.refused), age(now - one.newest_at)]
            for one in found.configs
        ])  # fmt: skip
    click.echo()
    print_table(_ENVIRONMENTS, [
        [one.fingerprint, str(one.find_records), str(one.problems), age(now - one.first_seen),
         *("-" if at is None else age(now - at) for at in (one.oldest_at, one.newest_at))]
        for one in found.environments
    ])  # fmt: skip
    if found.references:
        click.echo()
        print_table(_SOURCES, [
            [one.device, one.source, one.form, str(one.records), age(now - one.imported_at)]
            for one in found.references
        ])  # fmt: skip


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


@click.command("diff")
@click.argument("a", metavar="A", type=click.Path())
@click.argument("b", metavar="B", type=click.Path())
@click.option("--solver", default="", metavar="ID", help="Only problems that this solver won in A or in B.")
@click.option("--direction", type=click.Choice(DIRECTIONS), default=None, help="Only this direction.")
@click.option("--dtype", type=click.Choice([one.value for one in DType]), default=None, help="Only this element type.")
@of_device_option
@click.option("--all", "show_all", is_flag=True, help="Also what does not differ.")
@row_options
def diff(
    a: str, b: str, form: str, solver: str, direction: str | None, dtype: str | None, device: str, show_all: bool
) -> None:
    """Compare the winners of two perf DB files: other solvers, other times, problems that one of them lacks.

    B/A is the ratio of times, the worst first. A time differs where it moved by more than 5 % and both spreads.
    """
    with open_to_read(a) as old, open_to_read(b) as new:
        found = differences(old, new, Filter(solver, direction or "", dtype or "", device))
    shown = [one for one in found if show_all or one.differs]
    data = [_difference_dict(one) for one in shown]
    if form != "table":
        print_json(data) if form == "json" else print_csv(data)
        return
    if shown:
        print_table(_DIFFERENCES, [_difference_cells(one) for one in shown])
    both = [one for one in found if one.old and one.new]
    others = sum(one.changed for one in both)
    click.echo(
        f"{len(both)} problems in both, {others} with another winner; "
        f"{sum(one.new is None for one in found)} only in A, {sum(one.old is None for one in found)} only in B",
        err=True,
    )


def _difference_dict(one: Difference) -> dict[str, Any]:
    sides = {
        f"{name}_{field}": None if side is None else getattr(side, field)
        for name, side in (("a", one.old), ("b", one.new))
        for field in ("solver_id", "time_ms", "spread_ms", "environment", "created_at")
    }
    return {"problem": one.problem_key, "device": one.target_key, **sides, "ratio": one.ratio, "changed": one.changed}


def _difference_cells(one: Difference) -> list[str]:
    cells = [one.problem_key, one.target_key]
    for side in (one.old, one.new):
        cells += ["-", "-"] if side is None else [side.solver_id, text.ms_with_spread(side.time_ms, side.spread_ms)]
    return [*cells, _ratio(one.ratio)]
