"""No fault of the DB reaches Find: it warns once, goes on in memory, and loses nothing that was stored."""

from __future__ import annotations

import os
import pathlib
import sqlite3
import warnings
from collections.abc import Callable

import pytest

from hipfind import settings
from hipfind.errors import PerfDbWarning
from hipfind.perfdb import guard as guard_module
from hipfind.perfdb.faults import Fault
from hipfind.perfdb.guard import FIRST_RETRY_S, GuardedDb
from tests.helpers.perfdb import (
    ENVIRONMENT,
    NEWER_ENVIRONMENT,
    OLD,
    OTHER_TARGET,
    TARGET,
    FakeProblem,
    Faults,
    find_record,
    found,
    live_with,
    store,
    stored_keys,
)

pytestmark = pytest.mark.usefixtures("short_waits")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# all is well ----------------------------------------------------------------------------------------------------------


def test_results_are_there_in_the_next_process(path: pathlib.Path) -> None:
    with GuardedDb(path) as db:
        assert live_with(db) == []
        assert db.fault is None
    with GuardedDb(path) as db:
        assert found(db, "old") == [OLD]
        assert len(found(db, "b")) == 2
        (stored,) = db.lookup("old", TARGET.key, ENVIRONMENT).trusted
        assert not stored.in_memory


