"""The guard as a plain user meets files and directories that may not be written or read."""

from __future__ import annotations

import os
import pathlib
import shutil
import warnings
from typing import Any

import pytest

from hipfind.perfdb.guard import GuardedDb
from tests.helpers.perfdb import as_plain_user, found, live_with

pytestmark = pytest.mark.usefixtures("short_waits")


def _life(path: str | pathlib.Path) -> dict[str, Any]:
    with GuardedDb(path) as db:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            old = [one.solver_id for one in found(db, "old")]
        return {"old": old, "warnings": [str(one.message) for one in seen] + live_with(db)}


@pytest.mark.parametrize(("file_mode", "directory_mode"), [(0o444, 0o777), (0o444, 0o555), (0o666, 0o555)])
def test_a_read_only_db_is_read_and_new_results_stay_in_memory(
    path: pathlib.Path, open_dir: pathlib.Path, file_mode: int, directory_mode: int
) -> None:
    mine = pathlib.Path(shutil.copy(path, open_dir))
    mine.chmod(file_mode)
    open_dir.chmod(directory_mode)
    before = mine.read_bytes()
    life = as_plain_user(lambda: _life(mine))
    assert life["old"] == ["Old"]
    (message,) = life["warnings"]
    assert "it is still read" in message
    assert mine.read_bytes() == before


@pytest.mark.parametrize(("file_mode", "directory_mode"), [(0o000, 0o777), (0o666, 0o000), (0o200, 0o555)])
def test_a_db_that_may_not_be_read_is_done_without(
    path: pathlib.Path, open_dir: pathlib.Path, file_mode: int, directory_mode: int
) -> None:
    mine = pathlib.Path(shutil.copy(path, open_dir))
    before = mine.read_bytes()
    mine.chmod(file_mode)
    open_dir.chmod(directory_mode)
    life = as_plain_user(lambda: _life(mine))
    assert life["old"] == []
    (message,) = life["warnings"]
    assert "permission" in message or "is read-only" in message
    open_dir.chmod(0o777)
    assert mine.read_bytes() == before


def test_a_damaged_file_that_cannot_be_moved_is_done_without(open_dir: pathlib.Path) -> None:
    mine = open_dir / "hipfind.db"
    mine.write_bytes(b"junk" * 300)
    open_dir.chmod(0o555)
    life = as_plain_user(lambda: _life(mine))
    assert len(life["warnings"]) == 1
    assert mine.read_bytes() == b"junk" * 300


def test_a_new_file_in_a_read_only_directory(open_dir: pathlib.Path) -> None:
    open_dir.chmod(0o555)
    life = as_plain_user(lambda: _life(open_dir / "sub" / "hipfind.db"))
    assert len(life["warnings"]) == 1
    assert os.listdir(open_dir) == []
