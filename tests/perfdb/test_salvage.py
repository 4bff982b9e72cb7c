"""Records of a damaged file are recovered row by row: all that damage did not reach, and nothing that it made up."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import sqlite3
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hipfind.perfdb.guard import GuardedDb
from hipfind.perfdb.migrations import MIGRATIONS
from hipfind.perfdb.records import FindRecord
from hipfind.perfdb.salvage import OWNERS, RECORDS, salvage
from hipfind.perfdb.store import Finds, PerfDb
from tests.helpers.perfdb import ENVIRONMENT, OLD, TARGET, FakeProblem, build_version, find_record, perf_record

PAGE = 4096
COUNT = 400


def _records(number: int) -> list[FindRecord]:
    return [find_record(f"Solver{i}", 1.0 + number + i, detail=f"detail {number} {i}") for i in range(3)]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of several pages a table."""
    path = tmp_path_factory.mktemp("sound") / "x.db"
    with PerfDb.open(path) as db:
        db.store_finds([Finds(FakeProblem(f"p{n}"), TARGET, ENVIRONMENT, _records(n)) for n in range(COUNT)])
        for n in range(COUNT):
            if n % 40 == 0:
                db.store_perf(FakeProblem(f"p{n}"), TARGET, ENVIRONMENT, [perf_record(time_ms=float(n))])
    return path.read_bytes()


def _leaf_pages(data: bytes, table: str, directory: pathlib.Path) -> list[int]:
    """Numbers of the pages of a table's tree but for its root."""
    path = directory / "look.db"
    path.write_bytes(data)
    connection = sqlite3.connect(path)
    ((root,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,))
    connection.close()
    start = PAGE * (root - 1)
    cells = int.from_bytes(data[start + 3 : start + 5], "big")
    assert data[start] in (2, 5), "an inner page"
    places = [int.from_bytes(data[start + 12 + 2 * n : start + 14 + 2 * n], "big") for n in range(cells)]
    children = [int.from_bytes(data[start + place : start + place + 4], "big") for place in places]
    return [*children, int.from_bytes(data[start + 8 : start + 12], "big")]


def _spoil(data: bytes, pages: list[int]) -> bytes:
    changed = bytearray(data)
    for page in pages:
        changed[PAGE * (page - 1) : PAGE * page] = b"\x5a" * PAGE
    return bytes(changed)


def _salvaged(directory: pathlib.Path, data: bytes) -> tuple[int, dict[str, list[FindRecord]]]:
    """Number of recovered records, and the find records by problem; all of them must be what was stored."""
    damaged, new = directory / "x.db.corrupt", directory / "new.db"
    damaged.write_bytes(data)
    new.unlink(missing_ok=True)
    count = salvage(damaged, lambda: PerfDb.open(new))
    assert damaged.read_bytes() == data
    assert not [one for one in os.listdir(directory) if "salvage" in one]
    found: dict[str, list[FindRecord]] = {}
    if new.exists():
        with PerfDb.open(new) as db:
            for n in range(COUNT):
                records = [one.record for one in db.find_records(f"p{n}", TARGET.key)]
                assert all(one in _records(n) for one in records)
                found[f"p{n}"] = records
            assert db.read("PRAGMA integrity_check") == [("ok",)]
            assert db.read("PRAGMA foreign_key_check") == []
    return count, found


