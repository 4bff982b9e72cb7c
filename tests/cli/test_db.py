"""``hipfind db``: what is in a perf DB, for people and for programs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hipfind.cli import db as db_command
from hipfind.perfdb.store import PerfDb
from hipfind.problem.conv import ConvProblem
from tests.cli.conftest import SMALL, Cli
from tests.helpers.perfdb import (
    ENVIRONMENT,
    NEWER_ENVIRONMENT,
    OTHER_TARGET,
    TARGET,
    FakeProblem,
    find_record,
    perf_record,
)

PATCHES = ConvProblem.create("bwd", (9500, 3, 14, 14), (1280, 3, 14, 14), stride=14, dtype="bf16")
STRIDED = ConvProblem.create(
    "fwd", (4, 16, 8, 32, 32), (64, 8, 3, 3, 3), groups=2, pad=1, x_strides=(200_000, 10_000, 1_100, 33, 1)
)
LOSER = find_record("ConvDirectNaiveConvBwd", 250.0, outcome="lost", workspace_bytes=0)
FAILED = find_record("GemmBroken", None, outcome="compile_failed", detail="no such\n  header", verified=False)


@pytest.fixture
def full_db(db_path: Path) -> Path:
    """PATCHES on two targets and in two environments, STRIDED on one."""
    with PerfDb.open(db_path) as db:
        db.store_find(PATCHES, TARGET, ENVIRONMENT, [find_record("GemmBwdRest", 1.25), LOSER, FAILED])
        db.store_find(PATCHES, TARGET, NEWER_ENVIRONMENT, [find_record("Newcomer", 1.0)])
        db.store_find(PATCHES, OTHER_TARGET, ENVIRONMENT, [find_record("GemmBwdRest", 0.75)])
        db.store_find(STRIDED, TARGET, ENVIRONMENT, [find_record("ConvDirectNaiveConvFwd", 30.0)])
    return db_path


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has TARGET, in ENVIRONMENT."""
    present = {TARGET.key: ENVIRONMENT.fingerprint}
    monkeypatch.setattr(db_command, "environments_here", lambda db: present)


def _listed(cli: Cli, *arguments: str) -> list[tuple[str, str, str]]:
    result = cli("db", "list", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return [(one["problem_key"], one["target_key"], one["solver_id"]) for one in json.loads(result.stdout)]


def test_list_shows_each_winner_newest_first(cli: Cli, full_db: Path, here: None) -> None:
    assert _listed(cli) == [
        (STRIDED.key(), TARGET.key, "ConvDirectNaiveConvFwd"),
        (PATCHES.key(), OTHER_TARGET.key, "GemmBwdRest"),
        (PATCHES.key(), TARGET.key, "GemmBwdRest"),
    ]


def test_a_winner_of_the_present_environment_comes_before_a_newer_one(
    cli: Cli, full_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = {}
    for name, present in (("present", ENVIRONMENT.fingerprint), ("changed", "0" * 16), ("none", "")):
        environments = {TARGET.key: present} if present else {}
        monkeypatch.setattr(db_command, "environments_here", lambda db, environments=environments: environments)
        rows = json.loads(cli("db", "list", "--json", "--direction", "bwd", "--device", TARGET.key).stdout)
        shown[name] = [(one["solver_id"], one["trusted"]) for one in rows]
    assert shown == {
        "present": [("GemmBwdRest", True)],
        "changed": [("Newcomer", False)],
        "none": [("Newcomer", None)],
    }


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (("--solver", "GemmBwdRest"), 2),
        (("--solver", "Newcomer"), 0),  # did not win in the present environment
        (("--solver", "GemmBroken"), 0),
        (("--direction", "fwd"), 1),
        (("--dtype", "bf16"), 2),
        (("--device", TARGET.key), 2),
        (("--device", "gfx942"), 2),
        (("--device", "amd"), 2),
        (("--device", "nvidia"), 1),
        (("--device", "gfx9"), 0),
        (("--limit", "1"), 1),
        (("--limit", "99"), 3),
        (("--direction", "bwd", "--device", "amd", "--solver", "GemmBwdRest"), 1),
    ],
)
def test_list_filters(cli: Cli, full_db: Path, here: None, arguments: tuple[str, ...], count: int) -> None:
    assert len(_listed(cli, *arguments)) == count


