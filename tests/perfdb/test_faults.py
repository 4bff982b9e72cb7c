"""The fault matrix: in each row a convolution's result is right, one warning names cause and remedy, nothing that was
stored is lost, and ``hipfind db check`` names the state.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import sqlite3
import subprocess
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hipfind as hf
from hipfind import settings
from hipfind.cli.main import main
from hipfind.device.devices import get_device
from hipfind.find.engine import find
from hipfind.find.plan import make_plan
from hipfind.find.session import Session
from hipfind.perfdb import schema
from hipfind.perfdb.checkup import examine
from hipfind.perfdb.guard import GuardedDb
from hipfind.perfdb.store import PerfDb
from tests.helpers.perfdb import Faults, as_plain_user, python_command

pytestmark = pytest.mark.usefixtures("short_waits")

Undo = Callable[[], None]


@dataclasses.dataclass(frozen=True)
class Case:
    """``spoil(path, monkeypatch)`` makes the fault and returns what ends it. ``warns``: part of the one warning."""

    state: str
    spoil: Callable[[pathlib.Path, pytest.MonkeyPatch], Undo | None]
    warns: str
    is_measured_anew: bool = False  # a new record takes the place of the solver's old one


def _sql(path: pathlib.Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def _locked(path: pathlib.Path, patch: pytest.MonkeyPatch) -> Undo:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    return holder.close


def _wholly_locked(path: pathlib.Path, patch: pytest.MonkeyPatch) -> Undo:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("PRAGMA journal_mode = DELETE")
    holder.execute("BEGIN EXCLUSIVE")
    return holder.close


def _failing(statement: str, message: str) -> Callable[[pathlib.Path, pytest.MonkeyPatch], Undo]:
    def spoil(path: pathlib.Path, patch: pytest.MonkeyPatch) -> Undo:
        return Faults(patch, statement, sqlite3.OperationalError(message)).stop

    return spoil


def _rewrite(change: Callable[[bytes], bytes]) -> Callable[[pathlib.Path, pytest.MonkeyPatch], None]:
    def spoil(path: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
        path.write_bytes(change(path.read_bytes()))

    return spoil


def _execute(*statements: str) -> Callable[[pathlib.Path, pytest.MonkeyPatch], None]:
    return lambda path, patch: _sql(path, *statements)


def _foreign(path: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
    path.rename(f"{path}.kept")
    _sql(path, "CREATE TABLE songs (title)")


def _directory(path: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
    path.rename(f"{path}.kept")
    (path / "hipfind.db").mkdir(parents=True)


def _older(path: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
    """Back to the first schema."""
    _sql(
        path, "DROP VIEW tuned_configs", "DROP TABLE perf_records", schema.FIRST_TABLES[-1],
        "DROP VIEW results", "DROP VIEW reference_results", "DROP TABLE reference_records",
        "DROP TABLE reference_sources", "DROP TABLE superseded", "DELETE FROM migrations WHERE id > 1",
        "PRAGMA user_version = 1",
    )  # fmt: skip


_IN_MEMORY = "kept in memory"
_CASES = {
    "all is well": Case("ok", _execute(), ""),
    "locked": Case("locked", _locked, _IN_MEMORY),
    "wholly locked": Case("locked", _wholly_locked, _IN_MEMORY),
    "busy": Case("locked", _failing("BEGIN IMMEDIATE", "database is locked"), _IN_MEMORY),
    "locking protocol": Case("locked", _failing("BEGIN IMMEDIATE", "locking protocol"), _IN_MEMORY),
    "I/O error reading": Case("io_error", _failing("PRAGMA user_version", "disk I/O error"), _IN_MEMORY),
    "I/O error writing": Case("io_error", _failing("BEGIN IMMEDIATE", "disk I/O error"), _IN_MEMORY),
    "full": Case("full", _failing("COMMIT", "database or disk is full"), _IN_MEMORY),
    "cannot be opened": Case("cannot_open", _failing("connect", "unable to open database file"), _IN_MEMORY),
    "junk header": Case("corrupt", _rewrite(lambda data: b"junk" * 25 + data[100:]), "moved to"),
    "junk": Case("corrupt", _rewrite(lambda data: b"\x5a" * len(data)), "moved to"),
    "truncated": Case("corrupt", _rewrite(lambda data: data[:-5000]), "moved to"),
    "zero bytes": Case("missing", _rewrite(lambda data: b""), ""),
    "newer schema": Case("newer", _execute("PRAGMA user_version = 99"), "upgrade hipfind"),
    "older schema": Case("older", _older, ""),
    "another program's": Case("foreign", _foreign, "HIPFIND_USER_DB_PATH"),
    "directory": Case("bad_path", _directory, "HIPFIND_USER_DB_PATH"),
    "row of an unknown solver": Case("ok", _execute("UPDATE find_records SET solver_id = 'NoSuch' || solver_id"), ""),
    "row with unparsable parameters": Case("ok", _execute("UPDATE find_records SET config = 'xyz=?'"), "", True),
    "row with invalid values": Case(
        "invalid_records",
        _execute("PRAGMA ignore_check_constraints = ON", "UPDATE find_records SET time_ms = -1.0"), "", True,
    ),
    "row of another device": Case("ok", _execute("UPDATE targets SET key = 'amd:gfx000:1'"), ""),
    "row of another driver": Case("ok", _execute("UPDATE environments SET fingerprint = 'x', facts = '{}'"), ""),
    "row of other kernel sources": Case("ok", _execute("UPDATE find_records SET source_hash = 'x'"), "", True),
    "row of another solver version": Case("ok", _execute("UPDATE find_records SET solver_version = 999"), "", True),
    "row of an unreadable one": Case("ok", _execute("UPDATE environments SET facts = '?', fingerprint = 'y'"), ""),
}  # fmt: skip


STORED = hf.ConvProblem.create("fwd", x=(2, 3, 6, 6), w=(4, 3, 3, 3))
NEW = hf.ConvProblem.create("fwd", x=(2, 3, 5, 6), w=(4, 3, 3, 3))


@contextlib.contextmanager
def _perf_db_warnings() -> Iterator[list[str]]:
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield messages
    messages += [str(one.message) for one in seen]


def _convolve(path: pathlib.Path, *problems: hf.ConvProblem) -> list[str]:
    """A process's life: Find, a plan, a convolution with the right result, the end. Returns the warnings."""
    with settings.override(user_db_path=str(path)), _perf_db_warnings() as messages:
        db = GuardedDb()
        session = Session(get_device("host"), db)
        for problem in problems or (STORED, NEW):
            assert find(problem, session, mode="hybrid").best is not None
            arrays = {role: _values(problem.tensor(role).lengths) for role in ("x", "w")}
            y = make_plan(problem, session)(arrays["x"], arrays["w"])
            assert np.allclose(y, problem.reference(arrays), rtol=1e-4, atol=1e-5)
        db.close()
    return messages


