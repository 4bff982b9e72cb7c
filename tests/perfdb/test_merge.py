"""Merging perf DB files: nothing is lost, conflicts are told, and doing it twice changes nothing."""

from __future__ import annotations

import contextlib
import json
import pathlib
import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipfind.errors import PerfDbError
from hipfind.perfdb import store as store_module
from hipfind.perfdb.importing import import_file
from hipfind.perfdb.merge import merge, newest_first
from hipfind.perfdb.references import references
from hipfind.perfdb.store import PerfDb
from hipfind.problem import ConvProblem
from tests.helpers.perfdb import (
    ENVIRONMENT,
    NEWER_ENVIRONMENT,
    OTHER_TARGET,
    TARGET,
    FakeProblem,
    find_record,
    perf_record,
)

KEY = "3-14-14-14x14-1280-1-1-9500-0x0-14x14-1x1-0-NCHW-BF16-F"


@pytest.fixture
def dbs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[PerfDb, PerfDb]]:
    """Two files: "same" is in both, "differs" has another time, later, in the second; each has one of its own."""
    now = iter(range(1000, 2000))
    monkeypatch.setattr(store_module.time, "time", lambda: float(next(now)))
    with PerfDb.open(tmp_path / "a.db") as first, PerfDb.open(tmp_path / "b.db") as second:
        for db, own, time_ms in ((first, "first", 1.0), (second, "second", 2.0)):
            db.store_find(
                FakeProblem("differs"), TARGET, ENVIRONMENT, [find_record("A", time_ms), find_record("B", 3.0)]
            )
            db.store_find(FakeProblem(own), OTHER_TARGET, ENVIRONMENT, [find_record()])
            db.store_perf(FakeProblem(own), TARGET, NEWER_ENVIRONMENT, [perf_record()])
        yield first, second


def times(db: PerfDb, key: str = "differs") -> dict[str, float | None]:
    return {one.record.solver_id: one.record.time_ms for one in db.find_records(key, TARGET.key)}


def test_the_later_record_stays_and_the_earlier_one_is_set_aside(dbs: tuple[PerfDb, PerfDb]) -> None:
    first, second = dbs
    report = merge(first, second)
    assert report.seen == {"find": 3, "perf": 1, "reference": 0}
    assert report.added == {"find": 1, "perf": 1, "reference": 0}
    assert {(one.problem, one.solver_id, one.had_ms, one.got_ms, one.kept_new) for one in report.conflicts} == {
        ("differs", "A", 1.0, 2.0, True), ("differs", "B", 3.0, 3.0, True)
    }  # fmt: skip
    assert times(first) == {"A": 2.0, "B": 3.0}
    assert (
        len(first.find_records("second", OTHER_TARGET.key)) == len(first.find_records("first", OTHER_TARGET.key)) == 1
    )
    assert len(first.perf_records("second", TARGET.key)) == 1
    kept = [json.loads(line) for (line,) in first.read("SELECT content FROM superseded ORDER BY content")]
    assert [(one["record"]["solver_id"], one["record"]["time_ms"]) for one in kept] == [("A", 1.0), ("B", 3.0)]


def test_an_earlier_record_does_not_replace_a_later_one_and_is_kept_too(dbs: tuple[PerfDb, PerfDb]) -> None:
    first, second = dbs
    report = merge(second, first)
    assert report.replaced == 0
    assert times(second) == {"A": 2.0, "B": 3.0}
    kept = [json.loads(line)["record"]["time_ms"] for (line,) in second.read("SELECT content FROM superseded")]
    assert sorted(kept) == [1.0, 3.0]


def test_merging_again_changes_nothing(dbs: tuple[PerfDb, PerfDb]) -> None:
    first, second = dbs
    merge(first, second)
    before = "\n".join(_dump(first))
    again = merge(first, second)
    assert (again.added, again.replaced, again.conflicts) == ({"find": 0, "perf": 0, "reference": 0}, 0, ())
    assert "\n".join(_dump(first)) == before


def _dump(db: PerfDb) -> list[str]:
    return db.run("reading", lambda connection: list(connection.iterdump()))


def test_the_order_of_merging_does_not_matter(dbs: tuple[PerfDb, PerfDb], tmp_path: pathlib.Path) -> None:
    answers = []
    for name, order in (("c", dbs), ("d", dbs[::-1])):
        with PerfDb.open(tmp_path / f"{name}.db") as db:
            for one in order:
                merge(db, one)
            answers.append((times(db), db.read("SELECT content FROM superseded ORDER BY content")))
    assert answers[0] == answers[1]
    assert answers[0][0] == {"A": 2.0, "B": 3.0}


_FOUND = st.lists(
    st.tuples(
        st.sampled_from("pq"), st.sampled_from("AB"), st.none() | st.floats(0, 9), st.sampled_from([1000.0, 2000.0])
    ),
    max_size=6,
)


