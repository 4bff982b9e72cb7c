"""Questions and upkeep: search, SQL that cannot write, diff, stats, prune, backup, compact."""

from __future__ import annotations

import pathlib
import sqlite3
import threading
from collections.abc import Iterator

import pytest

from hipfind.errors import PerfDbError
from hipfind.perfdb import store as store_module
from hipfind.perfdb.diff import differences
from hipfind.perfdb.importing import import_file
from hipfind.perfdb.queries import Filter
from hipfind.perfdb.search import SHAPE_FIELDS, Wanted, search
from hipfind.perfdb.sql import run_sql
from hipfind.perfdb.stats import stats
from hipfind.perfdb.store import Finds, PerfDb
from hipfind.perfdb.upkeep import Unwanted, backup, compact, prune
from hipfind.problem.conv import ConvProblem
from tests.helpers.perfdb import (
    ENVIRONMENT,
    NEWER_ENVIRONMENT,
    OTHER_TARGET,
    TARGET,
    FakeProblem,
    find_record,
    perf_record,
)

PATCHES = ConvProblem.create("bwd", (64, 3, 28, 28), (1280, 3, 14, 14), stride=14, dtype="bf16")
SQUARE = ConvProblem.create("fwd", (4, 16, 8, 8), (64, 8, 3, 3), groups=2, pad=1)
REFERENCE = "3-14-14-14x14-1280-1-1-9500-0x0-14x14-1x1-0-NCHW-BF16-F=GemmFwdRest:1.5,0,miopenConvolutionFwdAlgoGEMM\n"


@pytest.fixture
def db(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PerfDb]:
    """PATCHES at times 1000 (older environment) and 2000, SQUARE at 3000 on another device, a reference."""
    with PerfDb.open(tmp_path / "a.db") as db:
        naive = find_record("ConvDirectNaiveConvBwd", 8.0, outcome="lost", workspace_bytes=0)
        broken = find_record("Broken", None, outcome="compile_failed")
        for now, problem, target, environment, records in (
            (1000.0, PATCHES, TARGET, ENVIRONMENT, [find_record("Old", 0.5), naive]),
            (2000.0, PATCHES, TARGET, NEWER_ENVIRONMENT, [find_record("GemmBwdRest", 1.0),
             find_record("Second", 2.0, outcome="lost"), naive, broken]),
            (3000.0, SQUARE, OTHER_TARGET, NEWER_ENVIRONMENT, [find_record("ConvDirectNaiveConvFwd", 3.0)]),
        ):  # fmt: skip
            monkeypatch.setattr(store_module.time, "time", lambda now=now: now)
            db.store_find(problem, target, environment, records)
            db.store_perf(problem, target, environment, [perf_record("GemmBwdRest")])
        file = tmp_path / "gfx942130.HIP.fdb.txt"
        file.write_text(REFERENCE)
        import_file(db, file)
        yield db


@pytest.mark.parametrize(
    ("wanted", "solvers"),
    [
        (Wanted(), ["Old", "GemmBwdRest", "Second", "ConvDirectNaiveConvBwd", "ConvDirectNaiveConvBwd", "Broken",
                    "ConvDirectNaiveConvFwd"]),
        (Wanted(solver="Second"), ["Second"]),
        (Wanted(outcome="won", environment=NEWER_ENVIRONMENT.fingerprint), ["GemmBwdRest", "ConvDirectNaiveConvFwd"]),
        (Wanted(device="nvidia"), ["ConvDirectNaiveConvFwd"]),
        (Wanted({"filter": "14x14", "k": 1280}, least_ms=1.0, most_ms=2.0), ["GemmBwdRest", "Second"]),
        (Wanted({"groups": 2, "direction": "fwd", "input": "8x8"}), ["ConvDirectNaiveConvFwd"]),
        (Wanted(since=1500.0, until=2500.0, outcome="won"), ["GemmBwdRest"]),
        (Wanted({"n": 9500}), []),
        (Wanted({"n": 9500}, reference=True), ["GemmFwdRest"]),
        (Wanted(reference=True, most_ms=1.0), []),
        (Wanted(solver="x' OR '1'='1"), []),
    ],
)  # fmt: skip
def test_search(db: PerfDb, wanted: Wanted, solvers: list[str]) -> None:
    assert sorted(one["solver"] for one in search(db, wanted)) == sorted(solvers)
    assert [one["solver"] for one in search(db, wanted, 1)] == [one["solver"] for one in search(db, wanted)][:1]


