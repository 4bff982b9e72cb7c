"""Helpers for tests of the perf DB: problems with any key, records, faulty connections, another user, old files."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hipfind.errors import PerfDbWarning
from hipfind.perfdb import migrations
from hipfind.perfdb.guard import GuardedDb
from hipfind.perfdb.records import Environment, FindRecord, PerfRecord
from hipfind.perfdb.store import PerfDb
from hipfind.problem.base import Float64Array
from hipfind.problem.tensor import TensorDescriptor
from hipfind.target import Target, known

if TYPE_CHECKING:  # worker processes import this file, and pytest takes them a second
    import pytest

TARGET: Target = known("gfx942")
OTHER_TARGET: Target = known("sm_90")
ENVIRONMENT = Environment((("blas", "4.3"), ("driver", "6.2")))
NEWER_ENVIRONMENT = Environment((("blas", "4.3"), ("driver", "6.3")))
NOBODY = 65534


@dataclasses.dataclass(frozen=True)
class FakeProblem:
    """A problem that is only a key: the perf DB must not look further than the protocol."""

    text: str = "problem"
    operation: str = "fake"
    direction: str = "fwd"
    inputs: tuple[str, ...] = ("x",)
    output: str = "y"
    roles: tuple[str, ...] = ("x", "y")
    is_empty: bool = False
    flops: int = 0
    min_bytes: int = 0
    reads_output: bool = False
    reduction_length: int = 1

    def tensor(self, role: str) -> TensorDescriptor:
        return TensorDescriptor.packed((1, 2, 3, 4), "fp32" if role == "x" else "fp16")

    def canonical(self) -> FakeProblem:
        return self

    def canonical_roles(self) -> Mapping[str, str]:
        return {role: role for role in self.roles}

    def key(self) -> str:
        return self.text

    def facts(self) -> Mapping[str, int | str]:
        return {"layout": "NCHW"}

    def reference(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> Float64Array:
        raise AssertionError("the perf DB computes nothing")

    def reference_at(
        self, arrays: Mapping[str, npt.NDArray[np.generic]], indices: npt.NDArray[np.int64]
    ) -> Float64Array:
        raise AssertionError("the perf DB computes nothing")


def find_record(solver_id: str = "GemmBwdRest", time_ms: float | None = 0.5, **changes: Any) -> FindRecord:
    """A valid find record; ``changes`` replace fields."""
    record = FindRecord(solver_id, 1, "", "0123456789abcdef", time_ms, 0.01, 10, 1024, "won", "", True)
    return dataclasses.replace(record, **changes)


def perf_record(solver_id: str = "GemmBwdRest", time_ms: float = 0.5, **changes: Any) -> PerfRecord:
    """A valid perf record; ``changes`` replace fields."""
    record = PerfRecord(solver_id, 1, "64x64", "0123456789abcdef", time_ms, 0.01, 10, 1024)
    return dataclasses.replace(record, **changes)


def as_plain_user(work: Callable[[], Any]) -> Any:
    """Result of ``work`` (JSON-ready) as a user whom permissions bind: in a child with another uid when root.

    Raises AssertionError with the child's traceback when ``work`` raises.
    """
    if os.geteuid() != 0:
        return work()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on: fork in a process with threads
        child = os.fork()
    if child == 0:
        os.close(reading)
        _work_and_exit(work, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = json.loads(pipe.read() or '{"error": "the child wrote nothing"}')
    os.waitpid(child, 0)
    assert "error" not in answer, answer["error"]
    return answer["result"]


def _work_and_exit(work: Callable[[], Any], writing: int) -> None:
    answer: dict[str, Any] = {}
    try:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        answer = {"result": work()}
    finally:
        if not answer:
            answer = {"error": traceback.format_exc()}
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(json.dumps(answer).encode())
        os._exit(0)


class Faults:
    """Makes perf DB connections raise ``error`` on statements that start with ``trigger`` ("connect": on opening).

    ``times``: only so often, then all is well; ``stop`` ends it.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, trigger: str, error: Exception, *, times: int | None = None
    ) -> None:
        self.raised = 0
        self._trigger, self._error, self._left = trigger, error, times
        check = self.check

        class FaultyConnection(sqlite3.Connection):
            def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:  # type: ignore[override]
                check(sql.strip())
                return super().execute(sql, *rest)

        real = sqlite3.connect

        def connect(database: str, **options: Any) -> sqlite3.Connection:
            if database == ":memory:":
                return real(database, **options)
            check("connect")
            return real(database, factory=FaultyConnection, **options)

        monkeypatch.setattr(sqlite3, "connect", connect)

    def check(self, statement: str) -> None:
        if not statement.startswith(self._trigger) or self._left == 0:
            return
        self.raised += 1
        if self._left is not None:
            self._left -= 1
        raise self._error

    def stop(self) -> None:
        self._left = 0


def build_version(path: Path, version: int) -> None:
    """A DB file as a hipfind that knew the first ``version`` migrations would leave it, without rows."""
    connection = sqlite3.connect(path, isolation_level=None)
    latest = migrations.MIGRATIONS
    migrations.MIGRATIONS = latest[:version]
    try:
        migrations.migrate(connection, str(path))
    finally:
        migrations.MIGRATIONS = latest
        connection.close()


def python_command(code: str, *arguments: str) -> list[str]:
    """Command line that runs Python code in a new process."""
    return [sys.executable, "-c", code, *arguments]


OLD = find_record("Old", 1.0)


def store(db: GuardedDb, key: str, *records: FindRecord) -> bool:
    """Store records (one usual one by default) of the problem with this key."""
    return db.store_find(FakeProblem(key), TARGET, ENVIRONMENT, records or (find_record(),))


def found(db: GuardedDb, key: str) -> list[FindRecord]:
    """The trusted records of the problem with this key."""
    return [one.record for one in db.lookup(key, TARGET.key, ENVIRONMENT).trusted]


def stored_keys(path: Path) -> list[str]:
    """Keys of all problems in a file."""
    with PerfDb.open(path, read_only=True) as db:
        return [key for (key,) in db.read("SELECT key FROM problems ORDER BY key")]


def live_with(db: GuardedDb) -> list[str]:
    """A process's life with the DB; every result must be there again afterwards. Returns the warnings."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for key in ("a", "b"):
            assert found(db, key) == []
            store(db, key)
            store(db, key, find_record("Second", 0.25))
            assert found(db, key) == [find_record("Second", 0.25), find_record()]
        db.store_perf(FakeProblem("a"), TARGET, ENVIRONMENT, [perf_record()])
        assert [one.record for one in db.lookup_perf("a", TARGET.key, ENVIRONMENT).trusted] == [perf_record()]
    assert all(issubclass(one.category, PerfDbWarning) for one in seen)
    return [str(one.message) for one in seen]