def _values(lengths: tuple[int, ...]) -> Any:
    return np.random.default_rng(1).standard_normal(lengths, dtype="f")


def _check(path: pathlib.Path) -> tuple[str, int, dict[str, Any]]:
    with settings.override(user_db_path=str(path)):
        done = CliRunner().invoke(main, ["db", "check", "--json"], prog_name="hipfind")
    answer = json.loads(done.stdout)
    return answer["state"], done.exit_code, answer


def _has(directory: pathlib.Path, text: str) -> bool:
    """Whether the bytes of any file in the directory hold the text."""
    return any(text.encode() in one.read_bytes() for one in directory.rglob("*") if one.is_file())


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file in which the problem has been found, and nothing else."""
    path = tmp_path_factory.mktemp("measured") / "hipfind.db"
    assert _convolve(path, STORED) == []
    return path.read_bytes()


@pytest.mark.parametrize("name", _CASES)
def test_whatever_is_wrong_with_the_file(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, measured: bytes, name: str
) -> None:
    case, path = _CASES[name], tmp_path / "hipfind.db"
    path.write_bytes(measured)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE find_records SET detail = 'here before'")
        connection.commit()
    undo = case.spoil(path, monkeypatch)
    held = _has(tmp_path, "here before")
    state, code, answer = _check(path)
    assert state == case.state
    assert code == (0 if case.state in ("ok", "missing", "older") else 1)
    assert bool(answer["remedy"]) == (code == 1)
    messages = _convolve(path)
    if undo is not None:
        undo()
    monkeypatch.undo()
    if case.warns:
        (message,) = messages
        assert case.warns in message and str(path) in message
    else:
        assert messages == []
    assert case.is_measured_anew or _has(tmp_path, "here before") == held
    if case.state in ("corrupt", "locked", "full", "io_error", "cannot_open", "older"):
        assert _check(path)[0] == "ok"
        assert _convolve(path) == []


@pytest.mark.parametrize("home", [None, "", "relative", "/nonexistent"])
def test_without_a_home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("HOME")
    if home is not None:
        monkeypatch.setenv("HOME", home)
    with settings.override(user_db_path=""):
        found = examine()
    assert found.state == "no_home" and "set HOME" in found.remedy


_NAMES = [
    "with space",
    "it's",
    'say "x"',
    "a?b=c",
    "x#y",
    "100%41",
    "d\u00fcrr \u6728",
    "semi;colon&and",
    "-dash",
    "back\\slash",
]


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("form", ["absolute", "relative"])
def test_any_name_is_examined_literally(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name / f"{name}.db"
    given = path if form == "absolute" else pathlib.Path(name) / f"{name}.db"
    PerfDb.open(given).close()
    assert examine(given).state == "ok"
    assert examine(given).path == str(path)
    assert sorted(os.listdir(tmp_path)) == [name]


# real limits of a file system -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _small_disk(place: pathlib.Path, options: str) -> Iterator[pathlib.Path]:
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=False, capture_output=True
    ).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def _fill(disk: pathlib.Path) -> None:
    with contextlib.suppress(OSError), open(disk / "filler", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def _take_inodes(disk: pathlib.Path) -> None:
    with contextlib.suppress(OSError):
        for number in range(10_000):
            (disk / f"i{number}").touch()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can mount")
@pytest.mark.parametrize(("options", "spend"), [("size=1m", _fill), ("size=4m,nr_inodes=12", _take_inodes)])
def test_a_real_disk_without_room(
    tmp_path: pathlib.Path, measured: bytes, options: str, spend: Callable[[pathlib.Path], None]
) -> None:
    with _small_disk(tmp_path / "disk", options) as disk:
        path = disk / "hipfind.db"
        path.write_bytes(measured)
        _sql(path, "UPDATE find_records SET solver_version = 999")
        spend(disk)
        state, code, answer = _check(path)
        assert (state, code) == ("full", 1) and "inodes" in answer["remedy"]
        messages = _convolve(path)
        assert len(messages) == 1
        for one in disk.iterdir():
            if one.name == "filler" or one.name.startswith("i"):
                one.unlink()
        assert _check(path)[:2] == ("ok", 0)
        with PerfDb.open(path, read_only=True) as db:
            assert db.read("SELECT count(*) FROM find_records WHERE solver_version = 999")[0][0] > 0


_QUOTA = """
import os, resource, sys, warnings
from hipfind.perfdb.guard import GuardedDb
from tests.helpers.perfdb import ENVIRONMENT, TARGET, FakeProblem, find_record, found, store
limit = os.path.getsize(sys.argv[1]) + 40_000
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
with warnings.catch_warnings(record=True) as seen, GuardedDb(sys.argv[1]) as db:
    warnings.simplefilter("always")
    saved = [store(db, f"p{n}", find_record(detail="x" * 500)) for n in range(300)]
    assert saved[0] and not saved[-1], saved
    assert all(len(found(db, f"p{n}")) == 1 for n in range(300))