def test_every_table_is_covered(tmp_path: pathlib.Path) -> None:
    with PerfDb.open(tmp_path / "x.db") as db:
        tables = {name for (name,) in db.read("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert tables == {*OWNERS, *RECORDS, "migrations"}
        for table, owners in RECORDS.items():
            links = {row[3]: row[2] for row in db.read(f"PRAGMA foreign_key_list({table})")}
            assert links == owners


_STARTS = {
    "sound": lambda data: data,
    "header": lambda data: b"junk" * 25 + data[100:],
    "first page": lambda data: b"\x5a" * PAGE + data[PAGE:],
    "schema": lambda data: data[:100] + b"\xff" * (PAGE - 100) + data[PAGE:],
    "an index": lambda data: data,
}


@pytest.mark.parametrize("name", _STARTS)
def test_a_damaged_start_costs_no_record(tmp_path: pathlib.Path, sound: bytes, name: str) -> None:
    data = _STARTS[name](sound)
    if name == "an index":
        data = _spoil(data, _leaf_pages(data, "sqlite_autoindex_problems_1", tmp_path))
    count, found = _salvaged(tmp_path, data)
    assert all(len(records) == 3 for records in found.values()) and len(found) == COUNT
    assert count == 3 * COUNT + COUNT // 40


@pytest.mark.parametrize("table", ["problems", "find_records"])
def test_damaged_pages_cost_only_their_own_records(tmp_path: pathlib.Path, sound: bytes, table: str) -> None:
    pages = _leaf_pages(sound, table, tmp_path)
    for spoilt in ([pages[0]], [pages[-1]], [pages[1], pages[3]]):
        _, found = _salvaged(tmp_path, _spoil(sound, spoilt))
        lost = sum(3 - len(records) for records in found.values())
        assert 0 < lost <= 3 * COUNT * len(spoilt) * 2 / len(pages)


def test_a_truncated_file_gives_what_is_left(tmp_path: pathlib.Path, sound: bytes) -> None:
    _, found = _salvaged(tmp_path, sound[: len(sound) * 3 // 4])
    assert sum(len(records) for records in found.values()) > COUNT


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), runs=st.integers(1, 30), length=st.integers(1, 600))
def test_no_damage_makes_a_record_up(tmp_path: pathlib.Path, sound: bytes, seed: int, runs: int, length: int) -> None:
    """Whole pages of junk in any place; what is recovered was stored, and the new file is sound."""
    chance = random.Random(seed)
    data = bytearray(sound)
    for _ in range(runs):
        place = chance.randrange(len(data))
        start = place - place % PAGE
        data[start : start + PAGE] = chance.randbytes(length) + bytes(PAGE - length)
    _salvaged(tmp_path, bytes(data))


def test_what_was_stored_meanwhile_stays(tmp_path: pathlib.Path, sound: bytes) -> None:
    damaged, new = tmp_path / "x.db.corrupt", tmp_path / "new.db"
    damaged.write_bytes(sound)
    newer = find_record("Solver0", 0.125)
    with PerfDb.open(new) as db:
        db.store_find(FakeProblem("other"), TARGET, ENVIRONMENT, [newer])
        db.store_find(FakeProblem("p3"), TARGET, ENVIRONMENT, [newer])
    salvage(damaged, lambda: PerfDb.open(new))
    with PerfDb.open(new) as db:
        assert [one.record for one in db.find_records("p3", TARGET.key)] == [newer, *_records(3)[1:]]
        assert [one.record for one in db.find_records("p0", TARGET.key)] == _records(0)


@pytest.mark.parametrize(
    ("version", "spoilt"),
    [
        (version, spoilt)
        for version in range(1, len(MIGRATIONS) + 1)
        for spoilt in ("nothing", "header", "first page")
        if version > 1 or spoilt != "first page"  # a first schema's few pages do not fit a newer first page
    ],
)
def test_a_damaged_file_of_an_earlier_schema_keeps_its_records(
    tmp_path: pathlib.Path, version: int, spoilt: str
) -> None:
    path = tmp_path / "x.db.corrupt"
    build_version(path, version)
    kept = (pathlib.Path(__file__).parent / "schemas" / f"{version}.sql").read_text().splitlines()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for line in kept:
            if line.startswith("INSERT INTO") and "migrations" not in line:
                connection.execute(line)
    length = {"nothing": 0, "header": 100, "first page": PAGE}[spoilt]
    path.write_bytes(b"\x5a" * length + path.read_bytes()[length:])
    salvage(path, lambda: PerfDb.open(tmp_path / "new.db"))
    with PerfDb.open(tmp_path / "new.db") as db:
        assert [one.record for one in db.find_records("old", TARGET.key)] == [OLD]
        assert [one.record for one in db.perf_records("old", TARGET.key)] == [perf_record()]


def test_a_file_without_anything_readable_makes_no_new_one(tmp_path: pathlib.Path) -> None:
    damaged = tmp_path / "x.db.corrupt"
    damaged.write_bytes(b"junk" * 5000)
    assert salvage(damaged, lambda: pytest.fail("nothing to store")) == 0


def test_the_guard_finds_the_records_again_and_says_so(tmp_path: pathlib.Path, sound: bytes) -> None:
    path = tmp_path / "hipfind.db"
    path.write_bytes(_STARTS["header"](sound))
    with GuardedDb(path) as db, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = [one.record for one in db.lookup("p7", TARGET.key, ENVIRONMENT).trusted]
    assert found == _records(7)
    (warning,) = seen
    assert f"with the {3 * COUNT + COUNT // 40} record(s) still readable" in str(warning.message)
