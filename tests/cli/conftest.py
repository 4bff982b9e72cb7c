"""The command line in this process: a runner with a perf DB of its own, and a count of that DB's rows."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hipfind import settings
from hipfind.cli.main import main

Cli = Callable[..., Result]

SMALL = ("-n", "2", "-c", "3", "-H", "6", "-W", "6", "-k", "4", "-y", "3", "-x", "3")
"""A problem that every solver family has an answer for, in microseconds."""
TABLES = ("problems", "targets", "environments", "find_records", "perf_records")


@pytest.fixture
def db_path(tmp_path: Path) -> Path:
    return tmp_path / "perf.db"


@pytest.fixture
def cli(db_path: Path) -> Cli:
    """``cli("find", "-n", "2", ...)``: runs a command; an error without a name fails the test with its traceback."""

    def run(*arguments: str, **overrides: object) -> Result:
        with settings.override(**{"user_db_path": str(db_path), **overrides}):
            return CliRunner().invoke(main, arguments, catch_exceptions=False, prog_name="hipfind")

    return run


def rows_in(path: Path) -> int:
    """Rows in all tables of a perf DB; 0 where there is no file."""
    if not path.exists():
        return 0
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return sum(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES)
