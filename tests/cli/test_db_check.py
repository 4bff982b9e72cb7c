"""``hipfind db check``: the state by name, an exit code for scripts, and which records count here."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest

from hipfind.perfdb.store import PerfDb
from tests.cli.conftest import SMALL, Cli


def _sql(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


def test_a_missing_and_a_sound_file(cli: Cli, db_path: Path) -> None:
    done = cli("db", "check")
    assert done.exit_code == 0 and "missing" in done.stdout and str(db_path) in done.stdout
    assert not db_path.exists()
    PerfDb.open(db_path).close()
    done = cli("db", "check")
    assert done.exit_code == 0
    assert done.stdout.split()[:2] == ["state", "ok"]


def test_a_damaged_file_fails_and_what_lies_beside_is_listed(cli: Cli, db_path: Path) -> None:
    db_path.write_bytes(b"junk" * 300)
    aside = db_path.with_name(f"{db_path.name}.corrupt-20260101T000000")
    aside.touch()
    done = cli("db", "check")
    assert done.exit_code == 1
    assert "corrupt" in done.stdout and "remedy" in done.stdout and str(aside) in done.stdout
    assert db_path.read_bytes() == b"junk" * 300


@pytest.mark.parametrize(
    ("reason", "statement"),
    [
        ("unknown_solver", "UPDATE find_records SET solver_id = 'NoSuch' || solver_id"),
        ("other_solver_version", "UPDATE find_records SET solver_version = 999"),
        ("invalid_config", "UPDATE find_records SET config = 'xyz=?'"),
        ("other_device", "UPDATE targets SET key = 'host:nowhere:1'"),
        ("other_environment", "UPDATE environments SET fingerprint = 'x'"),
    ],
)
def test_records_that_do_not_count_are_told_by_reason(cli: Cli, db_path: Path, reason: str, statement: str) -> None:
    assert cli("find", *SMALL, device="host").exit_code == 0
    before = json.loads(cli("db", "check", "--json").stdout)["records"]
    assert list(before) == ["usable"] and before["usable"] > 0
    _sql(db_path, statement)
    done = cli("db", "check", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["records"] == {"usable": 0, reason: before["usable"]}


def test_system_files_are_checked_too(cli: Cli, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.db", tmp_path / "bad.db"
    PerfDb.open(good).close()
    good.chmod(0o444)
    assert cli("db", "check", system_db_path=str(good)).exit_code == 0
    for state in ("not_there", "corrupt"):
        done = cli("db", "check", "--json", system_db_path=f"{good}{os.pathsep}{bad}")
        assert done.exit_code == 1
        assert [one["state"] for one in json.loads(done.stdout)["system"]] == ["ok", state]
        bad.write_bytes(b"junk" * 300)
