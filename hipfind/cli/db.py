"""``hipfind db``: the group, and what looks into a perf DB. None of the devices that it is about is needed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import click

from hipfind.cli import text
from hipfind.cli.db_browse import browse
from hipfind.cli.db_check import check
from hipfind.cli.db_exchange import export, import_, merge_
from hipfind.cli.db_kernels import cache_facts, cache_line, prune_kernels
from hipfind.cli.db_open import age, environments_here, of_device_option, reads_db
from hipfind.cli.db_query import diff, query, stats_
from hipfind.cli.db_upkeep import backup_, compact_, prune
from hipfind.cli.miopen_records import print_references
from hipfind.cli.options import json_option
from hipfind.cli.output import print_json
from hipfind.cli.rows import print_rows, row_options
from hipfind.cli.table import Column, print_table
from hipfind.errors import PerfDbError
from hipfind.perfdb.queries import Filter, ProblemRecords, Winner, list_winners, problem_records
from hipfind.perfdb.records import StoredFind, StoredPerf
from hipfind.perfdb.references import Reference, references, references_under
from hipfind.perfdb.store import PerfDb
from hipfind.problem.conv import DIRECTIONS
from hipfind.problem.dtypes import DType

_WINNERS = (
    Column("Problem", wraps=True),
    Column("Device", leave_out=4),
    Column("Winner"),
    Column("Time ms", right=True),
    Column("Workspace", right=True, leave_out=2),
    Column("Environment", leave_out=3),
    Column("Age", right=True, leave_out=1),
)
_RECORDS = (
    Column("Solver"),
    Column("Outcome"),
    Column("Time ms", right=True),
    Column("Samples", right=True, leave_out=2),
    Column("Workspace", right=True, leave_out=3),
    Column("Verified", leave_out=4),
    Column("Config", leave_out=5),
    Column("Age", right=True, leave_out=1),
    Column("Detail", wraps=True),
)
_CONFIGS = (
    Column("Solver"),
    Column("Tuned config"),
    Column("Time ms", right=True),
    Column("Samples", right=True, leave_out=2),
    Column("Age", right=True, leave_out=1),
    Column("Refused", wraps=True),
)
_TRUST = {True: "trusted", False: "stale", None: "other device"}


@click.group("db", no_args_is_help=False)
def db() -> None:
    """Look into the perf DB, and take it elsewhere: what was found, when, and whether it still counts."""


for command in (import_, export, merge_, diff, query, stats_, prune, backup_, compact_, check, browse, prune_kernels):
    db.add_command(command)


@db.command("info")
@reads_db
@json_option
def info(db: PerfDb, as_json: bool) -> None:
    """Show where the DB is, its size and schema, what is in it, and the environments that it knows."""
    facts = {**db.info(), "kernel_cache": cache_facts()}
    if as_json:
        print_json(facts)
        return
    lines = {
        "path": facts["path"],
        "size": text.size(facts["size_bytes"]),
        "schema": f"{facts['schema_version']} ({', '.join(facts['migrations'])})",
        "journal": facts["journal_mode"] + (" (in a read-only directory)" if facts["immutable"] else ""),
        "sqlite": facts["sqlite_version"],
        **{name.replace("_", " "): str(count) for name, count in facts["rows"].items()},
        "kernel cache": cache_line(facts["kernel_cache"]),
    }
    width = max(map(len, lines)) + 2
    for name, value in lines.items():
        click.echo(f"{name:<{width}}{value}")
    for target in facts["targets"]:
        click.echo(f"\ndevice {target['key']}  {target['name']}  find records: {target['find_records']}")
    for environment in facts["environments"]:
        _echo_environment(environment["fingerprint"], environment["facts"], environment["find_records"])


def _echo_environment(fingerprint: str, facts: dict[str, str], records: int) -> None:
    click.echo(f"\nenvironment {fingerprint}  find records: {records}")
    for name, value in facts.items():
        click.echo(f"  {name}: {value}")


@db.command("list")
@click.option("--solver", default="", metavar="ID", help="Only problems that this solver won.")
@click.option("--direction", type=click.Choice(DIRECTIONS), default=None, help="Only this direction.")
@click.option("--dtype", type=click.Choice([one.value for one in DType]), default=None, help="Only this element type.")
@of_device_option
@click.option("--limit", type=click.IntRange(min=1), default=None, help="At most so many, newest first.")
@reads_db
@row_options
def list_(
    db: PerfDb,
    solver: str,
    direction: str | None,
    dtype: str | None,
    device: str,
    limit: int | None,
    form: str,
) -> None:
    """List the winner of every problem, newest first.

    Environment: "trusted" when nothing has changed since on this device, "stale" when something has and the record
    is not used, "other device" when it was found on a device that is not here.
    """
    wanted = Filter(solver, direction or "", dtype or "", device)
    winners = list_winners(db, wanted, environments_here(db), limit)
    now = time.time()
    data = [{**dataclasses.asdict(one), "age_s": max(0.0, now - one.created_at)} for one in winners]
    print_rows(form, data, _WINNERS, [_winner_row(one, now) for one in winners])


def _winner_row(one: Winner, now: float) -> list[str]:
    return [
        one.problem_key,
        one.target_key,
        one.solver_id,
        text.ms_with_spread(one.time_ms, one.spread_ms),
        text.size(one.workspace_bytes),
        _TRUST[one.trusted],
        age(now - one.created_at),
    ]


@db.command("show")
@click.argument("key")
@reads_db
@json_option
def show(db: PerfDb, key: str, as_json: bool) -> None:
    """Show all records of one problem: every solver in every environment, tuned configs, and MIOpen's own records.

    KEY is hipfind's key of the problem, as `db list` prints it, or MIOpen's find-db key.
    """
    found = problem_records(db, key)
    others = [] if found else references_under(db, key)
    if not (found or others):
        raise PerfDbError(
            "the perf DB has no problem with this key", got=key, remedy="`hipfind db list` shows its keys"
        )
    environments = {name: dict(one.facts) for name, one in db.environments().items()}
    if as_json:
        print_json(
            [_problem_dict(one, environments, references(db, one.columns["key"])) for one in found]
            or [{"problem": None, "records": [], "environments": {}, "references": [one.to_dict() for one in others]}]
        )
        return
    for one in found:
        _echo_problem(one, environments)
        _echo_references(references(db, one.columns["key"]))
    _echo_references(others)


def _problem_dict(
    one: ProblemRecords, environments: dict[str, dict[str, str]], found: Sequence[Reference]
) -> dict[str, Any]:
    used = {stored.environment for stored in one.records} | {stored.environment for stored in one.configs}
    known = {name: facts for name, facts in environments.items() if name in used}
    return {
        "problem": one.columns,
        "records": [_stored_dict(stored) for stored in one.records],
        "configs": [_stored_dict(stored) for stored in one.configs],
        "environments": known,
        "references": [reference.to_dict() for reference in found],
    }


def _stored_dict(stored: StoredFind | StoredPerf) -> dict[str, Any]:
    place = {"target": stored.target_key, "environment": stored.environment, "created_at": stored.created_at}
    return {**dataclasses.asdict(stored.record), **place}


def _echo_references(found: Sequence[Reference]) -> None:
    if found:
        click.echo(f"\nMIOpen's records, key {found[0].miopen_key}\n")
        print_references(found)


def _echo_problem(one: ProblemRecords, environments: dict[str, dict[str, str]]) -> None:
    click.echo(f"problem  {one.columns['key']}")
    if one.columns["miopen_key"]:
        click.echo(f"MIOpen   {one.columns['miopen_key']}")
    places = [(stored.target_key, stored.environment) for stored in one.records]
    places += [(stored.target_key, stored.environment) for stored in one.configs]
    for place in dict.fromkeys(places):
        target, environment = place
        click.echo(f"\ndevice {target}, environment {environment}")
        for name, value in environments.get(environment, {}).items():
            click.echo(f"  {name}: {value}")
        records = [stored for stored in one.records if (stored.target_key, stored.environment) == place]
        configs = [stored for stored in one.configs if (stored.target_key, stored.environment) == place]
        for columns, rows in ((_RECORDS, _record_rows(records)), (_CONFIGS, _config_rows(configs))):
            if rows:
                click.echo()
                print_table(columns, rows)


def _config_rows(configs: Sequence[StoredPerf]) -> list[list[str]]:
    now = time.time()
    return [
        [
            one.record.solver_id,
            one.record.config,
            text.ms_with_spread(one.record.time_ms, one.record.spread_ms),
            str(one.record.samples),
            age(one.age_s(now)),
            text.one_line(one.record.refused or "-"),
        ]
        for one in configs
    ]


def _record_rows(records: Sequence[StoredFind]) -> list[list[str]]:
    now = time.time()
    return [
        [
            one.record.solver_id,
            one.record.outcome.replace("_", " "),
            text.ms_with_spread(one.record.time_ms, one.record.spread_ms),
            str(one.record.samples),
            text.size(one.record.workspace_bytes),
            "yes" if one.record.verified else "no",
            one.record.config or "-",
            age(one.age_s(now)),
            text.one_line(one.record.detail),
        ]
        for one in records
    ]