def test_a_piped_list_has_a_line_for_each_with_all_of_its_key(cli: Cli, full_db: Path, here: None) -> None:
    result = cli("db", "list")
    head, *lines = result.stdout.splitlines()
    assert head.split() == ["Problem", "Device", "Winner", "Time", "ms", "Workspace", "Environment", "Age"]
    assert [line.split()[0] for line in lines] == [STRIDED.key(), PATCHES.key(), PATCHES.key()]
    assert "trusted" in lines[0]
    assert "other device" in lines[1]
    assert lines[2].split()[2:8] == ["GemmBwdRest", "1.250", "±0.010", "1", "KiB", "trusted"]


def test_a_list_of_nothing_says_so_on_stderr(cli: Cli, full_db: Path, here: None) -> None:
    result = cli("db", "list", "--solver", "Nobody")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no records match\n")
    assert cli("db", "list", "--solver", "Nobody", "--json").stdout == "[]\n"


@pytest.mark.parametrize("key", [PATCHES.key(), PATCHES.miopen_key()])
def test_show_has_every_record_of_a_problem(cli: Cli, full_db: Path, key: str) -> None:
    shown = cli("db", "show", key).stdout
    for text in (PATCHES.key(), PATCHES.miopen_key(), TARGET.key, OTHER_TARGET.key, "driver: 6.2", "driver: 6.3"):
        assert text in shown
    assert shown.count("GemmBwdRest") == 2
    assert "compile failed" in shown
    assert "no such header" in shown
    (problem,) = json.loads(cli("db", "show", key, "--json").stdout)
    assert problem["problem"]["key"] == PATCHES.key()
    assert problem["problem"]["filter"] == "14x14"
    found = [(one["target"], one["environment"], one["solver_id"], one["time_ms"]) for one in problem["records"]]
    assert found == [
        (TARGET.key, NEWER_ENVIRONMENT.fingerprint, "Newcomer", 1.0),
        (TARGET.key, ENVIRONMENT.fingerprint, "GemmBwdRest", 1.25),
        (TARGET.key, ENVIRONMENT.fingerprint, "ConvDirectNaiveConvBwd", 250.0),
        (TARGET.key, ENVIRONMENT.fingerprint, "GemmBroken", None),
        (OTHER_TARGET.key, ENVIRONMENT.fingerprint, "GemmBwdRest", 0.75),
    ]
    assert problem["environments"][ENVIRONMENT.fingerprint] == dict(ENVIRONMENT.facts)


def test_show_and_stats_have_tuned_configs_and_the_rule_that_refused_one(cli: Cli, full_db: Path) -> None:
    with PerfDb.open(full_db) as db:
        db.store_perf(PATCHES, TARGET, ENVIRONMENT, [perf_record("GemmBwdRest", 1.0), perf_record("Newcomer", 2.0)])
        db.store_perf(STRIDED, TARGET, ENVIRONMENT, [perf_record("Newcomer", 3.0, refused="odd tile")])
    shown = cli("db", "show", STRIDED.key()).stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("Newcomer")]
    assert line.split()[1:4] == ["64x64", "3.000", "±0.010"] and line.endswith("odd tile")
    (problem,) = json.loads(cli("db", "show", STRIDED.key(), "--json").stdout)
    (config,) = problem["configs"]
    assert (config["config"], config["refused"], config["target"]) == ("64x64", "odd tile", TARGET.key)
    assert "Tuned config" in cli("db", "show", PATCHES.key()).stdout
    stats = json.loads(cli("db", "stats", "--json").stdout)["configs"]
    assert [(one["solver_id"], one["configs"], one["refused"]) for one in stats] == [
        ("GemmBwdRest", 1, 0), ("Newcomer", 2, 1)
    ]  # fmt: skip
    assert json.loads(cli("db", "stats", "--json", "--device", "host").stdout)["configs"] == []
    (line,) = [line for line in cli("db", "stats").stdout.splitlines() if line.split()[1:4] == ["Newcomer", "2", "1"]]
    assert line.startswith(TARGET.key)
    found = json.loads(cli("db", "query", "--json", "--sql", "SELECT solver, refused FROM tuned_configs").stdout)
    assert {"solver": "Newcomer", "refused": "odd tile"} in found
    counts = json.loads(cli("db", "check", "--json").stdout)["records"]
    assert counts["refused_config"] == 1


