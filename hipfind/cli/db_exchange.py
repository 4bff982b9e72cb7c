"""``hipfind db import``, ``export`` and ``merge``: records from other files and for other programs."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import click

from hipfind.cli import text
from hipfind.cli.db_open import of_device_option, open_to_read, reads_db, writes_db
from hipfind.cli.options import json_option
from hipfind.cli.output import print_json
from hipfind.cli.progress import file_progress
from hipfind.cli.table import Column, print_note, print_table
from hipfind.errors import PerfDbError, UnknownSolverError
from hipfind.perfdb.exporting import export_csv, export_find_db, export_lines, export_references, export_superseded
from hipfind.perfdb.importing import ImportReport, import_file
from hipfind.perfdb.merge import Conflict, MergeReport, merge, newest_first
from hipfind.perfdb.store import PerfDb
from hipfind.solvers.registry import default_registry

_CONFLICTS = (
    Column("Problem", wraps=True),
    Column("Device", leave_out=1),
    Column("Solver"),
    Column("Had ms", right=True),
    Column("Got ms", right=True),
    Column("Kept"),
)
_SHOWN = 20


@click.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option("--device", default="", metavar="NAME", help="Device of MIOpen's records.  [default: by the file's name]")
@writes_db
@json_option
def import_(db: PerfDb, files: tuple[str, ...], device: str, as_json: bool) -> None:
    """Import MIOpen's find-db text or its sqlite perf-db, or hipfind's own JSON lines; packed files as they are.

    MIOpen's records are kept apart, as a reference of their device: explain and immediate mode show and heed them,
    nothing takes them for our own timings. A file that is damaged anywhere stores nothing.
    """
    reports = []
    for file in files:
        with file_progress(os.path.basename(file)) as show:
            reports.append(import_file(db, file, device, show))
        if not as_json:
            _print_import(reports[-1])
    if as_json:
        print_json([dataclasses.asdict(one) for one in reports])


def _print_import(report: ImportReport) -> None:
    kind = {"find-db": "MIOpen's find-db text", "perf-db": "MIOpen's perf-db", "hipfind": "hipfind's own lines"}
    where = f" of {report.device}" if report.device else ""
    click.echo(f"{report.path}: {report.records} records of {kind[report.kind]}{where}")
    _print_merge(report.merged)
    for reason, count in sorted(report.without_problem.items()):
        print_note(f"  {count} kept under MIOpen's key only: {reason}")


def _print_merge(report: MergeReport) -> None:
    added, same = sum(report.added.values()), sum(report.same.values())
    older = len(report.conflicts) - report.replaced
    print_note(
        f"  {added} new, {same} the same, {report.replaced} newer than ours and put in their place, "
        f"{older} older than ours and set aside"
    )


@click.command("export")
@click.argument("file", metavar="[FILE]", required=False, type=click.Path())
@click.option("--format", "form", type=click.Choice(("jsonl", "csv", "find-db")), default="jsonl", show_default=True,
              help="Lines of JSON (all there is, can be imported again), CSV, or MIOpen's find-db text.")  # fmt: skip
@click.option("--records", type=click.Choice(("own", "reference", "superseded")), default="own", show_default=True,
              help="Our own records, those imported from MIOpen, or those that a merge replaced.")  # fmt: skip
@of_device_option
@reads_db
def export(db: PerfDb, file: str | None, form: str, records: str, device: str) -> None:
    """Write records to FILE, or to stdout: the same records give the same bytes.

    JSON lines have find and perf records, CSV and find-db text the find records. Find-db text is of one device;
    MIOpen's own lines come out as they went in. What merges replaced may be several versions of one record.
    """
    if records == "superseded" and (form != "jsonl" or device):
        raise click.UsageError("superseded records go out as lines of JSON, of all devices")
    with _output(file) as out:
        if records == "superseded":
            count = export_superseded(db, out)
        elif form == "find-db" and records == "reference":
            count = export_references(db, out, device)
        elif form == "find-db":
            count = export_find_db(db, out, _algorithm_of, device)
        elif form == "csv":
            count = export_csv(db, out, "find" if records == "own" else "reference", device)
        else:
            count = export_lines(db, out, ("find", "perf") if records == "own" else ("reference",), device)
    if file is not None:
        click.echo(f"{count} records in {file}", err=True)


def _algorithm_of(solver_id: str) -> str:
    try:
        return default_registry().get(solver_id).algorithm
    except UnknownSolverError:
        return ""


@contextlib.contextmanager
def _output(file: str | None) -> Iterator[TextIO]:
    """Stdout, or a new file that appears under its name when all is written."""
    if file is None:
        yield sys.stdout
        return
    target = Path(file)
    if target.exists():
        raise PerfDbError("an export never overwrites a file", got=file, remedy="give another name, or remove it first")
    try:
        handle, part = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise PerfDbError("the file cannot be written", got=f"{file}: {error.strerror}") from error
    try:
        with open(handle, "w", encoding="utf-8", newline="") as out:
            yield out
        os.rename(part, target)
    except OSError as error:
        raise PerfDbError("the file cannot be written", got=f"{file}: {error.strerror}") from error
    finally:
        Path(part).unlink(missing_ok=True)


@click.command("merge")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@writes_db
@json_option
def merge_(db: PerfDb, files: tuple[str, ...], as_json: bool) -> None:
    """Merge perf DB files into one (--db), which is made where it is not there. The files stay as they are.

    The file with the newest environment comes first. Where two have the same record with other contents the one that
    was made last is kept, the conflict is shown, and the other one goes to the table "superseded": nothing is lost.
    """
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(open_to_read(file)) for file in files]
        reports = [merge(db, one) for one in newest_first(opened)]
    if as_json:
        print_json([dataclasses.asdict(one) for one in reports])
        return
    for report in reports:
        click.echo(f"{report.origin}: {sum(report.seen.values())} records")
        _print_merge(report)
        if report.conflicts:
            print_table(_CONFLICTS, [_conflict_cells(one) for one in report.conflicts[:_SHOWN]])
        if len(report.conflicts) > _SHOWN:
            print_note(f"({len(report.conflicts) - _SHOWN} more conflicts; --json has all)")


def _conflict_cells(one: Conflict) -> list[str]:
    kept = "the other" if one.kept_new else "ours"
    return [one.problem, one.device, one.solver_id or "-", text.ms(one.had_ms), text.ms(one.got_ms), kept]