def test_search_takes_every_shape_field(db: PerfDb) -> None:
    (row,) = db.read(f"SELECT {', '.join(SHAPE_FIELDS)} FROM problems WHERE key = ?", (SQUARE.key(),))
    assert len(search(db, Wanted(dict(zip(SHAPE_FIELDS, row, strict=True))))) == 1


WRITING = (
    "DELETE FROM find_records",
    "UPDATE problems SET key = 'x'",
    "INSERT INTO migrations VALUES (9, 'x', 0)",
    "DROP TABLE problems",
    "CREATE TEMP TABLE t (a)",
    "PRAGMA query_only = OFF",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA user_version = 7",
    "ATTACH 'other.db' AS other",
    "VACUUM INTO 'copy.db'",
    "VACUUM",
    "BEGIN IMMEDIATE",
    "SAVEPOINT a",
    "WITH gone AS (SELECT 1) DELETE FROM problems",
    "SELECT load_extension('evil')",
    "REINDEX",
    "ANALYZE",
    "SELECT 1; DELETE FROM find_records",
    "no SQL",
    "",
    "SELECT nothing FROM nowhere",
)


@pytest.mark.parametrize("statement", WRITING)
@pytest.mark.parametrize("read_only", [True, False])
def test_sql_that_does_more_than_read_is_refused_by_sqlite(
    db: PerfDb, statement: str, read_only: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    with PerfDb.open(db.path, read_only=read_only) as opened:
        if statement:
            with pytest.raises(PerfDbError, match="this SQL cannot be run"):
                run_sql(opened, statement)
        else:
            assert run_sql(opened, statement) == ([], [])
        assert len(search(opened, Wanted())) == 7
    assert {path.name for path in tmp_path.iterdir()} == before
    db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record()])


def test_sql_that_reads_is_run(db: PerfDb) -> None:
    sql = "SELECT device, count(*) AS wins FROM results WHERE outcome = 'won' GROUP BY device ORDER BY device"
    assert run_sql(db, sql) == (["device", "wins"], [("amd:gfx942:304", 2), ("nvidia:sm_90:132", 1)])
    counting = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 9) SELECT i FROM c"
    assert [row for (row,) in run_sql(db, counting, limit=3)[1]] == [1, 2, 3]
    assert ("problems",) in run_sql(db, "SELECT name FROM sqlite_master")[1]


def test_diff(db: PerfDb, tmp_path: pathlib.Path) -> None:
    with PerfDb.open(tmp_path / "b.db") as other:
        other.store_find(PATCHES, TARGET, ENVIRONMENT, [find_record("GemmBwdRest", 1.5)])
        other.store_find(FakeProblem("only there"), TARGET, ENVIRONMENT, [find_record("New", 1.0)])
        found = {one.problem_key: one for one in differences(db, other)}
        back = {one.problem_key: one for one in differences(other, db)}
        assert [one.problem_key for one in differences(db, other, Filter(solver="New"))] == ["only there"]
    assert set(found) == {PATCHES.key(), SQUARE.key(), "only there"}
    both = found[PATCHES.key()]
    assert (both.ratio, both.changed, both.differs) == (1.5, False, True)
    assert back[PATCHES.key()].ratio == pytest.approx(1 / 1.5)
    assert found[SQUARE.key()].new is None and found["only there"].old is None
    assert found[SQUARE.key()].ratio is None and found[SQUARE.key()].differs
    assert all(not one.differs and one.ratio == 1.0 for one in differences(db, db))


def test_stats_count_the_newest_environment(db: PerfDb) -> None:
    found = stats(db)
    gemm, naive = found.solvers
    assert (gemm.solver_id, gemm.device, gemm.wins, gemm.total_ms) == ("GemmBwdRest", TARGET.key, 1, 1.0)
    assert (gemm.saved_second_ms, gemm.saved_naive_ms) == (1.0, 7.0)
    assert (gemm.second_ratio, gemm.naive_ratio) == (pytest.approx(2.0), pytest.approx(8.0))
    assert (naive.solver_id, naive.wins, naive.second_ratio, naive.naive_ratio) == (
        "ConvDirectNaiveConvFwd",
        1,
        None,
        None,
    )
    assert [(one.fingerprint, one.find_records, one.problems) for one in found.environments] == [
        (NEWER_ENVIRONMENT.fingerprint, 5, 2), (ENVIRONMENT.fingerprint, 2, 1)
    ]  # fmt: skip
    assert [(one.device, one.form, one.records) for one in found.references] == [("amd:gfx942:304", "find", 1)]
    assert [one.device for one in stats(db, "nvidia").solvers] == [OTHER_TARGET.key]


