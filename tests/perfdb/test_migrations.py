"""Schema versions: new, current, earlier, newer and foreign files."""

from __future__ import annotations

import os
import pathlib
import sqlite3
import threading

import pytest

from hipfind.perfdb import migrations, schema
from hipfind.perfdb.faults import DbFault, Fault
from hipfind.perfdb.migrations import MIGRATIONS, Migration, migrate, pending, schema_version
from hipfind.perfdb.store import PerfDb
from tests.helpers.perfdb import ENVIRONMENT, OLD, TARGET, FakeProblem, build_version, find_record, perf_record


def _pragmas(path: pathlib.Path) -> tuple[int, int]:
    connection = sqlite3.connect(path)
    values = tuple(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    connection.close()
    return values[0], values[1]


def test_a_new_file_gets_every_migration_with_its_record(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "new.db"
    with PerfDb.open(path) as db:
        assert db.read("SELECT id, name FROM migrations ORDER BY id") == [
            (number, one.name) for number, one in enumerate(MIGRATIONS, start=1)
        ]
    assert _pragmas(path) == (schema.APPLICATION_ID, len(MIGRATIONS))


def test_names_are_unique() -> None:
    names = [one.name for one in MIGRATIONS]
    assert len(set(names)) == len(names)


def test_pending_reads_only(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    connection = sqlite3.connect(path)
    assert pending(connection, str(path)) == MIGRATIONS
    connection.close()
    assert path.stat().st_size == 0


def test_a_current_file_is_not_written_when_opened(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "current.db"
    with PerfDb.open(path) as db:
        db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record()])
    before = path.read_bytes()
    with PerfDb.open(path) as db:
        assert len(db.find_records("problem", TARGET.key)) == 1
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", range(len(MIGRATIONS)))
def test_every_earlier_version_is_migrated(tmp_path: pathlib.Path, version: int) -> None:
    path = tmp_path / "old.db"
    build_version(path, version)
    with PerfDb.open(path) as db:
        db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record()])
        assert len(db.find_records("problem", TARGET.key)) == 1
    assert _pragmas(path)[1] == len(MIGRATIONS)


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))
def test_a_kept_file_of_every_schema_is_opened_with_its_records(tmp_path: pathlib.Path, version: int) -> None:
    """``schemas/<n>.sql`` is a file as the release with that schema left it; a new schema needs a new one."""
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript((pathlib.Path(__file__).parent / "schemas" / f"{version}.sql").read_text())
    connection.close()
    with PerfDb.open(path) as db:
        assert [one.record for one in db.find_records("old", TARGET.key)] == [OLD]
        assert [one.record for one in db.perf_records("old", TARGET.key)] == [perf_record()]
        assert db.environments() == {ENVIRONMENT.fingerprint: ENVIRONMENT}
        assert [name for (name,) in db.read("SELECT name FROM migrations ORDER BY id")] == [m.name for m in MIGRATIONS]
        with PerfDb.open(tmp_path / "new.db") as new:
            schema_of = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
            assert db.read(schema_of) == new.read(schema_of)


def _copies(directory: pathlib.Path) -> list[pathlib.Path]:
    return sorted(one for one in directory.iterdir() if ".schema" in one.name)


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_file_is_copied_before_it_is_migrated(tmp_path: pathlib.Path, version: int, journal: str) -> None:
    path, link = tmp_path / "old.db", tmp_path / "elsewhere" / "link.db"
    build_version(path, version)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.execute("INSERT INTO environments VALUES (7, 'f', '{}', 1.0)")
    connection.commit()
    before = list(connection.iterdump())
    connection.close()
    link.parent.mkdir()
    link.symlink_to(path)
    start = threading.Barrier(4)

    def open_it() -> None:
        start.wait()
        PerfDb.open(link).close()

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (copy,) = _copies(tmp_path)
    assert copy.name.startswith(f"old.db.schema{version}-2")
    connection = sqlite3.connect(copy)
    assert list(connection.iterdump()) == before
    connection.close()
    assert _pragmas(path)[1] == len(MIGRATIONS)
    with PerfDb.open(path) as db:
        assert db.read("SELECT id FROM environments") == [(7,)]


