"""Fixtures of the guard's tests: a file with one record, and waits short enough for a test."""

from __future__ import annotations

import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from hipfind.perfdb import guard as guard_module
from hipfind.perfdb.store import PerfDb
from tests.helpers.perfdb import ENVIRONMENT, OLD, TARGET, FakeProblem


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """A file that holds one record of the problem "old"."""
    path = tmp_path / "hipfind.db"
    with PerfDb.open(path) as db:
        db.store_find(FakeProblem("old"), TARGET, ENVIRONMENT, [OLD])
    return path


@pytest.fixture
def open_dir() -> Iterator[pathlib.Path]:
    """A directory that every user may enter (pytest's own are for their owner only)."""
    directory = pathlib.Path(tempfile.mkdtemp())
    directory.chmod(0o777)
    yield directory
    directory.chmod(0o700)
    shutil.rmtree(directory)


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "BUSY_WAIT_S", 0.1)
