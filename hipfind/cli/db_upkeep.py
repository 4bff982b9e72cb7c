"""``hipfind db prune``, ``backup`` and ``compact``: keep a perf DB file small and safe."""

from __future__ import annotations

import sys
import time

import click

from hipfind.cli import text
from hipfind.cli.db_open import DAY_S, changes_db, of_device_option, reads_db
from hipfind.cli.options import json_option
from hipfind.cli.output import print_json
from hipfind.perfdb.faults import printable
from hipfind.perfdb.store import PerfDb
from hipfind.perfdb.upkeep import Unwanted, backup, compact
from hipfind.perfdb.upkeep import prune as prune_records


@click.command("prune")
@click.option("--older-than", type=click.FloatRange(min=0), metavar="DAYS", help="Only what is so old at least.")
@click.option("--solver", default="", metavar="ID", help="Only of this solver; with --reference where it is fastest.")
@of_device_option
@click.option("--environment", default="", metavar="FINGERPRINT", help="Only of this environment.")
@click.option("--reference", is_flag=True, help="Records that were imported from MIOpen, instead of our own.")
@click.option("--source", default="", metavar="NAME", help="With --reference: only of this file.")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@changes_db
@json_option
def prune(
    db: PerfDb,
    older_than: float | None,
    solver: str,
    device: str,
    environment: str,
    reference: bool,
    source: str,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Take records out of the DB: those that all given options fit. A backup of the file is made first and kept.

    What would go is shown first; then it asks, unless --yes says so already.
    """
    if not (older_than is not None or solver or device or environment or reference):
        raise click.UsageError("say what may go: --older-than, --solver, --device, --environment or --reference")
    if source and not reference:
        raise click.UsageError("--source is a file of MIOpen's: add --reference")
    if reference and environment:
        raise click.UsageError("records of MIOpen's have no environment: leave out --environment")
    before = None if older_than is None else time.time() - older_than * DAY_S
    unwanted = Unwanted(before, solver, device, environment, reference, source)
    would = prune_records(db, unwanted, dry_run=True)
    if not as_json:
        click.echo("would remove " + _counts(would.rows))
    goes = would.total > 0 and not dry_run and (yes or _confirmed())
    copy = backup(db) if goes else None
    done = prune_records(db, unwanted, dry_run=False) if goes else None
    if as_json:
        rows = would.rows if done is None else done.rows
        print_json({"removed": done is not None, "rows": rows, "backup": None if copy is None else printable(copy)})
    elif done is not None and copy is not None:
        click.echo(f"removed {_counts(done.rows)}; the file as it was is {printable(copy)}")


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError("nothing was removed: there is nobody to ask, --yes removes without asking")
    return click.confirm("remove them?", err=True)


def _counts(rows: dict[str, int]) -> str:
    return ", ".join(f"{count} {table.replace('_', ' ')}" for table, count in rows.items())


@click.command("backup")
@click.argument("file", metavar="[FILE]", required=False, type=click.Path())
@reads_db
@json_option
def backup_(db: PerfDb, file: str | None, as_json: bool) -> None:
    """Copy the DB to FILE, by default beside it with the time in its name, also while others write to it."""
    copy = backup(db, file)
    size = copy.stat().st_size
    if as_json:
        print_json({"backup": printable(copy), "size_bytes": size})
    else:
        click.echo(f"{printable(copy)}, {text.size(size)}")


@click.command("compact")
@changes_db
@json_option
def compact_(db: PerfDb, as_json: bool) -> None:
    """Give the room of removed records back to the file system. Takes as much free room as the file for a while."""
    before, after = compact(db)
    if as_json:
        print_json({"path": printable(db.path), "bytes_before": before, "bytes_after": after})
    else:
        click.echo(f"{printable(db.path)}: {text.size(before)} before, {text.size(after)} now")
