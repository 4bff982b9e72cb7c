"""Moving a damaged file aside: all of it, only when it is damaged, never over another."""

from __future__ import annotations

import os
import pathlib
import sqlite3

import pytest

from hipfind.perfdb import recovery
from hipfind.perfdb.faults import DbFault, Fault
from hipfind.perfdb.recovery import is_damaged, set_aside
from hipfind.perfdb.store import PerfDb
from tests.helpers.perfdb import ENVIRONMENT, TARGET, FakeProblem, find_record


def _damaged(path: pathlib.Path) -> bytes:
    path.write_bytes(b"junk" * 300)
    return path.read_bytes()


def test_a_damaged_file_goes_with_its_journals(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "is_damaged", lambda path: True)  # sqlite would clear journals without content away
    path = tmp_path / "x.db"
    content = {"": _damaged(path)}
    for suffix in ("-wal", "-journal"):
        content[suffix] = suffix.encode() * 50
        pathlib.Path(f"{path}{suffix}").write_bytes(content[suffix])
    aside = set_aside(path)
    assert aside is not None
    assert aside.name.startswith("x.db.corrupt-")
    assert {name: pathlib.Path(f"{aside}{name}").read_bytes() for name in content} == content
    assert sorted(os.listdir(tmp_path)) == sorted(f"{aside.name}{name}" for name in content)


def test_files_moved_in_the_same_second_do_not_replace_each_other(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.db"
    moved = set()
    for number in range(3):
        path.write_bytes(b"junk" * 300 + bytes([number]))
        aside = set_aside(path)
        assert aside is not None
        moved.add(aside.read_bytes()[-1])
    assert moved == {0, 1, 2}
    assert len(os.listdir(tmp_path)) == 3


def test_a_sound_or_missing_file_stays(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.db"
    assert set_aside(path) is None
    with PerfDb.open(path) as db:
        db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record()])
        assert not is_damaged(path)
        assert set_aside(path) is None
        assert len(db.find_records("problem", TARGET.key)) == 1
    assert os.listdir(tmp_path) == ["x.db"]


def test_the_file_behind_a_symlink_is_moved_and_the_link_stays(tmp_path: pathlib.Path) -> None:
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "real.db", tmp_path / "link.db"
    _damaged(real)
    link.symlink_to(real)
    aside = set_aside(link)
    assert aside is not None
    assert aside.parent == real.parent
    assert link.is_symlink()
    with PerfDb.open(link) as db:
        db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record()])
    assert real.exists()


def test_a_file_that_cannot_be_examined_is_not_moved(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.db"
    PerfDb.open(path).close()

    def refuse(*arguments: object, **options: object) -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(sqlite3, "connect", refuse)
    with pytest.raises(DbFault, match="moving the damaged file aside") as caught:
        set_aside(path)
    assert caught.value.fault is Fault.CANNOT_OPEN
    assert os.listdir(tmp_path) == ["x.db"]


def test_a_name_that_cannot_be_given_is_a_fault(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.db"
    before = _damaged(path)

    def refuse(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(DbFault) as caught:
        set_aside(path)
    assert caught.value.fault is Fault.DENIED
    assert path.read_bytes() == before


def test_what_was_only_in_the_log_is_in_the_file_that_is_moved(tmp_path: pathlib.Path) -> None:
    """sqlite writes the log back into the damaged file when that is examined."""
    path, copy = tmp_path / "x.db", tmp_path / "copy.db"
    PerfDb.open(path).close()
    with PerfDb.open(path) as db:
        db.store_find(FakeProblem("in the log"), TARGET, ENVIRONMENT, [find_record()])
        ((page,),) = db.read("SELECT rootpage FROM sqlite_master WHERE name = 'migrations'")
        for suffix in ("", "-wal"):
            pathlib.Path(f"{copy}{suffix}").write_bytes(pathlib.Path(f"{path}{suffix}").read_bytes())
    with open(copy, "r+b") as file:
        file.seek(4096 * (page - 1))
        file.write(b"\x5a" * 4096)
    assert b"in the log" not in copy.read_bytes()
    aside = set_aside(copy)
    assert aside is not None
    assert b"in the log" in aside.read_bytes()
