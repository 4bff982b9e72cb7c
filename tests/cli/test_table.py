"""Tables: plain where piped, fitted to the width on a terminal."""

from __future__ import annotations

import io
import re

import pytest

from hipfind.cli.table import Column, print_table

COLUMNS = (
    Column("Solver"),
    Column("Outcome", wraps=True),
    Column("Time ms", right=True),
    Column("Samples", right=True, leave_out=1),
    Column("Source", leave_out=2),
)
ROWS = [
    ["GemmBwdRest", "won", "12.35 ±0.79", "15", "measured now"],
    ["ConvDirectNaiveConvBwd", "skipped as too slow: 12.1 times the best candidate's time", "150.0 ±0.1", "2", "-"],
    ["[red]markup[/red]", "not applicable: [bold]", "-", "-", "-"],
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> str:
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    print_table(COLUMNS, ROWS, best_first=True)
    return screen.getvalue()


def without_ansi(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_piped_tables_are_aligned_plain_lines_with_every_cell(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, ROWS)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(ROWS)
    assert "\x1b" not in "".join(lines)
    for line, row in zip(lines[1:], ROWS, strict=True):
        assert [part for part in re.split(r"\s{2,}", line) if part] == row
    start = lines[0].index("Outcome")
    assert [line[start - 2 : start] for line in lines] == ["  "] * len(lines)


def test_an_empty_table_has_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, [])
    assert capsys.readouterr().out.split() == ["Solver", "Outcome", "Time", "ms", "Samples", "Source"]


@pytest.mark.parametrize("width", [70, 80, 100, 120, 200])
def test_terminal_tables_fit_and_say_what_they_leave_out(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    shown = without_ansi(on_terminal(monkeypatch, width))
    lines = shown.splitlines()
    assert all(len(line.rstrip()) <= width for line in lines)
    table, _, footer = " ".join(shown.split()).partition("(not shown in")
    left_out = [name for name in ("Samples", "Source") if name not in lines[0]]
    assert all(name in footer and name not in table for name in left_out)
    assert bool(footer) == bool(left_out)
    assert "ConvDirectNaiveConvBwd" in shown
    assert "12.35 ±0.79" in shown


def test_columns_are_left_out_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    headings = {width: without_ansi(on_terminal(monkeypatch, width)).splitlines()[0] for width in (200, 88, 80)}
    assert all(name in headings[200] for name in ("Samples", "Source"))
    assert "Samples" not in headings[88]
    assert "Source" in headings[88]
    assert "Source" not in headings[80]


def test_cells_are_never_markup_and_the_best_row_stands_out(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_terminal(monkeypatch, 160)
    assert "[red]markup[/red]" in shown
    best, second = (next(line for line in shown.splitlines() if name in line) for name in ("GemmBwdRest", "Naive"))
    assert "\x1b[" in best
    assert "\x1b[" not in second