@pytest.mark.parametrize(
    ("unwanted", "rows", "left"),
    [
        (Unwanted(before=1500.0), {"find_records": 2, "perf_records": 1}, 5),
        (Unwanted(solver="Second"), {"find_records": 1, "perf_records": 0}, 6),
        (Unwanted(device="amd"), {"find_records": 6, "perf_records": 2}, 1),
        (Unwanted(environment=ENVIRONMENT.fingerprint), {"find_records": 2, "perf_records": 1}, 5),
        (Unwanted(solver="Nobody"), {"find_records": 0, "perf_records": 0}, 7),
        (Unwanted(reference=True), {"reference_records": 1}, 7),
        (Unwanted(reference=True, source="another"), {"reference_records": 0}, 7),
        (Unwanted(reference=True, device="gfx942", solver="GemmFwdRest"), {"reference_records": 1}, 7),
    ],
)
def test_prune_takes_what_a_dry_run_says(db: PerfDb, unwanted: Unwanted, rows: dict[str, int], left: int) -> None:
    assert prune(db, unwanted, dry_run=True).rows == rows
    assert len(search(db, Wanted())) == 7
    assert prune(db, unwanted, dry_run=False).rows == rows
    assert len(search(db, Wanted())) == left
    assert prune(db, unwanted, dry_run=True).total == 0
    assert db.read("PRAGMA foreign_key_check") == []
    for table in ("problems", "targets"):
        column = table[:-1]
        used = f"SELECT {column} FROM find_records UNION SELECT {column} FROM reference_records"
        unused = db.read(f"SELECT count(*) FROM {table} WHERE id NOT IN ({used})")
        assert unused == [(0,)] or sum(rows.values()) == 0


def test_a_backup_is_whole_while_others_write(db: PerfDb, tmp_path: pathlib.Path) -> None:
    stop = threading.Event()

    def write() -> None:
        with PerfDb.open(db.path) as other:
            number = 0
            while not stop.is_set():
                number += 1
                other.store_find(FakeProblem(f"p{number}"), TARGET, ENVIRONMENT, [find_record("A"), find_record("B")])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        copies = [backup(db, tmp_path / f"copy{number}.db") for number in range(3)] + [backup(db), backup(db)]
    finally:
        stop.set()
        thread.join()
    assert len(set(copies)) == 5
    assert copies[3].name.startswith("a.db.backup-2")
    for copy in copies:
        with PerfDb.open(copy, read_only=True) as opened:
            assert len(search(opened, Wanted(device=OTHER_TARGET.key))) == 1
            assert opened.read(
                "SELECT count(*) % 2 FROM find_records r JOIN problems p ON p.id = r.problem WHERE p.operation = 'fake'"
            ) == [(0,)]
        assert copy.stat().st_mode & 0o077 == 0
    assert not [path for path in tmp_path.iterdir() if ".part-" in path.name]


def test_a_backup_overwrites_nothing(db: PerfDb, tmp_path: pathlib.Path) -> None:
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("taken", "dangling"):
        with pytest.raises(PerfDbError, match="never overwrites"):
            backup(db, tmp_path / name)
    with pytest.raises(PerfDbError, match="missing"):
        backup(db, tmp_path / "missing" / "copy.db")
    assert (tmp_path / "taken").read_text() == "mine"


def test_compact_gives_room_back_and_keeps_all(db: PerfDb) -> None:
    db.store_finds(
        [Finds(FakeProblem(f"p{number}" * 50), TARGET, ENVIRONMENT, [find_record()]) for number in range(500)]
    )
    prune(db, Unwanted(environment=ENVIRONMENT.fingerprint), dry_run=False)
    before, after = compact(db)
    assert after < before / 2
    assert len(search(db, Wanted())) == 5
    assert sqlite3.connect(db.path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_batch_is_stored_whole_or_not_at_all(db: PerfDb) -> None:
    batch = [Finds(FakeProblem("x"), TARGET, ENVIRONMENT, [find_record()]),
             Finds(FakeProblem("y"), TARGET, ENVIRONMENT, [find_record(samples=-1)])]  # fmt: skip
    with pytest.raises(PerfDbError, match="samples"):
        db.store_finds(batch)
    assert db.find_records("x", TARGET.key) == []
    db.store_finds(batch[:1] * 2)
    assert len(db.find_records("x", TARGET.key)) == 1
