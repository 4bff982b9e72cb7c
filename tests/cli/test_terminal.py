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

from hipfind.perfdb.store import PerfDb
from hipfind.problem.conv import ConvProblem
from tests.cli.conftest import SMALL
from tests.helpers.perfdb import ENVIRONMENT, NEWER_ENVIRONMENT, TARGET, find_record
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


def test_tune_shows_the_place_in_the_list(tmp_path: Path) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text(f"conv {' '.join(SMALL)} -F 0\n")
    shown = on_terminals(tmp_path, ("tune", "--device", "host", str(listed)), 120)
    progress = ANSI.sub("", shown["stderr"])
    assert "[1/3] tuning GemmFwdRest rank=0" in progress
    assert re.search(r"\[3/3, \d+ s left\] timing", progress)
    assert shown["stdout"].splitlines()[-1].startswith("3 problems on host: 3 tuned")


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


@pytest.fixture(scope="module")
def db_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two perf DBs, A and B, of the problem KEY, and a file of MIOpen's, TEXT, which A has imported."""
    folder = tmp_path_factory.mktemp("db")
    problem = ConvProblem.create("bwd", (9500, 64, 28, 28), (1280, 32, 14, 14), stride=14, groups=2, dtype="bf16")
    paths = folder / "a.db", folder / "b.db"
    for path, time_ms in zip(paths, (1.25, 250.0), strict=True):
        with PerfDb.open(path) as db:
            for name, records in (
                ("GemmBwdRest", [find_record("ConvDirectNaiveConvBwd", 999.0, outcome="lost")]),
                ("B", []),
            ):
                environment = ENVIRONMENT if records else NEWER_ENVIRONMENT
                db.store_find(problem, TARGET, environment, [find_record(name, time_ms), *records])
    text = folder / "gfx942130.HIP.fdb.txt"
    text.write_text(f"{problem.miopen_key()}=ConvAsmImplicitGemmGTCDynamicBwdXdlopsNHWC:0.5,0,miopenAlgo\n")
    shown = on_terminals(folder, ("db", "import", str(text), "--db", str(paths[0])), 80)
    assert "reading gfx942130" in ANSI.sub("", shown["stderr"])
    return {"A": paths[0], "B": paths[1], "TEXT": text, "KEY": Path(problem.key())}


@pytest.mark.parametrize(
    "command",
    ["list", "stats", "query", "query --reference", "diff A B", "merge B", "import TEXT", "show KEY"],
)
def test_tables_of_the_perf_db_fit_the_terminal(tmp_path: Path, db_files: dict[str, Path], command: str) -> None:
    path = tmp_path / "mine.db"
    path.write_bytes(db_files["A"].read_bytes())
    where = () if command.startswith("diff") else ("--db", str(path))
    words = [str(db_files.get(word, word)) for word in command.split()]
    shown = on_terminals(tmp_path, ("db", *words, *where), 80)
    lines = [line.rstrip() for line in ANSI.sub("", shown["stdout"]).splitlines()]
    assert len(lines) > 1
    names = ("problem ", "MIOpen", str(db_files["TEXT"]), str(db_files["B"]))  # keys and paths are not cut
    assert [line for line in lines if len(line) > 80 and not line.startswith(names)] == []
