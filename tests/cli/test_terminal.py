"""What only a terminal sees: colours, a progress bar on stderr, tables fitted to the width."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL
from tests.helpers.process import clean_environment, run_python

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
FIND = ("find", *SMALL, "-F", "1", "--find-mode", "NORMAL")


def on_terminals(home: Path, arguments: tuple[str, ...], columns: int, *, only: str = "") -> dict[str, str]:
    """What a command writes to stdout and stderr when each is a terminal (``only`` one of them; the other a pipe)."""
    environment = clean_environment(home, COLUMNS=str(columns), TERM="xterm-256color")
    ends = {name: pty.openpty() if only in ("", name) else os.pipe() for name in ("stdout", "stderr")}
    writers = {name: (pair[1]) for name, pair in ends.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", "hipfind", *arguments], env=environment, stdin=subprocess.DEVNULL, **writers
    )
    for writer in writers.values():
        os.close(writer)
    readers = {pair[0]: name for name, pair in ends.items()}
    shown = dict.fromkeys(ends, b"")
    while readers:
        for reader in select.select(list(readers), [], [], 60)[0]:
            try:
                data = os.read(reader, 65536)
            except OSError:  # Linux: the terminal's last writer is gone
                data = b""
            shown[readers[reader]] += data
            if not data:
                os.close(reader)
                del readers[reader]
    assert process.wait(60) == 0, shown
    return {name: text.decode().replace("\r\n", "\n") for name, text in shown.items()}


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_gets_colour_progress_and_a_fitting_table(tmp_path: Path, columns: int) -> None:
    shown = on_terminals(tmp_path, FIND, columns)
    assert ANSI.search(shown["stdout"])
    table = ANSI.sub("", shown["stdout"]).partition("\n\n")[2]
    assert all(len(line.rstrip()) <= columns for line in table.splitlines())
    assert "Outcome" in table
    progress = ANSI.sub("", shown["stderr"])
    assert "timing" in progress
    assert "verifying" in progress


def test_progress_only_where_stderr_is_a_terminal(tmp_path: Path) -> None:
    shown = on_terminals(tmp_path, FIND, 80, only="stdout")
    assert shown["stderr"] == ""
    shown = on_terminals(tmp_path, (*FIND, "--json"), 80, only="stderr")
    assert "timing" in shown["stderr"]
    assert "\x1b" not in shown["stdout"]


def test_conv_shows_progress_too(tmp_path: Path) -> None:
    shown = on_terminals(tmp_path, ("conv", *SMALL, "-F", "1", "-s", "1"), 80)
    assert "timing" in ANSI.sub("", shown["stderr"])


@pytest.mark.parametrize(
    "arguments",
    [FIND, ("immediate", *SMALL), ("explain", *SMALL), ("conv", *SMALL, "-t", "1"), ("solvers",), ("devices",)],
    ids=lambda arguments: arguments[0],
)
def test_pipes_get_plain_text_even_where_colour_is_common(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run_python(["-m", "hipfind", *arguments], tmp_path, TERM="xterm-256color", COLUMNS="40")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert done.stdout.strip()