def test_a_new_file_and_a_current_one_are_not_copied(tmp_path: pathlib.Path) -> None:
    PerfDb.open(tmp_path / "new.db").close()
    PerfDb.open(tmp_path / "new.db").close()
    assert _copies(tmp_path) == []


def test_without_room_for_the_copy_a_file_stays_as_it_is(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.db"
    build_version(path, 1)
    before = path.read_bytes()

    def refuse(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(DbFault, match="keeping a copy before its migration: No space left") as caught:
            PerfDb.open(path)
    assert caught.value.fault is Fault.FULL
    assert _copies(tmp_path) == []
    assert _pragmas(path)[1] == 1
    assert path.read_bytes()[100:] == before[100:]
    PerfDb.open(path).close()
    assert len(_copies(tmp_path)) == 1


def test_an_earlier_version_that_cannot_be_written_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "old.db"
    path.touch()
    with pytest.raises(DbFault, match=MIGRATIONS[0].name) as caught:
        PerfDb.open(path, read_only=True)
    assert caught.value.fault is Fault.OLDER
    assert path.stat().st_size == 0


def _with_pragma(path: pathlib.Path, statement: str) -> bytes:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    return path.read_bytes()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_schema_is_refused_and_left_alone(tmp_path: pathlib.Path, read_only: bool) -> None:
    path = tmp_path / "newer.db"
    PerfDb.open(path).close()
    before = _with_pragma(path, f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(DbFault, match=r"newer hipfind.*upgrade hipfind") as caught:
        PerfDb.open(path, read_only=read_only)
    assert caught.value.fault is Fault.NEWER
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE songs (title)", "PRAGMA application_id = 1196444487", "PRAGMA user_version = 1"]
)
@pytest.mark.parametrize("read_only", [False, True])
def test_another_programs_database_is_refused_and_left_alone(
    tmp_path: pathlib.Path, statement: str, read_only: bool
) -> None:
    path = tmp_path / "songs.db"
    before = _with_pragma(path, statement)
    with pytest.raises(DbFault) as caught:
        PerfDb.open(path, read_only=read_only)
    assert caught.value.fault is Fault.FOREIGN
    assert path.read_bytes() == before


def test_a_migration_that_fails_leaves_nothing_of_itself(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "half.db"
    build_version(path, len(MIGRATIONS))
    broken = Migration("broken", ("CREATE TABLE half (a)", "CREATE TABLE half (a)"))
    monkeypatch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, broken))
    connection = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(sqlite3.OperationalError, match="half already exists"):
        migrate(connection, str(path))
    assert not connection.in_transaction
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'half'").fetchone() == (0,)
    assert connection.execute("SELECT count(*) FROM migrations").fetchone() == (len(MIGRATIONS),)
    assert pending(connection, str(path)) == (broken,)
    connection.close()


def test_a_new_file_opened_by_many_at_once_is_migrated_once(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "new.db"
    start = threading.Barrier(6)
    seen: list[list[tuple[str]]] = []

    def open_it() -> None:
        start.wait()
        with PerfDb.open(path) as db:
            seen.append(db.read("SELECT name FROM migrations"))

    threads = [threading.Thread(target=open_it) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [[(one.name,) for one in MIGRATIONS]] * 6


def test_a_file_that_is_made_while_one_looks_is_not_taken_for_a_foreign_one(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "new.db")
    looking, making = (sqlite3.connect(path, isolation_level=None) for _ in range(2))
    making.execute("PRAGMA journal_mode = WAL")
    made: list[str] = []

    def make(statement: str) -> None:
        if "sqlite_master" in statement and not made:
            made.extend(migrate(making, path))

    looking.set_trace_callback(make)
    assert schema_version(looking, path) in (0, len(MIGRATIONS))
    assert made == [one.name for one in MIGRATIONS]
    assert schema_version(looking, path) == len(MIGRATIONS)
    looking.close()
    making.close()