@pytest.mark.parametrize("key", ["conv-fwd-nonsense", "", "\udcff"])
def test_show_of_an_unknown_key_fails(cli: Cli, full_db: Path, key: str) -> None:
    result = cli("db", "show", key)
    assert result.exit_code == 1
    assert result.stdout == ""
    (message,) = result.stderr.splitlines()
    assert message.startswith("hipfind: error: the perf DB")


def test_info(cli: Cli, full_db: Path) -> None:
    text = cli("db", "info").stdout
    assert str(full_db) in text
    rows = dict(line.rsplit(maxsplit=1) for line in text.splitlines() if " records  " in line)
    assert rows["find records"] == "6" and rows["reference records"] == "0"
    assert ENVIRONMENT.fingerprint in text
    facts = json.loads(cli("db", "info", "--json").stdout)
    assert facts["rows"] == {"problems": 2, "targets": 2, "environments": 2, "find_records": 6, "perf_records": 0,
                             "reference_records": 0}  # fmt: skip


def test_another_file_by_option(cli: Cli, full_db: Path, tmp_path: Path) -> None:
    other = tmp_path / "other #1?.db"
    with PerfDb.open(other) as db:
        db.store_find(FakeProblem("elsewhere"), TARGET, ENVIRONMENT, [find_record()])
    assert [key for key, _, _ in _listed(cli, "--db", str(other))] == ["elsewhere"]
    assert cli("db", "show", "elsewhere", "--db", str(other)).exit_code == 0
    assert json.loads(cli("db", "info", "--json", "--db", str(other)).stdout)["path"] == str(other)


@pytest.mark.parametrize("command", [("info",), ("list",), ("show", "key")])
@pytest.mark.parametrize("json_too", [(), ("--json",)])
def test_a_file_that_cannot_be_used_is_one_message_and_left_alone(
    cli: Cli, db_path: Path, command: tuple[str, ...], json_too: tuple[str, ...]
) -> None:
    missing = cli("db", *command, *json_too)
    assert not db_path.exists()
    db_path.write_bytes(b"junk" * 300)
    damaged = cli("db", *command, *json_too)
    for result, said in ((missing, "does not exist"), (damaged, "is damaged")):
        assert result.exit_code == 1
        assert result.stdout == ""
        (message,) = result.stderr.splitlines()
        assert message.startswith(f"hipfind: error: the perf DB {said}")
        assert str(db_path) in message
    assert db_path.read_bytes() == b"junk" * 300
    assert os.listdir(db_path.parent) == [db_path.name]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("list", "--direction", "up"), "up"), (("list", "--dtype", "fp31"), "fp31"), (("list", "--limit", "0"), "0"),
     (("show",), "KEY"), (("qurey",), "qurey"), (("info", "extra"), "extra")],
)  # fmt: skip
def test_wrong_use(cli: Cli, full_db: Path, arguments: tuple[str, ...], named: str) -> None:
    result = cli("db", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert named in result.stderr


def test_what_find_stored_is_trusted(cli: Cli, db_path: Path) -> None:
    assert cli("find", *SMALL, "-F", "1").exit_code == 0
    (row,) = json.loads(cli("db", "list", "--json").stdout)
    assert row["trusted"] is True
    assert row["problem_key"] in cli("db", "show", row["problem_key"]).stdout
