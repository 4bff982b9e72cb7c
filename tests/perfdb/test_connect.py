"""Opening and holding a file: kinds of fault, waiting, journals, files that move, read-only media."""

from __future__ import annotations

import os
import pathlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from hipfind.perfdb.faults import REMEDIES, DbFault, Fault, fault_of
from hipfind.perfdb.store import PerfDb
from tests.helpers.perfdb import ENVIRONMENT, TARGET, FakeProblem, Faults, as_plain_user, find_record


def _store(path: pathlib.Path, key: str = "problem") -> None:
    with PerfDb.open(path) as db:
        db.store_find(FakeProblem(key), TARGET, ENVIRONMENT, [find_record()])


def _keys(path: pathlib.Path, **options: Any) -> list[str]:
    with PerfDb.open(path, **options) as db:
        return [key for (key,) in db.read("SELECT key FROM problems ORDER BY key")]


@pytest.fixture
def open_dir() -> Iterator[pathlib.Path]:
    """A directory that every user may enter (pytest's own are for their owner only)."""
    directory = pathlib.Path(tempfile.mkdtemp())
    directory.chmod(0o777)
    yield directory
    for one in (directory, *directory.rglob("*")):
        if one.is_dir():
            one.chmod(0o700)
    shutil.rmtree(directory)


_MESSAGES = [
    ("database is locked", Fault.LOCKED),
    ("database table is locked: x", Fault.LOCKED),
    ("locking protocol", Fault.LOCKED),
    ("attempt to write a readonly database", Fault.READ_ONLY),
    ("disk I/O error", Fault.IO_ERROR),
    ("database disk image is malformed", Fault.CORRUPT),
    ("malformed database schema (x) - near", Fault.CORRUPT),
    ("file is not a database", Fault.CORRUPT),
    ("database or disk is full", Fault.FULL),
    ("unable to open database file", Fault.CANNOT_OPEN),
    ("access permission denied", Fault.DENIED),
    ("no such table: x", Fault.OTHER),
]


@pytest.mark.parametrize(("message", "fault"), _MESSAGES)
def test_sqlite_errors_are_known_by_their_text(message: str, fault: Fault) -> None:
    assert fault_of(sqlite3.OperationalError(message)) is fault


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (5 | 2 << 8, Fault.LOCKED),
        (8 | 4 << 8, Fault.READ_ONLY),
        (10 | 13 << 8, Fault.IO_ERROR),
        (10 | 19 << 8, Fault.FULL),
        (1, Fault.OTHER),
    ],
)
def test_sqlite_errors_are_known_by_their_code_first(code: int, fault: Fault) -> None:
    error = sqlite3.OperationalError("file is not a database")
    error.sqlite_errorcode = code
    assert fault_of(error) is fault


def test_every_fault_has_a_remedy() -> None:
    assert set(REMEDIES) == set(Fault)


@pytest.mark.parametrize("what", ["directory", "fifo"])
def test_what_is_no_file_is_refused(tmp_path: pathlib.Path, what: str) -> None:
    place = tmp_path / "hipfind.db"
    if what == "directory":
        place.mkdir()
    else:
        os.mkfifo(place)
    with pytest.raises(DbFault) as caught:
        PerfDb.open(tmp_path)
    assert caught.value.fault is Fault.BAD_PATH


def test_a_path_below_a_file_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DbFault) as caught:
        PerfDb.open(tmp_path / "file" / "x.db")
    assert caught.value.fault is Fault.BAD_PATH


def test_reading_makes_no_file(tmp_path: pathlib.Path) -> None:
    with pytest.raises(DbFault) as caught:
        PerfDb.open(tmp_path / "sub" / "x.db", read_only=True)
    assert caught.value.fault is Fault.MISSING
    assert os.listdir(tmp_path) == []


