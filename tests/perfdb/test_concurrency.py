"""Many threads, processes and forks on one file: nothing is lost, nothing breaks, nobody waits for long."""

from __future__ import annotations

import json
import multiprocessing
import os
import pathlib
import signal
import sqlite3
import subprocess
import threading
import warnings
from collections.abc import Callable

import pytest

from hipfind.perfdb.guard import GuardedDb
from hipfind.perfdb.recovery import set_aside
from hipfind.perfdb.store import PerfDb
from tests.helpers.perfdb import ENVIRONMENT, TARGET, FakeProblem, find_record, python_command

ROOT = pathlib.Path(__file__).parents[2]
PROCESSES = 16
PROBLEMS = 50

_WORKER = """
import sys, warnings
from hipfind import settings
from hipfind.perfdb.guard import GuardedDb
from tests.helpers.perfdb import ENVIRONMENT, TARGET, FakeProblem, find_record
warnings.simplefilter("error")
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
records = [find_record(f"Solver{i}", 1.0 + i) for i in range(6)]
with settings.override(db_journal=sys.argv[4]), GuardedDb(path) as db:
    for number in range(count):
        key = f"{name}-{number}"
        assert not db.lookup(key, TARGET.key, ENVIRONMENT).trusted
        assert db.store_find(FakeProblem(key), TARGET, ENVIRONMENT, records)
        assert len(db.lookup(key, TARGET.key, ENVIRONMENT).trusted) == 6
        print(key, flush=True)
"""


def _start(path: pathlib.Path, name: str, count: int, journal: str) -> subprocess.Popen[str]:
    command = python_command(_WORKER, str(path), name, str(count), {"wal": "wal", "delete": "rollback"}[journal])
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _is_sound(path: pathlib.Path) -> bool:
    connection = sqlite3.connect(path)
    answer = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    return bool(answer == [("ok",)])


def _keys(path: pathlib.Path) -> set[str]:
    with PerfDb.open(path, read_only=True) as db:
        return {key for (key,) in db.read("SELECT key FROM problems")}


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_processes_on_one_new_file_store_every_row(tmp_path: pathlib.Path, journal: str) -> None:
    path, link = tmp_path / "hipfind.db", tmp_path / "link.db"
    link.symlink_to(path)
    workers = [_start(path if n % 2 else link, f"w{n}", PROBLEMS, journal) for n in range(PROCESSES)]
    for worker in workers:
        _, errors = worker.communicate(timeout=120)
        assert worker.returncode == 0, errors
    assert _is_sound(path)
    assert _keys(path) == {f"w{n}-{number}" for n in range(PROCESSES) for number in range(PROBLEMS)}
    with PerfDb.open(path, read_only=True) as db:
        assert db.info()["rows"]["find_records"] == PROCESSES * PROBLEMS * 6
        assert db.info()["journal_mode"] == journal
    assert sorted(one.name for one in tmp_path.iterdir() if one.suffix == ".db") == ["hipfind.db", "link.db"]


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_killed_processes_leave_a_sound_file_that_nobody_waits_for(tmp_path: pathlib.Path, journal: str) -> None:
    path = tmp_path / "hipfind.db"
    done: set[str] = set()
    for turn in range(6):
        worker = _start(path, f"w{turn}", 10_000, journal)
        assert worker.stdout is not None
        done |= {worker.stdout.readline().strip() for _ in range(3 + turn)}
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
        with PerfDb.open(path, wait_s=0.5) as db:
            db.store_find(FakeProblem(f"after-{turn}"), TARGET, ENVIRONMENT, [find_record()])
    assert _is_sound(path)
    assert done <= _keys(path)