def test_looking_up_makes_no_file_and_storing_does(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "sub" / "hipfind.db"
    with GuardedDb(path) as db:
        assert found(db, "a") == []
        assert not path.parent.exists()
        assert store(db, "a")
        assert stored_keys(path) == ["a"]


def test_a_file_that_another_process_makes_is_seen(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hipfind.db"
    with GuardedDb(path) as first, GuardedDb(path) as second:
        assert found(first, "a") == []
        store(second, "a")
        assert found(first, "a") == [find_record()]


def test_the_settings_name_the_file(tmp_path: pathlib.Path) -> None:
    with settings.override(user_db_path=str(tmp_path / "set.db")), GuardedDb() as db:
        store(db, "a")
    assert stored_keys(tmp_path / "set.db") == ["a"]


def test_a_disabled_db_is_kept_in_memory_without_a_word(tmp_path: pathlib.Path) -> None:
    with settings.override(user_db_path=str(tmp_path / "set.db"), disable_user_db=True), GuardedDb() as db:
        assert live_with(db) == []
        assert db.lookup("a", TARGET.key, ENVIRONMENT).trusted[0].in_memory
    assert os.listdir(tmp_path) == []


# trust ----------------------------------------------------------------------------------------------------------------


def test_records_of_another_environment_are_told_apart_with_what_changed(path: pathlib.Path) -> None:
    with GuardedDb(path) as db:
        db.store_find(FakeProblem("old"), TARGET, NEWER_ENVIRONMENT, [find_record("New", 2.0)])
        answer = db.lookup("old", TARGET.key, NEWER_ENVIRONMENT)
        assert [one.record.solver_id for one in answer.trusted] == ["New"]
        (stale,) = answer.stale
        assert stale.stored.record == OLD
        assert "driver was 6.2, is 6.3" in stale.reason
        assert found(db, "old") == [OLD]
    assert stored_keys(path) == ["old"]


def test_records_of_another_target_are_not_seen_and_not_lost(path: pathlib.Path) -> None:
    with GuardedDb(path) as db:
        assert db.lookup("old", OTHER_TARGET.key, ENVIRONMENT).trusted == ()
        db.store_find(FakeProblem("old"), OTHER_TARGET, ENVIRONMENT, [find_record("Other", 0.1)])
        assert found(db, "old") == [OLD]


@pytest.mark.parametrize("change", ["time_ms = -1.0", "time_ms = 9e999", "workspace_bytes = -1", "time_ms = 'fast'"])
def test_a_record_that_breaks_a_rule_is_not_trusted(path: pathlib.Path, change: str) -> None:
    with GuardedDb(path) as db:
        store(db, "old", find_record("Good", 5.0))
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    connection.execute(f"UPDATE find_records SET {change} WHERE solver_id = 'Old'")
    connection.commit()
    connection.close()
    with GuardedDb(path) as db:
        answer = db.lookup("old", TARGET.key, ENVIRONMENT)
    assert [one.record.solver_id for one in answer.trusted] == ["Good"]
    (stale,) = answer.stale
    assert stale.reason.startswith(f"not valid: {change.split()[0]}")


def test_a_record_that_must_not_be_stored_is_dropped_with_a_warning(path: pathlib.Path) -> None:
    with GuardedDb(path) as db:
        with pytest.warns(PerfDbWarning, match="time_ms must be a finite number"):
            assert not store(db, "a", find_record(time_ms=float("nan")))
        assert found(db, "a") == []
        assert store(db, "b")


# faults ---------------------------------------------------------------------------------------------------------------


def test_every_fault_that_a_file_can_have_has_an_action() -> None:
    assert set(guard_module._ACTIONS) == set(Fault) - {Fault.REFUSED}


def _newer(path: pathlib.Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.commit()
    connection.close()


def _foreign(path: pathlib.Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE songs (title)")
    connection.commit()
    connection.close()


def _directory(path: pathlib.Path) -> None:
    path.unlink()
    (path / "hipfind.db").mkdir(parents=True)


_UNUSABLE: dict[str, tuple[Callable[[pathlib.Path], None], Fault]] = {
    "newer schema": (_newer, Fault.NEWER),
    "foreign": (_foreign, Fault.FOREIGN),
    "directory in the file's place": (_directory, Fault.BAD_PATH),
}


@pytest.mark.parametrize("name", _UNUSABLE)
def test_a_file_that_is_not_ours_to_use_is_left_alone(path: pathlib.Path, name: str) -> None:
    spoil, fault = _UNUSABLE[name]
    spoil(path)
    before = path.read_bytes() if path.is_file() else b""
    with GuardedDb(path) as db:
        (message,) = live_with(db)
        assert db.fault is not None
        assert db.fault.fault is fault
    assert str(path) in message
    assert "kept in memory until this process ends" in message
    assert "HIPFIND_USER_DB_PATH" in message
    assert (path.read_bytes() if path.is_file() else b"") == before
    assert [one for one in os.listdir(path.parent) if "corrupt" in one] == []


@pytest.mark.parametrize("home", [None, "", "/nonexistent"])
def test_without_a_home_results_are_kept_in_memory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("HOME")
    if home is not None:
        monkeypatch.setenv("HOME", home)
    with settings.override(user_db_path=""), GuardedDb() as db:
        (message,) = live_with(db)
    assert "set HOME" in message
    assert os.listdir(tmp_path) == []


def _truncate(path: pathlib.Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _junk_header(path: pathlib.Path) -> None:
    path.write_bytes(b"junk" * 25 + path.read_bytes()[100:])


def _junk_pages(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:4096] + b"\x5a" * (path.stat().st_size - 4096))


def _junk_schema(path: pathlib.Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\xff" * 3996 + data[4096:])


_DAMAGE = {"truncated": _truncate, "header": _junk_header, "pages": _junk_pages, "schema": _junk_schema}


@pytest.mark.parametrize("name", _DAMAGE)
def test_a_damaged_file_is_moved_aside_and_a_new_one_started(path: pathlib.Path, name: str) -> None:
    _DAMAGE[name](path)
    damaged = path.read_bytes()
    with GuardedDb(path) as db:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            db.lookup("old", TARGET.key, ENVIRONMENT)
        seen_here = [str(one.message) for one in seen] + live_with(db)
    (message,) = seen_here
    (aside,) = (one for one in path.parent.iterdir() if ".corrupt-" in one.name)
    assert f"moved to {aside}" in message
    assert aside.read_bytes() == damaged
    assert {"a", "b"} <= set(stored_keys(path)) <= {"a", "b", "old"}


def test_a_file_that_is_damaged_while_in_use_is_replaced_for_all_who_use_it(path: pathlib.Path) -> None:
    with GuardedDb(path) as first, GuardedDb(path) as second:
        assert found(first, "old") == [OLD]
        with open(path, "r+b") as file:  # the same file: its inode stays
            file.write(b"\x5a" * path.stat().st_size)
        (message,) = live_with(second)
        assert "moved to" in message
        assert len(found(first, "a")) == 2
        assert store(first, "c")
        assert found(second, "c") == [find_record()]
        assert first.fault is None
    assert len([one for one in os.listdir(path.parent) if one.endswith(".db")]) == 1
    assert stored_keys(path) == ["a", "b", "c"]


def test_damage_that_was_only_seen_in_passing_moves_nothing(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = sqlite3.DatabaseError("database disk image is malformed")
    faults = Faults(monkeypatch, "SELECT p.key", error, times=2)
    with GuardedDb(path) as db:
        assert found(db, "old") == [OLD]
        assert live_with(db) == []
    assert faults.raised == 2
    assert os.listdir(path.parent) == ["hipfind.db"]


def test_a_file_that_only_seems_damaged_every_time_is_left_alone(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Faults(monkeypatch, "SELECT p.key", sqlite3.DatabaseError("database disk image is malformed"))
    with GuardedDb(path) as db:
        (message,) = live_with(db)
    assert "written when the file can be used again" in message
    monkeypatch.undo()
    assert "old" in stored_keys(path)


_STATEMENTS = ["connect", "PRAGMA user_version", "SELECT p.key", "BEGIN IMMEDIATE", "INSERT INTO problems", "COMMIT"]
_PASSING = ["disk I/O error", "database or disk is full", "database is locked", "locking protocol", "no such table: x"]


@pytest.mark.parametrize("statement", _STATEMENTS)
@pytest.mark.parametrize("message", _PASSING)
def test_any_error_at_any_statement_warns_once_and_results_stay(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, statement: str, message: str
) -> None:
    Faults(monkeypatch, statement, sqlite3.OperationalError(message))
    with GuardedDb(path) as db:
        (warning,) = live_with(db)
        assert str(path) in warning
        assert message in warning
    monkeypatch.undo()
    assert "old" in stored_keys(path)


@pytest.mark.parametrize("message", _PASSING)
def test_results_are_written_when_the_fault_has_passed(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    clock = Clock()
    faults = Faults(monkeypatch, "BEGIN IMMEDIATE", sqlite3.OperationalError(message))
    with GuardedDb(path, clock=clock) as db:
        assert len(live_with(db)) == 1
        assert found(db, "old") == [OLD], "reading goes on"
        faults.stop()
        assert not store(db, "c"), "not tried again at once"
        clock.now += FIRST_RETRY_S
        assert store(db, "d")
        assert stored_keys(path) == ["a", "b", "c", "d", "old"]
        assert not db.lookup("c", TARGET.key, ENVIRONMENT).trusted[0].in_memory


def test_results_are_written_at_the_end_when_the_fault_has_passed(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch, "BEGIN IMMEDIATE", sqlite3.OperationalError("database is locked"))
    with GuardedDb(path) as db:
        assert len(live_with(db)) == 1
        faults.stop()
    assert stored_keys(path) == ["a", "b", "old"]


def test_a_fault_that_stays_is_met_less_and_less_often(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    faults = Faults(monkeypatch, "COMMIT", sqlite3.OperationalError("disk I/O error"))
    tries = []
    with GuardedDb(path, clock=clock) as db, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for minute in range(16):
            clock.now = 1000.0 + minute * FIRST_RETRY_S
            before = faults.raised
            store(db, f"p{minute}")
            tries += [minute] * (faults.raised - before)
        assert tries == [0, 1, 3, 7, 15]


def test_a_lock_held_for_ever_by_another_process(path: pathlib.Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("PRAGMA journal_mode = DELETE")
    holder.execute("BEGIN EXCLUSIVE")
    with GuardedDb(path) as db:
        (message,) = live_with(db)
        assert "is locked by another process" in message
    holder.close()
    assert stored_keys(path) == ["old"]


def test_a_full_disk(path: pathlib.Path) -> None:
    """A file that may not grow, by sqlite's own means; what fits is stored, the rest stays in memory."""
    with GuardedDb(path) as db:
        store(db, "first")
        assert db._file is not None
        db._file.read("PRAGMA max_page_count = 1")
        with pytest.warns(PerfDbWarning, match="full") as seen:
            for number in range(200):
                store(db, f"p{number}", find_record(detail="x" * 500))
        assert len(seen) == 1
        assert all(len(found(db, f"p{number}")) == 1 for number in range(200))
        assert found(db, "old") == [OLD]
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    assert {"first", "old"} <= set(stored_keys(path))


def test_a_warning_that_is_an_error_leaves_the_db_usable(path: pathlib.Path) -> None:
    _newer(path)
    with GuardedDb(path) as db:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(PerfDbWarning):
                store(db, "a")
        assert found(db, "a") == [find_record()]
