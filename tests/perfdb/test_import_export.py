"""Import and export: MIOpen's files byte for byte, hipfind's own lines, and files that are damaged in any way."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import json
import lzma
import pathlib
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipfind.errors import PerfDbError
from hipfind.perfdb import exporting, importing, key_rows
from hipfind.perfdb.importing import ImportReport, import_file
from hipfind.perfdb.miopen_files import device_of
from hipfind.perfdb.miopen_text import ReferenceTime, fastest, format_value, parse_value, split_line
from hipfind.perfdb.references import nearest, references
from hipfind.perfdb.store import PerfDb
from hipfind.problem import ConvProblem
from hipfind.problem.miopen_perf_key import CONFIG_COLUMNS, encode_miopen_perf_key
from tests.helpers.perfdb import ENVIRONMENT, NEWER_ENVIRONMENT, TARGET, FakeProblem, find_record, perf_record
from tests.helpers.shared import needs_shared, shared_dir

KEY = "3-14-14-14x14-1280-1-1-9500-0x0-14x14-1x1-0-NCHW-BF16-F"
CONTRADICTION = "3-8-8-3x3-6-9-6-1-0x0-1x1-1x1-0-NCHW-FP32-F"
FP8 = "3-8-8-3x3-6-6-6-1-0x0-1x1-1x1-0-NCHW-FP8-F"
NAIVE = "ConvDirectNaiveConvFwd:5.0,0,miopenConvolutionFwdAlgoDirect"
VALUE = f"GemmFwdRest:1.86165,301056,miopenConvolutionFwdAlgoGEMM;{NAIVE}"
OLDER = "miopenConvolutionFwdAlgoGEMM:GemmFwdRest,3.02316,72,miopenConvolutionFwdAlgoGEMM,not used"
TEXT = "".join(f"{key}={value}\n" for key, value in sorted([(KEY, VALUE), (CONTRADICTION, OLDER), (FP8, VALUE)]))
NAME = "gfx942130.HIP.fdb.txt"
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data, ".xz": lzma.compress, ".bz2": bz2.compress, ".gz": gzip.compress
}  # fmt: skip


def write(folder: pathlib.Path, data: bytes | str, name: str = NAME) -> pathlib.Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def exported(db: PerfDb, export: Callable[..., int], *arguments: Any) -> str:
    out = io.StringIO()
    count = export(db, out, *arguments)
    assert count == len(out.getvalue().splitlines()) - (export is exporting.export_csv and count > 0)
    return out.getvalue()


def rows(db: PerfDb) -> list[Any]:
    tables = ("problems", "targets", "environments", "find_records", "perf_records", "reference_records", "superseded")
    return [db.read(f"SELECT count(*) FROM {table}")[0][0] for table in tables]


@pytest.mark.parametrize("packing", PACKERS)
def test_miopens_text_comes_back_byte_for_byte(tmp_path: pathlib.Path, packing: str) -> None:
    path = write(tmp_path, PACKERS[packing](TEXT.encode()), NAME + packing)
    with PerfDb.open(tmp_path / "a.db") as db:
        report = import_file(db, path)
        assert (report.kind, report.device, report.records) == ("find-db", "amd:gfx942:304", 3)
        assert sum(report.without_problem.values()) == 2
        assert exported(db, exporting.export_references) == TEXT
        assert import_file(db, path).merged.same["reference"] == 3
        assert rows(db) == [1, 1, 0, 0, 0, 3, 0]


def test_a_mark_is_exported_and_imported_and_older_lines_have_none(tmp_path: pathlib.Path) -> None:
    with PerfDb.open(tmp_path / "a.db") as db, PerfDb.open(tmp_path / "b.db") as new:
        db.store_perf(FakeProblem(), TARGET, ENVIRONMENT, [perf_record("A", refused="odd tile"), perf_record("B")])
        text = exported(db, exporting.export_lines, ("perf",))
        import_file(new, write(tmp_path, text, "a.jsonl"))
        assert {one.record for one in new.perf_records("problem", TARGET.key)} == {
            perf_record("A", refused="odd tile"), perf_record("B")
        }  # fmt: skip
        assert exported(new, exporting.export_lines, ("perf",)) == text
    older = text.replace(',"refused":null', "").replace(',"refused":"odd tile"', "")
    assert "refused" not in older
    with PerfDb.open(tmp_path / "c.db") as last:
        import_file(last, write(tmp_path, older, "b.jsonl"))
        assert {one.record.refused for one in last.perf_records("problem", TARGET.key)} == {None}


def test_a_reference_is_found_by_problem_and_keeps_miopens_key(tmp_path: pathlib.Path) -> None:
    problem = ConvProblem.from_miopen_key(KEY)
    with PerfDb.open(tmp_path / "a.db") as db:
        import_file(db, write(tmp_path, TEXT))
        (found,) = references(db, problem.key())
        assert db.find_records(problem.key(), found.target_key) == []
        assert references(db, "another") == references(db, "\udcff") == []
    assert (found.target_key, found.miopen_key, found.source) == ("amd:gfx942:304", KEY, NAME)
    assert found.times[0] == ReferenceTime("GemmFwdRest", 1.86165, 301056, "miopenConvolutionFwdAlgoGEMM")
    assert fastest(found.times) == found.times[0]


def test_the_nearest_device_is_of_the_same_architecture(tmp_path: pathlib.Path) -> None:
    with PerfDb.open(tmp_path / "a.db") as db:
        for name in ("gfx90878", "gfx90a68", "gfx90a6e"):
            import_file(db, write(tmp_path, TEXT, f"{name}.HIP.fdb.txt"))
        found = references(db, ConvProblem.from_miopen_key(KEY).key())
    assert [one.target_key for one in nearest(found, "gfx90a", 108)] == ["amd:gfx90a:110"]
    assert [one.target_key for one in nearest(found, "gfx90a", 107)] == ["amd:gfx90a:104"]
    assert nearest(found, "gfx942", 304) == []


@pytest.mark.parametrize(
    ("name", "device"),
    [("gfx90a68.HIP.fdb.txt.xz", "amd:gfx90a:104"), ("gfx1030_36.HIP.fdb.txt", "amd:gfx1030:36"),
     ("gfx906_60.db", "amd:gfx906:60"), ("gfx90878.db", "amd:gfx908:120"), ("gfx90a6e.db", "amd:gfx90a:110")],
)  # fmt: skip
def test_the_device_is_in_the_files_name(name: str, device: str) -> None:
    assert device_of(f"/somewhere/{name}") == device
    assert device_of(name, "amd:gfx950:256") == "amd:gfx950:256"


@needs_shared
@pytest.mark.parametrize(("name", "count"), [("gfx1030_36", 400), ("gfx90a68", 400), ("gfx942130", 1300)])
def test_real_files_come_back_byte_for_byte(
    tmp_path: pathlib.Path, name: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "_CHUNK", 500)  # the longest one goes to the workers
    with lzma.open(shared_dir() / "data" / "miopen" / f"{name}.HIP.fdb.txt.xz", "rt") as lines:
        text = "".join(itertools.islice(lines, count))
    with PerfDb.open(tmp_path / "a.db") as db:
        steps: list[tuple[int, int]] = []
        import_file(db, write(tmp_path, text, f"{name}.HIP.fdb.txt"), "", lambda *step: steps.append(step))
        assert exported(db, exporting.export_references) == text
        keys = [line.partition("=")[0] for line in text.splitlines()]
        stored = db.read("SELECT p.miopen_key FROM reference_records r JOIN problems p ON p.id = r.problem")
        assert {key for (key,) in stored} <= set(keys)
        assert len(stored) > 0.9 * count
    assert steps[-1][0] == steps[-1][1]


def test_workers_answer_as_one_process_does_even_when_they_die(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = [[KEY, CONTRADICTION], [FP8], [KEY]]
    expected = [key_rows.rows_of(chunk) for chunk in chunks]
    with key_rows.Workers() as workers:
        assert list(workers.answers(iter(chunks))) == expected
    monkeypatch.setattr(key_rows.sys, "executable", "/nowhere/python")
    with key_rows.Workers() as workers:
        assert list(workers.answers(iter(chunks))) == expected


def _perf_db(path: pathlib.Path, problem: ConvProblem, params: list[tuple[str, Any]]) -> pathlib.Path:
    values = encode_miopen_perf_key(problem).split("x")
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE config (id INTEGER PRIMARY KEY, {', '.join(CONFIG_COLUMNS)})")
        connection.execute("CREATE TABLE perf_db (id INTEGER PRIMARY KEY, solver TEXT, config INT, params)")
        connection.execute(f"INSERT INTO config VALUES (7, {', '.join('?' * len(values))})", values)
        connection.executemany("INSERT INTO perf_db (solver, config, params) VALUES (?, 7, ?)", params)
    connection.close()
    return path


def test_params_of_a_perf_db_are_found_by_problem(tmp_path: pathlib.Path) -> None:
    problem = ConvProblem.create("bwd", (16, 512, 13, 13), (1000, 512, 1, 1), dtype="fp16")
    params = {"ConvBinWinogradRxSf3x2": "215", "ConvOclDirectFwd": "8,8,16,32,2,4,8,1,1"}
    path = _perf_db(tmp_path / "gfx942130.db", problem, list(params.items()))
    with PerfDb.open(tmp_path / "a.db") as db:
        report = import_file(db, write(tmp_path, lzma.compress(path.read_bytes()), "gfx942130.db.xz"))
        assert (report.kind, report.records) == ("perf-db", 1)
        (found,) = references(db, problem.key(), encode_miopen_perf_key(problem))
        again = exported(db, exporting.export_lines, ("reference",))
        with PerfDb.open(tmp_path / "b.db") as other:
            import_file(other, write(tmp_path, again, "b.jsonl"))
            assert exported(other, exporting.export_lines, ("reference",)) == again
    assert (found.form, found.params, found.times) == ("perf", params, ())


@needs_shared
def test_the_real_perf_db_is_found_by_problem(tmp_path: pathlib.Path) -> None:
    problem = ConvProblem.create("bwd", (16, 512, 13, 13), (1000, 512, 1, 1), dtype="fp16")
    with PerfDb.open(tmp_path / "a.db") as db:
        assert import_file(db, shared_dir() / "data" / "miopen" / "gfx942130.db.xz").records > 9000
        (found,) = references(db, "", encode_miopen_perf_key(problem))
    assert found.params["ConvBinWinogradRxSf3x2"] == "215"


SECOND = f"{KEY}=GemmFwdRest:1,0,miopenConvolutionFwdAlgoGEMM\n"
DAMAGED: dict[str, tuple[bytes | str, str, str]] = {
    "no value": (f"{SECOND}{FP8}\n", NAME, "line 2"),
    "empty value": (f"{SECOND}{FP8}=\n", NAME, "line 2"),
    "two values": (f"{SECOND}{FP8}=A:1,0,B=C:1,0,B\n", NAME, "line 2"),
    "empty line": (f"{SECOND}\n{SECOND}", NAME, "line 2"),
    "cut line": (f"{SECOND}{FP8}=GemmFwdRest:1.86165,3010", NAME, "line 2"),
    "no number": (f"{SECOND}{FP8}=GemmFwdRest:fast,0,miopenConvolutionFwdAlgoGEMM\n", NAME, "number of ms"),
    "negative time": (f"{SECOND}{FP8}=GemmFwdRest:-1,0,miopenConvolutionFwdAlgoGEMM\n", NAME, "number of ms"),
    "infinite time": (f"{SECOND}{FP8}=GemmFwdRest:1e999,0,miopenConvolutionFwdAlgoGEMM\n", NAME, "number of ms"),
    "no size": (f"{SECOND}{FP8}=GemmFwdRest:1,0.5,miopenConvolutionFwdAlgoGEMM\n", NAME, "whole number of bytes"),
    "no algorithm": (f"{SECOND}{FP8}=GemmFwdRest:1,0,\n", NAME, "no algorithm"),
    "solver twice": (f"{SECOND}{FP8}=A:1,0,B;A:2,0,B\n", NAME, "each solver once"),
    "key twice": (f"{SECOND}{SECOND}", NAME, "line 2"),
    "not UTF-8": (SECOND.encode() + b"\xff\xfe=A:1,0,B\n", NAME, "UTF-8"),
    "cut xz": (lzma.compress(TEXT.encode() * 9)[:-20], NAME + ".xz", "cut short"),
    "damaged xz": (lzma.compress(TEXT.encode())[:40] + b"junk" * 30, NAME + ".xz", "damaged"),
    "cut gz": (gzip.compress(TEXT.encode())[:-12], NAME + ".gz", "cut short"),
    "damaged bz2": (bz2.compress(TEXT.encode())[:40] + b"junk" * 30, NAME + ".bz2", "damaged"),
    "empty": (b"", NAME, "empty"),
    "another kind of text": ("name,time\nA,1\n", NAME, "legal: MIOpen's find-db text"),
    "bytes": (bytes(range(256)), NAME, "legal: MIOpen's find-db text"),
    "no device": (SECOND, "find.txt", "--device"),
    "not sqlite": (b"SQLite format 3\0" + b"junk" * 300, "gfx942130.db", "not a perf-db"),
    "not JSON": ('{"kind": "find", }\n', "a.jsonl", "line 1"),
    "other JSON": ('{"kind": "song"}\n', "a.jsonl", "line 1"),
    "half a record": ('{"kind": "find", "problem": {}}\n', "a.jsonl", "lacks"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_one_sentence_and_stores_nothing(tmp_path: pathlib.Path, case: str) -> None:
    data, name, said = DAMAGED[case]
    path = write(tmp_path, data, name)
    with PerfDb.open(tmp_path / "a.db") as db:
        with pytest.raises(PerfDbError) as caught:
            import_file(db, path)
        assert rows(db) == [0] * 7
    message = str(caught.value)
    assert said in message
    assert name.partition(".")[0] in message
    assert "\n" not in message
    assert len(message) < 500


def test_a_missing_file_and_a_wrong_device_are_named(tmp_path: pathlib.Path) -> None:
    with PerfDb.open(tmp_path / "a.db") as db:
        with pytest.raises(PerfDbError, match="missing"):
            import_file(db, tmp_path / "missing.txt")
        with pytest.raises(PerfDbError, match=r"amd:ARCH:COMPUTE_UNITS.*MI300"):
            import_file(db, write(tmp_path, SECOND), "MI300")


_WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="=:;,"), min_size=1, max_size=12)
_PRINTED_MS = st.floats(0, 1e6).map(lambda ms: float(f"{ms:.6g}"))
_TIMES = st.lists(
    st.builds(ReferenceTime, _WORDS, _PRINTED_MS, st.integers(0, 2**63), _WORDS),
    min_size=1, max_size=5, unique_by=lambda one: one.solver_id,
)  # fmt: skip


@given(_TIMES)
def test_a_value_is_read_as_it_was_written(times: list[ReferenceTime]) -> None:
    text = format_value(times)
    assert sorted(parse_value(text), key=lambda one: one.solver_id) == sorted(times, key=lambda one: one.solver_id)
    assert format_value(list(parse_value(text))) == text
    assert split_line(f"key={text}") == ("key", text)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_by_name(text: str) -> None:
    for read in (split_line, parse_value):
        try:
            read(text)
        except PerfDbError as error:
            assert error.got is not None


# hipfind's own lines --------------------------------------------------------------------------------------------------

_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
_MS = st.floats(0, 1e9, allow_nan=False)
_RECORDS = st.builds(
    find_record, _TEXT.filter(bool), st.none() | _MS, config=_TEXT, detail=_TEXT, spread_ms=_MS,
    samples=st.integers(0, 2**63 - 1), workspace_bytes=st.integers(0, 2**63 - 1),
    outcome=st.sampled_from(["won", "lost", "compile_failed"]), verified=st.booleans(),
)  # fmt: skip


def _stored(db: PerfDb, path: pathlib.Path) -> tuple[ImportReport, str]:
    report = import_file(db, path)
    return report, exported(db, exporting.export_lines, ("find", "perf", "reference"))


@settings(max_examples=25)
@given(
    st.dictionaries(_TEXT.filter(bool), st.lists(_RECORDS, max_size=3, unique_by=lambda one: one.solver_id), max_size=3)
)
def test_own_lines_come_back_whatever_is_in_them(
    tmp_path_factory: pytest.TempPathFactory, found: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    with PerfDb.open(folder / "a.db") as db:
        for key, records in found.items():
            db.store_find(FakeProblem(key), TARGET, ENVIRONMENT, records)
            db.store_perf(FakeProblem(key), TARGET, NEWER_ENVIRONMENT, [perf_record()])
        text = exported(db, exporting.export_lines, ("find", "perf"))
        before = [db.find_records(key, TARGET.key) for key in found]
    if not text:
        return
    with PerfDb.open(folder / "b.db") as db:
        report, again = _stored(db, write(folder, text, "a.jsonl"))
        assert again == text
        assert report.records == len(text.splitlines())
        assert [db.find_records(key, TARGET.key) for key in found] == before


def test_csv_has_a_heading_and_a_row_for_each_record(tmp_path: pathlib.Path) -> None:
    with PerfDb.open(tmp_path / "a.db") as db:
        assert exported(db, exporting.export_csv, "find") == ""
        db.store_find(FakeProblem('a "b", c'), TARGET, ENVIRONMENT, [find_record(), find_record("B", None)])
        import_file(db, write(tmp_path, TEXT))
        own, other = exported(db, exporting.export_csv, "find"), exported(db, exporting.export_csv, "reference")
    head, first, second = own.splitlines()
    assert head.startswith("problem,operation,direction")
    assert first.startswith('"a ""b"", c",fake') and second.endswith(first.rsplit(",", 1)[1])
    assert len(other.splitlines()) == 4


_LOSERS = {"ConvDirectNaiveConvFwd": 5.0, "Unknown": 1.0, "GemmFwdPointPadded": None}


def test_our_own_records_go_out_as_miopens_text(tmp_path: pathlib.Path) -> None:
    problem = ConvProblem.from_miopen_key(KEY)
    scaled = ConvProblem.create("fwd", problem.x.lengths, problem.w.lengths, stride=14, dtype="bf16", alpha=2.0)
    records = [
        find_record("GemmFwdRest", 0.1234567),
        *(find_record(name, ms, outcome="lost") for name, ms in _LOSERS.items()),
    ]
    algorithms = {"GemmFwdRest": "GEMM", "ConvDirectNaiveConvFwd": "Direct", "GemmFwdPointPadded": "GEMM"}
    with PerfDb.open(tmp_path / "a.db") as db:
        db.store_find(problem, TARGET, NEWER_ENVIRONMENT, [find_record("GemmFwdRest", 9.0)])
        db.store_find(problem, TARGET, ENVIRONMENT, records)
        db.store_find(scaled, TARGET, ENVIRONMENT, [find_record("GemmFwdRest", 7.0)])
        db.store_find(FakeProblem("no key of MIOpen's"), TARGET, ENVIRONMENT, records)
        text = exported(db, exporting.export_find_db, lambda solver: algorithms.get(solver, ""))
        with pytest.raises(PerfDbError, match="no records of this device"):
            exporting.export_references(db, io.StringIO())
    assert text == (
        f"{KEY}=GemmFwdRest:0.123457,1024,miopenConvolutionFwdAlgoGEMM;"
        "ConvDirectNaiveConvFwd:5,1024,miopenConvolutionFwdAlgoDirect\n"
    )
    with PerfDb.open(tmp_path / "b.db") as db:
        import_file(db, write(tmp_path, text))
        assert exported(db, exporting.export_references) == text


def test_a_find_db_file_is_of_one_device(tmp_path: pathlib.Path) -> None:
    with PerfDb.open(tmp_path / "a.db") as db:
        for device in ("amd:gfx942:304", "amd:gfx90a:104"):
            import_file(db, write(tmp_path, TEXT), device)
        with pytest.raises(PerfDbError, match=r"amd:gfx90a:104, amd:gfx942:304.*--device"):
            exporting.export_references(db, io.StringIO())
        assert exported(db, exporting.export_references, "gfx90a") == TEXT
        lines = exported(db, exporting.export_lines, ("reference",), "gfx942").splitlines()
    assert {json.loads(line)["target"]["key"] for line in lines} == {"amd:gfx942:304"}


def test_an_output_that_fails_is_not_the_dbs_fault(tmp_path: pathlib.Path) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError("gone")

    with PerfDb.open(tmp_path / "a.db") as db:
        db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record()])
        for export in (exporting.export_csv, exporting.export_lines):
            with pytest.raises(BrokenPipeError):
                export(db, Full(), "find" if export is exporting.export_csv else ("find",))
        assert len(db.find_records("problem", TARGET.key)) == 1


def test_import_into_a_db_in_memory(tmp_path: pathlib.Path) -> None:
    with PerfDb.in_memory() as db:
        import_file(db, write(tmp_path, TEXT))
        assert exported(db, exporting.export_references) == TEXT
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