def _in_threads(count: int, work: Callable[[int], None]) -> None:
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except AssertionError as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_threads_share_one_db(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hipfind.db"
    with GuardedDb(path) as db:

        def work(name: int) -> None:
            for number in range(20):
                key = f"{name}-{number}"
                assert db.store_find(FakeProblem(key), TARGET, ENVIRONMENT, [find_record()])
                assert len(db.lookup(key, TARGET.key, ENVIRONMENT).trusted) == 1

        _in_threads(4, work)
    assert len(_keys(path)) == 80
    assert _is_sound(path)


def test_threads_that_meet_a_fault_together_get_one_warning(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hipfind.db"
    path.write_bytes(b"junk" * 300)
    start = threading.Barrier(4)
    with GuardedDb(path) as db, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")

        def work(name: int) -> None:
            start.wait()
            assert db.store_find(FakeProblem(str(name)), TARGET, ENVIRONMENT, [find_record()])

        _in_threads(4, work)
    assert len(seen) == 1
    assert _keys(path) == {"0", "1", "2", "3"}


def test_many_who_find_one_damaged_file_move_it_once(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hipfind.db"
    path.write_bytes(b"junk" * 300)
    start = threading.Barrier(4)

    def work(name: int) -> None:
        with GuardedDb(path) as db, warnings.catch_warnings():
            start.wait()
            assert db.store_find(FakeProblem(str(name)), TARGET, ENVIRONMENT, [find_record()])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _in_threads(4, work)
    assert _keys(path) == {"0", "1", "2", "3"}
    assert len([one for one in tmp_path.iterdir() if one.name.startswith("hipfind.db.corrupt-")]) == 1
    assert set_aside(path) is None


# fork -----------------------------------------------------------------------------------------------------------------


def _fork(work: Callable[[], None]) -> None:
    """Run ``work`` in a forked child, as multiprocessing does, and see that it worked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on: fork in a process with threads
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
    child.join(60)
    assert child.exitcode == 0


def test_a_forked_child_uses_the_same_db(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hipfind.db"
    with GuardedDb(path) as db:
        db.store_find(FakeProblem("parent"), TARGET, ENVIRONMENT, [find_record()])

        def child() -> None:
            assert len(db.lookup("parent", TARGET.key, ENVIRONMENT).trusted) == 1
            assert db.store_find(FakeProblem("child"), TARGET, ENVIRONMENT, [find_record()])

        _fork(child)
        assert len(db.lookup("child", TARGET.key, ENVIRONMENT).trusted) == 1
        assert db.store_find(FakeProblem("after"), TARGET, ENVIRONMENT, [find_record()])
    assert _keys(path) == {"parent", "child", "after"}


def test_a_db_in_memory_is_copied_by_a_fork(tmp_path: pathlib.Path) -> None:
    with PerfDb.in_memory() as db:
        db.store_find(FakeProblem("parent"), TARGET, ENVIRONMENT, [find_record()])

        def child() -> None:
            assert len(db.find_records("parent", TARGET.key)) == 1
            db.store_find(FakeProblem("child"), TARGET, ENVIRONMENT, [find_record()])

        _fork(child)
        assert len(db.find_records("parent", TARGET.key)) == 1
        assert db.find_records("child", TARGET.key) == []


def test_a_child_holds_a_lock_of_its_own(tmp_path: pathlib.Path) -> None:
    """An inherited connection would make sqlite in the child believe that it has the parent's lock on the file.

    Then the parent, closing as the only one known to the system, deletes the log that the child still writes.
    """
    path = tmp_path / "hipfind.db"
    db = GuardedDb(path)
    db.store_find(FakeProblem("parent"), TARGET, ENVIRONMENT, [find_record()])
    go_reading, go_writing = os.pipe()
    ready_reading, ready_writing = os.pipe()

    def child() -> None:
        db.store_find(FakeProblem("early"), TARGET, ENVIRONMENT, [find_record()])
        os.write(ready_writing, b"x")
        os.read(go_reading, 1)
        db.store_find(FakeProblem("late"), TARGET, ENVIRONMENT, [find_record()])
        assert len(db.lookup("early", TARGET.key, ENVIRONMENT).trusted) == 1

    closer = threading.Thread(target=lambda: (os.read(ready_reading, 1), db.close(), os.write(go_writing, b"x")))
    closer.start()
    _fork(child)
    closer.join()
    for handle in (go_reading, go_writing, ready_reading, ready_writing):
        os.close(handle)
    assert _keys(path) == {"parent", "early", "late"}
    assert _is_sound(path)


def test_forking_while_threads_use_the_db_leaves_no_lock_behind(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hipfind.db"
    stop = threading.Event()
    with GuardedDb(path) as db:

        def work(name: int) -> None:
            number = 0
            while not stop.is_set():
                db.store_find(FakeProblem(f"{name}-{number % 5}"), TARGET, ENVIRONMENT, [find_record()])
                number += 1

        threads = [threading.Thread(target=work, args=(name,)) for name in range(2)]
        for thread in threads:
            thread.start()
        try:
            for turn in range(5):
                _fork(lambda turn=turn: _store_one(db, f"child-{turn}"))  # type: ignore[misc]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert {f"child-{turn}" for turn in range(5)} <= _keys(path)
    assert _is_sound(path)


def _store_one(db: GuardedDb, key: str) -> None:
    assert db.store_find(FakeProblem(key), TARGET, ENVIRONMENT, [find_record()])


def test_an_unclosed_db_is_closed_at_exit(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hipfind.db"
    code = """
import json, sys
from hipfind.perfdb.guard import GuardedDb
from tests.helpers.perfdb import ENVIRONMENT, TARGET, FakeProblem, find_record
db = GuardedDb(sys.argv[1])
print(json.dumps(db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record()])))
"""
    command = python_command(code, str(path))
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) is True
    assert done.stderr == ""
    assert os.listdir(tmp_path) == ["hipfind.db"], "the log was written back"
    assert _keys(path) == {"problem"}


def test_what_a_lock_kept_out_is_written_at_exit(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hipfind.db"
    PerfDb.open(path).close()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    code = """
import sys
from hipfind.perfdb import guard
from tests.helpers.perfdb import ENVIRONMENT, TARGET, FakeProblem, find_record
guard.BUSY_WAIT_S = 0.1
db = guard.GuardedDb(sys.argv[1])
for key in "ab":
    assert not db.store_find(FakeProblem(key), TARGET, ENVIRONMENT, [find_record()])
print("locked", flush=True)
sys.stdin.readline()
"""
    command = python_command(code, str(path))
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    holder.close()
    _, errors = process.communicate("go\n", timeout=60)
    assert errors.count("PerfDbWarning") == 1
    assert _keys(path) == {"a", "b"}