def test_reading_leaves_no_files_behind(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.db"
    _store(path)
    before = path.read_bytes()
    assert _keys(path, read_only=True) == ["problem"]
    assert os.listdir(tmp_path) == ["x.db"]
    assert path.read_bytes() == before


def test_a_read_only_db_takes_nothing(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.db"
    _store(path)
    with PerfDb.open(path, read_only=True) as db:
        with pytest.raises(DbFault) as caught:
            db.store_find(FakeProblem("new"), TARGET, ENVIRONMENT, [find_record()])
        assert caught.value.fault is Fault.READ_ONLY
    assert _keys(path) == ["problem"]


_JUNK = {
    "junk header": b"this is no database at all, " * 40,
    "short": b"SQL",
    "header only": b"SQLite format 3\0" + bytes(84),
}


@pytest.mark.parametrize("name", _JUNK)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_damaged_file_is_named_and_left_alone(tmp_path: pathlib.Path, name: str, read_only: bool) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(_JUNK[name])
    with pytest.raises(DbFault) as caught:
        PerfDb.open(path, read_only=read_only)
    assert caught.value.fault is Fault.CORRUPT
    assert path.read_bytes() == _JUNK[name]


def test_an_empty_file_is_a_new_db(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.db"
    path.touch()
    _store(path)
    assert _keys(path) == ["problem"]


# waiting --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_lock_held_for_ever_is_waited_for_only_so_long(tmp_path: pathlib.Path, journal: str) -> None:
    path = tmp_path / "x.db"
    _store(path)
    holder = sqlite3.connect(path, isolation_level=None)
    assert holder.execute(f"PRAGMA journal_mode = {journal}").fetchone() == (journal,)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(DbFault, match="database is locked") as caught, PerfDb.open(path, wait_s=0.1) as db:
        db.store_find(FakeProblem("new"), TARGET, ENVIRONMENT, [find_record()])
    assert caught.value.fault is Fault.LOCKED
    holder.execute("ROLLBACK")
    holder.close()
    assert _keys(path) == ["problem"]


def test_readers_do_not_wait_for_a_writer(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.db"
    _store(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert _keys(path, wait_s=0.0) == ["problem"]
    assert _keys(path, wait_s=0.0, read_only=True) == ["problem"]
    holder.close()


def test_a_look_up_takes_no_write_lock(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.db"
    _store(path)
    statements: list[str] = []
    with PerfDb.open(path) as db:
        db._link.connection().set_trace_callback(statements.append)
        assert len(db.find_records("problem", TARGET.key)) == 1
    assert statements[0] == "PRAGMA data_version"
    assert [one.split()[0] for one in statements[1:]] == ["SELECT"]


@pytest.mark.parametrize("statement", ["connect", "PRAGMA user_version", "SELECT p.key", "BEGIN IMMEDIATE", "COMMIT"])
@pytest.mark.parametrize("message", ["locking protocol", "database is locked"])
def test_a_lock_that_passes_is_not_noticed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, statement: str, message: str
) -> None:
    path = tmp_path / "x.db"
    _store(path, "a")
    faults = Faults(monkeypatch, statement, sqlite3.OperationalError(message), times=3)
    with PerfDb.open(path) as db:
        db.store_find(FakeProblem("b"), TARGET, ENVIRONMENT, [find_record()])
        assert len(db.find_records("b", TARGET.key)) == 1
    assert faults.raised == 3
    assert _keys(path) == ["a", "b"]


def test_storage_that_fails_to_open_a_file_at_first_is_tried_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    faults = Faults(monkeypatch, "connect", sqlite3.OperationalError("unable to open database file"), times=2)
    _store(path)
    assert faults.raised == 2


def test_storage_that_never_opens_is_given_up(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Faults(monkeypatch, "connect", sqlite3.OperationalError("unable to open database file"))
    with pytest.raises(DbFault) as caught:
        PerfDb.open(tmp_path / "x.db")
    assert caught.value.fault is Fault.CANNOT_OPEN


# journals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", ["locking protocol", "disk I/O error", "unable to open database file"])
def test_where_wal_does_not_work_the_rollback_journal_does(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    path = tmp_path / "x.db"
    Faults(monkeypatch, "PRAGMA journal_mode = WAL", sqlite3.OperationalError(message))
    with PerfDb.open(path) as db:
        db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record()])
        assert db.info()["journal_mode"] == "delete"
    assert _keys(path) == ["problem"]


def test_wal_that_is_declined_is_not_asked_for_again(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.db"
    real = sqlite3.connect

    class Declining(sqlite3.Connection):
        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:  # type: ignore[override]
            return super().execute("PRAGMA journal_mode" if "= WAL" in sql else sql, *rest)

    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: real(*args, factory=Declining, **options))
    with PerfDb.open(path) as db:
        db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record()])
        assert db.info()["journal_mode"] == "delete"
        assert len(db.find_records("problem", TARGET.key)) == 1


# files that move ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize("whole_directory", [True, False])
def test_a_file_that_is_deleted_meanwhile_is_made_again(
    tmp_path: pathlib.Path, journal: str, whole_directory: bool
) -> None:
    path = tmp_path / "sub" / "x.db"
    with PerfDb.open(path) as db:
        db.store_find(FakeProblem("a"), TARGET, ENVIRONMENT, [find_record()])
        db.read(f"PRAGMA journal_mode = {journal}")
        if whole_directory:
            shutil.rmtree(path.parent)
        else:
            path.unlink()
        db.store_find(FakeProblem("b"), TARGET, ENVIRONMENT, [find_record()])
        assert db.find_records("a", TARGET.key) == []
    assert _keys(path) == ["b"]


def test_a_file_that_is_replaced_meanwhile_is_the_one_used(tmp_path: pathlib.Path) -> None:
    path, other = tmp_path / "x.db", tmp_path / "other.db"
    _store(other, "other")
    with PerfDb.open(path) as db:
        db.store_find(FakeProblem("mine"), TARGET, ENVIRONMENT, [find_record()])
        for suffix in ("-wal", "-shm", ""):
            os.rename(f"{path}{suffix}", tmp_path / f"away.db{suffix}")
        os.rename(other, path)
        assert len(db.find_records("other", TARGET.key)) == 1
        db.store_find(FakeProblem("new"), TARGET, ENVIRONMENT, [find_record()])
    assert _keys(path) == ["new", "other"]
    assert _keys(tmp_path / "away.db") == ["mine"]


def test_a_symlink_is_the_file_that_it_names(tmp_path: pathlib.Path) -> None:
    real, link = tmp_path / "real.db", tmp_path / "link.db"
    link.symlink_to(real)
    with PerfDb.open(link) as through, PerfDb.open(real) as direct:
        through.store_find(FakeProblem("a"), TARGET, ENVIRONMENT, [find_record()])
        direct.store_find(FakeProblem("b"), TARGET, ENVIRONMENT, [find_record()])
        assert len(through.find_records("b", TARGET.key)) == len(direct.find_records("a", TARGET.key)) == 1
    assert link.is_symlink()
    assert _keys(real) == ["a", "b"]


# permissions ----------------------------------------------------------------------------------------------------------


def _attempt(path: pathlib.Path, read_only: bool) -> dict[str, Any]:
    try:
        with PerfDb.open(path, read_only=read_only) as db:
            return {"keys": [row[0] for row in db.read("SELECT key FROM problems")], "immutable": db.is_immutable}
    except DbFault as fault:
        return {"fault": fault.fault.name}


@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize(("file_mode", "directory_mode"), [(0o444, 0o777), (0o444, 0o555), (0o666, 0o555)])
def test_a_read_only_file_or_directory_is_read(
    open_dir: pathlib.Path, journal: str, file_mode: int, directory_mode: int
) -> None:
    path = open_dir / "x.db"
    _store(path)
    connection = sqlite3.connect(path)
    assert connection.execute(f"PRAGMA journal_mode = {journal}").fetchone() == (journal,)
    connection.close()
    path.chmod(file_mode)
    open_dir.chmod(directory_mode)
    before = path.read_bytes(), sorted(os.listdir(open_dir))
    assert as_plain_user(lambda: _attempt(path, read_only=False)) == {"fault": "READ_ONLY"}
    found = as_plain_user(lambda: _attempt(path, read_only=True))
    assert found["keys"] == ["problem"]
    assert found["immutable"] == (journal == "wal" and directory_mode == 0o555)
    open_dir.chmod(0o777)
    assert before[0] == path.read_bytes()


def test_a_file_with_an_unfinished_transaction_is_not_read_as_immutable(open_dir: pathlib.Path) -> None:
    path = open_dir / "x.db"
    _store(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = delete")
    connection.close()
    (open_dir / "x.db-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504))
    path.chmod(0o444)
    open_dir.chmod(0o555)
    found = as_plain_user(lambda: _attempt(path, read_only=True))
    assert not found.get("immutable")


@pytest.mark.parametrize("file_mode", [0o000, 0o222])
def test_a_file_that_may_not_be_read_is_denied(open_dir: pathlib.Path, file_mode: int) -> None:
    path = open_dir / "x.db"
    _store(path)
    path.chmod(file_mode)
    assert as_plain_user(lambda: _attempt(path, read_only=False)) == {"fault": "DENIED"}


@pytest.mark.parametrize("directory_mode", [0o555, 0o000])
def test_a_directory_that_may_not_be_written_takes_no_new_file(open_dir: pathlib.Path, directory_mode: int) -> None:
    open_dir.chmod(directory_mode)
    found = as_plain_user(lambda: _attempt(open_dir / "x.db", read_only=False))
    assert found in ({"fault": "READ_ONLY"}, {"fault": "DENIED"})
    found = as_plain_user(lambda: _attempt(open_dir / "sub" / "x.db", read_only=False))
    assert found == {"fault": "DENIED"}
