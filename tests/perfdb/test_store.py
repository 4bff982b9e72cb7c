"""What goes into a perf DB comes out again, where it belongs."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import sqlite3
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipfind.errors import PerfDbError
from hipfind.perfdb import tables
from hipfind.perfdb.faults import DbFault, Fault
from hipfind.perfdb.records import Environment, FindRecord
from hipfind.perfdb.store import PerfDb
from hipfind.problem.conv import ConvProblem
from tests.helpers.perfdb import (
    ENVIRONMENT,
    NEWER_ENVIRONMENT,
    OTHER_TARGET,
    TARGET,
    FakeProblem,
    Faults,
    find_record,
    perf_record,
    python_command,
)
from tests.helpers.process import ROOT

_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_COUNT = st.integers(0, 2**63 - 1)
_MS = st.floats(0, allow_infinity=False, allow_nan=False)
_RECORDS = st.builds(
    FindRecord, _TEXT.filter(bool), _COUNT, _TEXT, _TEXT, st.none() | _MS, _MS, _COUNT, _COUNT, _TEXT.filter(bool),
    _TEXT, st.booleans(),
)  # fmt: skip


def _records(db: PerfDb, key: str = "problem", target: str = TARGET.key) -> list[FindRecord]:
    return [stored.record for stored in db.find_records(key, target)]


@settings(max_examples=60)
@given(_TEXT.filter(bool), st.lists(_RECORDS, unique_by=lambda one: one.solver_id, max_size=4))
def test_any_text_and_number_round_trips(key: str, records: list[FindRecord]) -> None:
    with PerfDb.in_memory() as db:
        db.store_find(FakeProblem(key), TARGET, ENVIRONMENT, records)
        found = _records(db, key)
    assert sorted(found, key=lambda one: one.solver_id) == sorted(records, key=lambda one: one.solver_id)


def test_records_are_there_for_the_next_process(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hipfind.db"
    with PerfDb.open(path) as db:
        db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record(detail="why")])
    with PerfDb.open(path, read_only=True) as db:
        (stored,) = db.find_records("problem", TARGET.key)
    assert stored.record == find_record(detail="why")
    assert (stored.problem_key, stored.target_key) == ("problem", TARGET.key)
    assert stored.environment == ENVIRONMENT.fingerprint
    assert not stored.in_memory
    assert stored.age_s(stored.created_at + 5.0) == pytest.approx(5.0)
    assert stored.age_s(0.0) == 0.0


def test_records_come_fastest_first_untimed_last() -> None:
    records = [find_record("C", None), find_record("B", 2.0), find_record("A", 0.25), find_record("D", 2.0)]
    with PerfDb.in_memory() as db:
        db.store_find(FakeProblem(), TARGET, ENVIRONMENT, records)
        assert [one.solver_id for one in _records(db)] == ["A", "B", "D", "C"]


def test_a_record_replaces_only_the_same_solvers_in_the_same_place() -> None:
    places = [
        (FakeProblem("p"), TARGET, ENVIRONMENT),
        (FakeProblem("q"), TARGET, ENVIRONMENT),
        (FakeProblem("p"), OTHER_TARGET, ENVIRONMENT),
        (FakeProblem("p"), TARGET, NEWER_ENVIRONMENT),
    ]
    with PerfDb.in_memory() as db:
        for place in places:
            db.store_find(*place, [find_record("A", 1.0), find_record("B", 2.0)])
        new = find_record("A", 9.0, solver_version=2, config="64", verified=False, outcome="lost", detail="slower")
        db.store_find(*places[0], [new])
        for problem, target, environment in places:
            found = {
                one.record.solver_id: one.record
                for one in db.find_records(problem.key(), target.key)
                if one.environment == environment.fingerprint
            }
            first = new if (problem, target, environment) == places[0] else find_record("A", 1.0)
            assert found == {"A": first, "B": find_record("B", 2.0)}


def test_perf_records_are_kept_apart_from_find_records() -> None:
    with PerfDb.in_memory() as db:
        db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record("A")])
        db.store_perf(FakeProblem(), TARGET, ENVIRONMENT, [perf_record("A", 2.0), perf_record("B", 1.0)])
        db.store_perf(FakeProblem(), TARGET, ENVIRONMENT, [perf_record("A", 0.5, config="32x32")])
        found = [one.record for one in db.perf_records("problem", TARGET.key)]
        assert found == [perf_record("A", 0.5, config="32x32"), perf_record("B", 1.0)]
        assert _records(db) == [find_record("A")]


def test_a_refused_config_is_marked_kept_and_cleared_when_it_is_written_again(tmp_path: pathlib.Path) -> None:
    rule = "tile 3 is not a power of two \udcff"
    with PerfDb.open(tmp_path / "a.db") as db, PerfDb.open(tmp_path / "a.db") as other:
        db.store_perf(FakeProblem(), TARGET, ENVIRONMENT, [perf_record("A"), perf_record("B")])
        first, second = db.perf_records("problem", TARGET.key)
        db.refuse_perf(first, rule)
        for one in (db, other):
            marked = dataclasses.replace(first.record, refused="tile 3 is not a power of two \\udcff")
            assert {stored.record for stored in one.perf_records("problem", TARGET.key)} == {marked, second.record}
        other.store_perf(FakeProblem(), TARGET, ENVIRONMENT, [perf_record("A", config="32x32")])
        db.refuse_perf(first, rule)  # of the config that was there before
        assert {one.record.refused for one in db.perf_records("problem", TARGET.key)} == {None}


def test_another_process_sees_the_mark(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.db"
    code = (
        "import sys; from hipfind.perfdb.store import PerfDb; db = PerfDb.open(sys.argv[1], read_only=True)\n"
        "print(*(one.record.refused for one in db.perf_records('problem', sys.argv[2])))"
    )
    with PerfDb.open(path) as db:
        db.store_perf(FakeProblem(), TARGET, ENVIRONMENT, [perf_record("A")])
        db.refuse_perf(db.perf_records("problem", TARGET.key)[0], "odd tile")
        command = python_command(code, str(path), TARGET.key)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "odd tile\n"


@pytest.mark.parametrize("refused", ["", 3, "\udcff"])
def test_a_mark_without_a_rule_is_not_stored(refused: Any) -> None:
    with PerfDb.in_memory() as db, pytest.raises(DbFault, match="refused must be the rule"):
        db.store_perf(FakeProblem(), TARGET, ENVIRONMENT, [perf_record(refused=refused)])


@pytest.mark.parametrize("time_ms", [math.nan, math.inf, -1.0])
def test_one_bad_record_refuses_all_of_them(time_ms: float) -> None:
    with PerfDb.in_memory() as db:
        with pytest.raises(DbFault, match="B: time_ms must be a finite number") as caught:
            db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record("A"), find_record("B", time_ms)])
        assert caught.value.fault is Fault.REFUSED
        assert _records(db) == []


@pytest.mark.parametrize("key", ["", "p\udcff"])
def test_a_key_that_is_no_text_is_refused(key: str) -> None:
    with PerfDb.in_memory() as db:
        with pytest.raises(DbFault, match="problem key"):
            db.store_find(FakeProblem(key), TARGET, ENVIRONMENT, [find_record()])
        assert db.find_records(key, TARGET.key) == []


def test_text_that_is_no_unicode_cannot_be_asked_for() -> None:
    with PerfDb.in_memory() as db, pytest.raises(DbFault, match="not Unicode text"):
        db.read("SELECT 1 WHERE 'a' = ?", ("\udcff",))


def test_a_reason_with_a_strange_path_is_stored_readably() -> None:
    with PerfDb.in_memory() as db:
        db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record(detail="no file b\udcff")])
        assert _records(db)[0].detail == "no file b\\udcff"


def test_a_transaction_that_fails_leaves_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hipfind.db"
    with PerfDb.open(path) as db:
        db.store_find(FakeProblem("old"), TARGET, ENVIRONMENT, [find_record()])
    Faults(monkeypatch, "COMMIT", sqlite3.OperationalError("disk I/O error"), times=1)
    with PerfDb.open(path) as db:
        with pytest.raises(DbFault, match="disk I/O error") as caught:
            db.store_find(FakeProblem("new"), TARGET, ENVIRONMENT, [find_record()])
        assert caught.value.fault is Fault.IO_ERROR
        assert caught.value.path == str(path)
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        assert db.read("SELECT key FROM problems") == [("old",)]
        db.store_find(FakeProblem("new"), TARGET, ENVIRONMENT, [find_record()])
        assert len(_records(db, "new")) == 1


@pytest.mark.parametrize(
    ("column", "value"),
    [("time_ms", -1.0), ("time_ms", "fast"), ("time_ms", math.inf), ("spread_ms", -1.0), ("samples", -1),
     ("samples", 1.5), ("workspace_bytes", -1), ("verified", 2), ("solver_id", ""), ("outcome", ""), ("problem", 77)],
)  # fmt: skip
def test_the_file_itself_refuses_values_that_break_a_rule(tmp_path: pathlib.Path, column: str, value: Any) -> None:
    path = tmp_path / "hipfind.db"
    with PerfDb.open(path) as db:
        db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record()])
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA foreign_keys = ON")
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(f"UPDATE find_records SET {column} = ?", (value,))
    connection.close()


def test_a_look_up_searches_and_never_scans() -> None:
    with PerfDb.in_memory() as db:
        for table in (tables.FIND_RECORDS, tables.PERF_RECORDS):
            plan = db.read(f"EXPLAIN QUERY PLAN {table.select} WHERE p.key = ? AND t.key = ?", ("p", "t"))
            assert [row[-1].split()[0] for row in plan] == ["SEARCH"] * 4


def test_a_closed_db_says_so() -> None:
    db = PerfDb.in_memory()
    db.close()
    db.close()
    with pytest.raises(PerfDbError, match="closed"):
        db.find_records("problem", TARGET.key)


def test_environments_are_kept_with_their_facts() -> None:
    with PerfDb.in_memory() as db:
        for environment in (ENVIRONMENT, NEWER_ENVIRONMENT, ENVIRONMENT):
            db.store_find(FakeProblem(), TARGET, environment, [find_record()])
        db.read("UPDATE environments SET facts = 'junk' WHERE fingerprint = ?", (NEWER_ENVIRONMENT.fingerprint,))
        assert db.environments() == {
            ENVIRONMENT.fingerprint: ENVIRONMENT,
            NEWER_ENVIRONMENT.fingerprint: Environment(()),
        }


def _columns(problem: Any) -> dict[str, Any]:
    return dict(zip(tables.PROBLEM_COLUMNS, tables.problem_row(problem), strict=True))


def test_a_convolution_is_stored_with_columns_to_query() -> None:
    problem = ConvProblem.create(
        "bwd", (9500, 3, 28, 14), (1280, 3, 14, 7), stride=(14, 7), pad=((0, 1), (2, 2)), dtype="bf16", layout="NHWC"
    )
    row = _columns(problem)
    assert (row["key"], row["operation"], row["direction"]) == (problem.key(), "conv", "bwd")
    assert (row["dtype"], row["layout"]) == ("bf16", "NHWC")
    assert (row["n"], row["c"], row["k"], row["groups"]) == (9500, 3, 1280, 1)
    assert (row["input"], row["filter"], row["output"]) == ("28x14", "14x7", "2x2")
    assert (row["stride"], row["pad"], row["dilation"]) == ("14x7", "0x2:1x2", "1x1")
    assert row["miopen_key"] is None


def test_a_convolution_that_miopen_can_name_is_stored_with_that_name() -> None:
    problem = ConvProblem.create("fwd", (9500, 3, 14, 14), (1280, 3, 14, 14), stride=14, dtype="bf16")
    with PerfDb.in_memory() as db:
        db.store_find(problem, TARGET, ENVIRONMENT, [find_record()])
        assert db.read("SELECT miopen_key, pad FROM problems") == [
            ("3-14-14-14x14-1280-1-1-9500-0x0-14x14-1x1-0-NCHW-BF16-F", "0x0")
        ]


def test_a_transposed_convolution_is_stored_as_its_canonical_problem() -> None:
    problem = ConvProblem.create("fwd", (2, 3, 4, 4), (3, 5, 2, 2), mode="transpose", x_strides=(64, 16, 4, 1))
    with PerfDb.in_memory() as db:
        db.store_find(problem, TARGET, ENVIRONMENT, [find_record()])
        assert len(db.find_records(problem.canonical().key(), TARGET.key)) == 1
        assert db.read("SELECT direction, layout FROM problems") == [("bwd", "NCHW_NCHW_*")]


def test_other_operations_are_stored_with_what_they_have() -> None:
    row = _columns(FakeProblem())
    assert (row["operation"], row["dtype"], row["layout"]) == ("fake", "fp32_fp16", "NCHW")
    assert row["filter"] is None


def test_extents_beyond_64_bits_do_not_keep_a_problem_out() -> None:
    problem = ConvProblem.create("fwd", (2**70, 3, 4, 4), (5, 3, 2, 2))
    with PerfDb.in_memory() as db:
        db.store_find(problem, TARGET, ENVIRONMENT, [find_record()])
        assert len(_records(db, problem.key())) == 1
        assert db.read("SELECT n, c FROM problems") == [(None, 3)]


def test_info_tells_what_is_in_the_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hipfind.db"
    with PerfDb.open(path) as db:
        db.store_find(FakeProblem("a"), TARGET, ENVIRONMENT, [find_record("A"), find_record("B")])
        db.store_find(FakeProblem("b"), TARGET, NEWER_ENVIRONMENT, [find_record("A")])
        facts = db.info()
    assert facts["path"] == str(path)
    assert facts["size_bytes"] == path.stat().st_size
    assert facts["journal_mode"] == "wal"
    assert not facts["read_only"]
    rows = {"problems": 2, "targets": 1, "environments": 2, "find_records": 3, "perf_records": 0}
    assert facts["rows"] == {**rows, "reference_records": 0}
    assert facts["targets"] == [{"key": TARGET.key, "name": TARGET.name, "find_records": 3}]
    found = [(one["fingerprint"], one["facts"]["driver"], one["find_records"]) for one in facts["environments"]]
    assert found == [(NEWER_ENVIRONMENT.fingerprint, "6.3", 1), (ENVIRONMENT.fingerprint, "6.2", 2)]


@pytest.mark.parametrize("who", ["self", "another"])
def test_an_answer_is_kept_only_until_somebody_changes_the_file(tmp_path: pathlib.Path, who: str) -> None:
    path = tmp_path / "hipfind.db"
    with PerfDb.open(path) as db:
        db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record(time_ms=1.0)])
        before = db.find_records("problem", TARGET.key)
        before.clear()  # the caller's own list
        statements: list[str] = []
        db.run("test", lambda connection: connection.set_trace_callback(statements.append))
        assert [one.record.time_ms for one in db.find_records("problem", TARGET.key)] == [1.0]
        assert statements == ["PRAGMA data_version"]
        assert db.find_records("nobody's", TARGET.key) == db.find_records("nobody's", TARGET.key) == []
        with PerfDb.open(path) as other:
            writer = db if who == "self" else other
            writer.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record(time_ms=2.0)])
        assert [one.record.time_ms for one in db.find_records("problem", TARGET.key)] == [2.0]
