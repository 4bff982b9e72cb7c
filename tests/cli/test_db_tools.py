"""``hipfind db`` commands that exchange, question and keep a perf DB: what they print, for people and programs."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import sqlite3
from pathlib import Path

import pytest

from hipfind.cli import db_browse, db_upkeep
from hipfind.perfdb.store import PerfDb
from hipfind.problem.conv import ConvProblem
from tests.cli.conftest import SMALL, Cli
from tests.helpers.perfdb import ENVIRONMENT, NEWER_ENVIRONMENT, TARGET, FakeProblem, build_version, find_record

PATCHES = ConvProblem.create("bwd", (9500, 3, 14, 14), (1280, 3, 14, 14), stride=14, dtype="bf16")
LINE = f"{PATCHES.miopen_key()}=GemmBwdRest:0.5,0,miopenConvolutionBwdDataAlgoGEMM\n"


@pytest.fixture
def full_db(db_path: Path) -> Path:
    with PerfDb.open(db_path) as db:
        naive = find_record("ConvDirectNaiveConvBwd", 250.0, outcome="lost", workspace_bytes=0)
        db.store_find(PATCHES, TARGET, ENVIRONMENT, [find_record("GemmBwdRest", 1.25), naive])
        db.store_find(FakeProblem("other"), TARGET, NEWER_ENVIRONMENT, [find_record("Some", 2.0)])
    return db_path


@pytest.fixture
def miopen_file(tmp_path: Path) -> Path:
    path = tmp_path / "gfx942130.HIP.fdb.txt"
    path.write_text(LINE)
    return path


def ok(cli: Cli, *arguments: str) -> str:
    result = cli("db", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def failed(cli: Cli, *arguments: str, code: int = 1) -> str:
    result = cli("db", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    (message,) = result.stderr.splitlines()
    assert message.startswith("hipfind: error: ")
    return str(message)


def test_import_reports_and_export_gives_the_lines_back(cli: Cli, db_path: Path, miopen_file: Path) -> None:
    said = ok(cli, "import", str(miopen_file))
    assert "1 records of MIOpen's find-db text of amd:gfx942:304" in said
    assert "1 new" in said
    assert ok(cli, "export", "--format", "find-db", "--records", "reference") == LINE
    (report,) = json.loads(ok(cli, "import", "--json", str(miopen_file)))
    assert report["merged"]["same"]["reference"] == 1
    assert json.loads(ok(cli, "list", "--json")) == []
    (row,) = json.loads(ok(cli, "query", "--reference", "--json"))
    assert (row["miopen_key"], row["problem"], row["solver"]) == (PATCHES.miopen_key(), PATCHES.key(), "GemmBwdRest")
    assert PATCHES.miopen_key() in ok(cli, "query", "--reference")


def test_show_has_miopens_records_too(cli: Cli, db_path: Path, miopen_file: Path) -> None:
    strange = LINE.replace("-BF16-", "-FP8-")
    miopen_file.write_text("".join(sorted([LINE, strange])))
    ok(cli, "import", str(miopen_file))
    for line in (LINE, strange):
        key = line.partition("=")[0]
        said = ok(cli, "show", key)
        assert key in said and "amd:gfx942:304" in said and "0.5000" in said
        (shown,) = json.loads(ok(cli, "show", key, "--json"))
        assert [one["miopen_key"] for one in shown["references"]] == [key]
    assert PATCHES.key() in ok(cli, "show", PATCHES.key())


def test_a_damaged_import_names_file_line_and_what_is_legal(cli: Cli, db_path: Path, miopen_file: Path) -> None:
    miopen_file.write_text(LINE + "half a li")
    message = failed(cli, "import", str(miopen_file))
    assert f"{miopen_file}, line 2" in message
    assert "KEY=VALUE" in message
    assert ok(cli, "query", "--reference", "--json") == "[]\n"


def test_export_to_a_file_never_overwrites(cli: Cli, full_db: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    ok(cli, "export", str(target))
    text = target.read_text()
    assert len(text.splitlines()) == 3
    assert ok(cli, "export") == text
    assert "never overwrites" in failed(cli, "export", str(target))
    assert target.read_text() == text
    assert "cannot be written" in failed(cli, "export", str(tmp_path / "no" / "x"))
    assert ok(cli, "import", str(target), "--db", str(tmp_path / "new.db"))
    assert ok(cli, "export", "--db", str(tmp_path / "new.db")) == text


def test_export_as_csv_and_as_find_db(cli: Cli, full_db: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(ok(cli, "export", "--format", "csv"))))
    assert [row["solver_id"] for row in rows] == ["ConvDirectNaiveConvBwd", "GemmBwdRest", "Some"]
    assert ok(cli, "export", "--format", "find-db") == (
        f"{PATCHES.miopen_key()}=GemmBwdRest:1.25,1024,miopenConvolutionBwdDataAlgoGEMM;"
        "ConvDirectNaiveConvBwd:250,0,miopenConvolutionBwdDataAlgoDirect\n"
    )


def test_merge_shows_conflicts(cli: Cli, full_db: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with PerfDb.open(other) as db:
        db.store_find(PATCHES, TARGET, ENVIRONMENT, [find_record("GemmBwdRest", 0.75)])
    said = ok(cli, "merge", str(other))
    assert "1 newer than ours" in said
    assert PATCHES.key() in said and "0.7500" in said and "1.250" in said
    old = tmp_path / "old.jsonl"
    ok(cli, "export", "--records", "superseded", str(old))
    ok(cli, "import", str(old), "--db", str(tmp_path / "old.db"))
    (row,) = json.loads(ok(cli, "query", "--json", "--db", str(tmp_path / "old.db")))
    assert (row["solver"], row["time_ms"]) == ("GemmBwdRest", 1.25)
    assert "lines of JSON" in failed(cli, "export", "--records", "superseded", "--format", "csv", code=2)
    (report,) = json.loads(ok(cli, "merge", "--json", str(other)))
    assert report["conflicts"] == []
    assert "does not exist" in failed(cli, "merge", str(tmp_path / "missing.db"))
    ok(cli, "merge", str(full_db), str(other), "--db", str(tmp_path / "all.db"))
    assert len(json.loads(ok(cli, "query", "--json", "--db", str(tmp_path / "all.db")))) == 3


def test_diff(cli: Cli, full_db: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with PerfDb.open(other) as db:
        db.store_find(PATCHES, TARGET, ENVIRONMENT, [find_record("Newcomer", 0.5)])
    result = cli("db", "diff", str(full_db), str(other))
    assert result.exit_code == 0
    head, row, lone = result.stdout.splitlines()
    assert head.split() == ["Problem", "Device", "A", "A", "ms", "B", "B", "ms", "B/A"]
    assert row.split()[2:] == ["GemmBwdRest", "1.250", "±0.010", "Newcomer", "0.5000", "±0.0100", "0.4"]
    assert lone.split()[0] == "other"
    assert "1 problems in both, 1 with another winner; 1 only in A, 0 only in B" in result.stderr
    data = json.loads(ok(cli, "diff", "--json", str(full_db), str(other)))
    assert [(one["problem"], one["ratio"]) for one in data] == [(PATCHES.key(), 0.4), ("other", None)]
    assert ok(cli, "diff", str(full_db), str(full_db)) == ""
    assert len(json.loads(ok(cli, "diff", "--all", "--json", str(full_db), str(full_db)))) == 2


def test_query_by_fields_and_by_sql(cli: Cli, full_db: Path) -> None:
    assert [one["solver"] for one in json.loads(ok(cli, "query", "--filter", "14x14", "--k", "1280", "--json"))] == [
        "GemmBwdRest", "ConvDirectNaiveConvBwd"
    ]  # fmt: skip
    assert len(ok(cli, "query", "--slower-than", "2").splitlines()) == 3
    table = list(csv.DictReader(io.StringIO(ok(cli, "query", "--csv", "--solver", "Some"))))
    assert [row["problem"] for row in table] == ["other"]
    sql = "SELECT solver, count(*) AS wins FROM results WHERE outcome = 'won' GROUP BY 1"
    assert json.loads(ok(cli, "query", "--json", "--sql", sql)) == [
        {"solver": "GemmBwdRest", "wins": 1}, {"solver": "Some", "wins": 1}
    ]  # fmt: skip
    assert ok(cli, "query", "--sql", sql).splitlines()[1].split() == ["GemmBwdRest", "1"]
    assert json.loads(ok(cli, "query", "--json", "--sql", "SELECT 1 AS a, 2 AS a, x'ff'"))[0]["a_1"] == 2
    assert "not authorized" in failed(cli, "query", "--sql", "DELETE FROM problems")
    assert "--solver" in failed(cli, "query", "--sql", sql, "--solver", "A", code=2)
    assert "--json and --csv" in failed(cli, "query", "--json", "--csv", code=2)


def test_stats(cli: Cli, full_db: Path, miopen_file: Path) -> None:
    ok(cli, "import", str(miopen_file))
    said = ok(cli, "stats")
    for word in ("GemmBwdRest", "Saved: naive", "248.8", ENVIRONMENT.fingerprint, miopen_file.name):
        assert word in said
    assert json.loads(ok(cli, "stats", "--json"))["solvers"][0]["wins"] == 1
    assert len(ok(cli, "stats", "--csv").splitlines()) == 3


def test_prune_shows_asks_and_keeps_a_backup(cli: Cli, full_db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("prune", "--solver", "Some")
    assert ok(cli, *arguments, "--dry-run") == "would remove 1 find records, 0 perf records\n"
    result = cli("db", *arguments)
    assert result.exit_code == 2 and "--yes" in result.stderr
    assert len(json.loads(ok(cli, "query", "--json"))) == 3
    said = ok(cli, *arguments, "--yes")
    assert "removed 1 find records" in said
    (copy,) = full_db.parent.glob(f"{full_db.name}.backup-*")
    assert str(copy) in said
    assert len(json.loads(ok(cli, "query", "--json"))) == 2
    assert len(json.loads(ok(cli, "query", "--json", "--db", str(copy)))) == 3
    monkeypatch.setattr(db_upkeep, "_confirmed", lambda: False)
    assert json.loads(ok(cli, "prune", "--device", "gfx942", "--json"))["removed"] is False
    assert len(json.loads(ok(cli, "query", "--json"))) == 2


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("prune",), "--older-than"), (("prune", "--solver", "A", "--source", "x"), "--reference"),
     (("prune", "--reference", "--environment", "x"), "--environment"), (("import",), "FILE"), (("diff", "a"), "B"),
     (("query", "--direction", "up"), "up"), (("export", "--format", "xml"), "xml")],
)  # fmt: skip
def test_wrong_use(cli: Cli, full_db: Path, arguments: tuple[str, ...], named: str) -> None:
    assert named in failed(cli, *arguments, code=2)


@pytest.mark.parametrize(
    "command", [("prune", "--solver", "A", "--yes"), ("compact",), ("backup",), ("stats",), ("export",)]
)
def test_a_file_that_is_not_there_is_not_made(cli: Cli, db_path: Path, command: tuple[str, ...]) -> None:
    assert "does not exist" in failed(cli, *command)
    assert not list(db_path.parent.iterdir())


def test_backup_and_compact(cli: Cli, full_db: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    assert str(copy) in ok(cli, "backup", str(copy))
    assert "never overwrites" in failed(cli, "backup", str(copy))
    assert json.loads(ok(cli, "backup", "--json"))["size_bytes"] == copy.stat().st_size
    facts = json.loads(ok(cli, "compact", "--json"))
    assert 0 < facts["bytes_after"] <= facts["bytes_before"]


def test_a_file_of_an_earlier_schema_is_migrated_where_it_is_only_read(cli: Cli, db_path: Path) -> None:
    build_version(db_path, 1)
    assert json.loads(ok(cli, "stats", "--json"))["solvers"] == []


def test_what_find_stored_can_be_questioned(cli: Cli, db_path: Path) -> None:
    assert cli("find", *SMALL, "-F", "1").exit_code == 0
    assert json.loads(ok(cli, "stats", "--json"))["solvers"][0]["saved_second_ms"] >= 0.0
    assert "miopenConvolutionFwdAlgo" in ok(cli, "export", "--format", "find-db")


def test_browse_without_datasette_is_one_sentence(cli: Cli, full_db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'hipfind[web]'" in failed(cli, "browse")


def test_browse_is_on_loopback_with_facets_of_columns_that_exist(
    cli: Cli, full_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    data: list[dict[str, object]] = []

    def call(line: list[str]) -> int:
        seen.append(line)
        data.append(json.loads(Path(line[line.index("--metadata") + 1]).read_text()))
        return 0

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(db_browse.subprocess, "call", call)
    ok(cli, "browse", "--no-open", "--port", "0")
    ((_, *line),) = seen
    assert line[line.index("--host") + 1] == "127.0.0.1"
    assert str(full_db) in line and "--open" not in line
    databases = db_browse.metadata(full_db.stem)["databases"]
    assert data[0]["databases"] == databases
    connection = sqlite3.connect(full_db)
    for table, facts in databases["perf"]["tables"].items():
        columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        assert {*facts.get("facets", ()), *filter(None, (facts.get("label_column"), facts.get("sort")))} <= columns
    for query in databases["perf"]["queries"].values():
        assert connection.execute(query["sql"]).fetchall()
    connection.close()


def test_explain_shows_miopens_records_of_the_problem(cli: Cli, db_path: Path, miopen_file: Path) -> None:
    ok(cli, "import", str(miopen_file))
    result = cli("explain", "--key", PATCHES.key(), "--device", "host")
    assert result.exit_code == 0
    assert "amd:gfx942:304" in result.stdout and "MIOpen's solver" in result.stdout
    (answer,) = json.loads(cli("explain", "--key", PATCHES.key(), "--device", "host", "--json").stdout)
    (reference,) = answer["references"]
    assert (reference["target_key"], reference["times"][0]["time_ms"]) == ("amd:gfx942:304", 0.5)
    assert all(one["reference_ms"] is None for one in answer["solvers"])
