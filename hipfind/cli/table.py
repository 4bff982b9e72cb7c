"""Tables: aligned plain text where the output is piped, a rich table fitted to its width on a terminal."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import textwrap
from collections.abc import Sequence

import click

_GAP = 2
_WRAP_LEAST = 32
"""Fewest characters that a wrapping column gets before other columns are left out."""


@dataclasses.dataclass(frozen=True)
class Column:
    """A column. ``leave_out``: order in which columns go when a terminal is too narrow (1 first), 0 never.

    A column that ``wraps`` takes the width that the others leave; one at most.
    """

    name: str
    right: bool = False
    wraps: bool = False
    leave_out: int = 0


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, best_first: bool = False) -> None:
    """Print rows of cells. ``best_first`` makes the first row stand out on a terminal."""
    if sys.stdout.isatty():
        _print_rich(columns, rows, best_first)
    else:
        _print_plain(columns, rows)


def print_note(text: str) -> None:
    """A sentence below a table: one line where piped, wrapped between words on a terminal."""
    if sys.stdout.isatty():
        text = textwrap.fill(
            text, shutil.get_terminal_size().columns - 1, subsequent_indent="  ", break_on_hyphens=False
        )
    click.echo(text)


def _print_plain(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    widths = _widths(columns, rows)
    for row in ([column.name for column in columns], *rows):
        cells = [
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, column, width in zip(row, columns, widths, strict=True)
        ]
        click.echo((" " * _GAP).join(cells).rstrip())


def _print_rich(columns: Sequence[Column], rows: Sequence[Sequence[str]], best_first: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)
    kept, left_out = _fit(columns, rows, console.width)
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for index in kept:
        column = columns[index]
        table.add_column(
            column.name, justify="right" if column.right else "left", no_wrap=not column.wraps, overflow="fold"
        )
    for number, row in enumerate(rows):
        style = "bold green" if best_first and number == 0 else ""
        table.add_row(*(Text(row[index]) for index in kept), style=style)
    console.print(table)
    if left_out:
        names = ", ".join(columns[index].name for index in left_out)
        print_note(f"(not shown in {console.width} columns: {names}; a wider terminal, a pipe or --json has all)")


def _fit(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> tuple[list[int], list[int]]:
    """Indices of the columns that fit into ``width``, and of those left out."""
    widths = _widths(columns, rows)
    needs = [
        min(natural, _WRAP_LEAST) if column.wraps else natural for column, natural in zip(columns, widths, strict=True)
    ]
    kept = list(range(len(columns)))
    optional = sorted((index for index in kept if columns[index].leave_out), key=lambda i: columns[i].leave_out)
    left_out: list[int] = []
    while optional and sum(needs[index] + _GAP for index in kept) - _GAP > width:
        index = optional.pop(0)
        kept.remove(index)
        left_out.append(index)
    return kept, sorted(left_out)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(column.name), *(len(row[i]) for row in rows)) if rows else len(column.name)
            for i, column in enumerate(columns)]  # fmt: skip