print(len(seen), seen[0].message)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs limits of a process")
def test_a_file_that_may_not_grow(tmp_path: pathlib.Path, measured: bytes) -> None:
    path = tmp_path / "hipfind.db"
    path.write_bytes(measured)
    root = pathlib.Path(__file__).parents[2]
    done = subprocess.run(python_command(_QUOTA, str(path)), cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 ") and "kept in memory" in done.stdout
    assert _check(path)[:2] == ("ok", 0)
    with PerfDb.open(path, read_only=True) as db:
        assert db.read("SELECT count(*) FROM problems WHERE key LIKE 'p%'")[0][0] > 0
        assert db.read("SELECT count(*) FROM find_records WHERE outcome = 'won' AND detail = ''")[0][0] > 0


# permissions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file_mode", "directory_mode", "state"),
    [
        (0o666, 0o777, "ok"),
        (0o444, 0o777, "read_only"),
        (0o444, 0o555, "read_only"),
        (0o666, 0o555, "read_only"),
        (0o000, 0o777, "denied"),
        (0o600, 0o777, "denied"),
        (0o666, 0o000, "denied"),
    ],
)
def test_permissions_are_named_with_the_owner(
    open_dir: pathlib.Path, measured: bytes, file_mode: int, directory_mode: int, state: str
) -> None:
    path = open_dir / "hipfind.db"
    path.write_bytes(measured)
    path.chmod(file_mode)
    open_dir.chmod(directory_mode)
    found = as_plain_user(lambda: examine(path).to_dict())
    assert found["state"] == state
    if state == "read_only" and os.geteuid() == 0:
        assert "it belongs to user 0, this is user 65534" in found["detail"]
    open_dir.chmod(0o777)
    assert path.read_bytes() == measured