@settings(max_examples=30)
@given(st.lists(_FOUND, min_size=2, max_size=3))
def test_any_files_in_any_order_end_in_the_same_and_lose_nothing(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[tuple[str, str, float | None, float]]]
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    with contextlib.ExitStack() as stack:
        sources = [stack.enter_context(PerfDb.open(folder / f"{number}.db")) for number in range(len(files))]
        for db, found in zip(sources, files, strict=True):
            for key, solver, time_ms, now in found:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(store_module.time, "time", lambda now=now: now)
                    db.store_find(FakeProblem(key), TARGET, ENVIRONMENT, [find_record(solver, time_ms)])
        answers = []
        for name, order in (("a", sources), ("b", sources[::-1])):
            into = stack.enter_context(PerfDb.open(folder / f"{name}.db"))
            for one in order:
                merge(into, one)
            answers.append(_all_records(into))
        assert answers[0] == answers[1]
        kept, superseded = answers[0]
        assert kept | superseded == set().union(*(_all_records(one)[0] for one in sources))


def _all_records(db: PerfDb) -> tuple[set[tuple[object, ...]], set[tuple[object, ...]]]:
    sql = "SELECT p.key, r.solver_id, r.time_ms, r.created_at FROM find_records r JOIN problems p ON p.id = r.problem"
    aside = [json.loads(line) for (line,) in db.read("SELECT content FROM superseded")]
    return set(db.read(sql)), {
        (one["problem"]["key"], one["record"]["solver_id"], one["record"]["time_ms"], one["created_at"])
        for one in aside
    }


@pytest.mark.parametrize("into", [0, 1])
def test_a_mark_goes_with_its_record_and_stays_where_only_one_file_has_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, into: int
) -> None:
    monkeypatch.setattr(store_module.time, "time", lambda: 1000.0)
    with PerfDb.open(tmp_path / "a.db") as marked, PerfDb.open(tmp_path / "b.db") as plain:
        for db in (marked, plain):
            db.store_perf(FakeProblem("both"), TARGET, ENVIRONMENT, [perf_record()])
        marked.store_perf(FakeProblem("one"), TARGET, ENVIRONMENT, [perf_record(refused="odd tile")])
        marked.refuse_perf(marked.perf_records("both", TARGET.key)[0], "odd tile")
        dbs = (marked, plain)
        report = merge(dbs[into], dbs[1 - into])
        for key in ("both", "one"):
            (found,) = dbs[into].perf_records(key, TARGET.key)
            assert found.record == perf_record(refused="odd tile")
        assert [one.kept_new for one in report.conflicts] == [into == 1]
        assert merge(dbs[into], dbs[1 - into]).added["perf"] == 0


def test_the_file_with_the_newest_environment_is_first(dbs: tuple[PerfDb, PerfDb], tmp_path: pathlib.Path) -> None:
    first, second = dbs
    with PerfDb.open(tmp_path / "empty.db") as empty:
        assert newest_first([empty, first, second]) == [second, first, empty]


def test_a_file_is_not_merged_into_itself(dbs: tuple[PerfDb, PerfDb], tmp_path: pathlib.Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    with PerfDb.open(tmp_path / "link.db", read_only=True) as same, pytest.raises(PerfDbError, match="into itself"):
        merge(dbs[0], same)


def test_a_merge_that_fails_leaves_no_record(dbs: tuple[PerfDb, PerfDb], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = dbs
    before = times(first)
    second.run("test", lambda connection: connection.execute("PRAGMA ignore_check_constraints = ON"))
    second.write("test", lambda connection: connection.execute("UPDATE find_records SET spread_ms = -1"))
    with pytest.raises(PerfDbError):
        merge(first, second)
    assert times(first) == before
    assert first.read("SELECT count(*) FROM superseded") == [(0,)]
    assert first.find_records("second", OTHER_TARGET.key) == []


def test_references_that_differ_are_kept_from_the_later_import(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "gfx942130.HIP.fdb.txt"
    with PerfDb.open(tmp_path / "a.db") as db:
        for time_ms in ("2", "1"):
            file.write_text(f"{KEY}=GemmFwdRest:{time_ms},0,miopenConvolutionFwdAlgoGEMM\n")
            report = import_file(db, file)
        (conflict,) = report.merged.conflicts
        assert (conflict.kind, conflict.problem, conflict.had_ms, conflict.got_ms) == ("reference", KEY, 2.0, 1.0)
        (found,) = references(db, ConvProblem.from_miopen_key(KEY).key())
        assert found.times[0].time_ms == 1.0
        ((line,),) = db.read("SELECT content FROM superseded")
    assert json.loads(line)["value"].startswith("GemmFwdRest:2,")


def test_others_may_write_right_after_a_merge(dbs: tuple[PerfDb, PerfDb], tmp_path: pathlib.Path) -> None:
    first, second = dbs
    merge(first, second)
    with PerfDb.open(tmp_path / "a.db", wait_s=0.1) as other:
        other.store_find(FakeProblem("third"), TARGET, ENVIRONMENT, [find_record()])
    names = first.run("test", lambda connection: connection.execute("PRAGMA database_list").fetchall())
    assert "source" not in {name for _, name, _ in names}
    assert sqlite3.sqlite_version_info >= (3, 31)
