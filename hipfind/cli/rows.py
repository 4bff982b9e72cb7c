"""Rows for people and for programs: a table, ``--json`` or ``--csv``, by one pair of options."""

from __future__ import annotations

import csv
import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from hipfind.cli.output import print_json
from hipfind.cli.table import Column, print_table

AnyFunction = Callable[..., Any]


def row_options(function: AnyFunction) -> AnyFunction:
    """``--json`` and ``--csv``; the function gets ``form``: "table", "json" or "csv"."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
    @click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of text.")
    @functools.wraps(function)
    def call(as_json: bool, as_csv: bool, **arguments: Any) -> Any:
        if as_json and as_csv:
            raise click.UsageError("--json and --csv exclude each other")
        return function(form="json" if as_json else "csv" if as_csv else "table", **arguments)

    return call


def print_rows(
    form: str, data: Sequence[Mapping[str, Any]], columns: Sequence[Column], cells: Sequence[Sequence[str]]
) -> None:
    """Print ``data`` for programs, or ``cells`` under ``columns`` for people. No rows are said on stderr."""
    if form == "json":
        print_json([dict(one) for one in data])
    elif form == "csv":
        print_csv(data)
    elif cells:
        print_table(columns, cells)
    if not data and form != "json":
        click.echo("no records match", err=True)


def print_csv(data: Sequence[Mapping[str, Any]]) -> None:
    """Print dictionaries of the same keys as CSV with a heading; what is not a plain value is JSON in its cell."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for number, one in enumerate(data):
        if number == 0:
            writer.writerow(one)
        writer.writerow(json.dumps(cell) if isinstance(cell, (dict, list, tuple)) else cell for cell in one.values())
