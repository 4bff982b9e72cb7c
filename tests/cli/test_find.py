"""find, immediate and explain on the host device."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hipfind.problem.conv import ConvProblem
from hipfind.solvers.registry import default_registry
from tests.cli.conftest import SMALL, Cli, rows_in

POINT = ("-n", "4", "-c", "3", "-H", "14", "-W", "14", "-k", "32", "-y", "14", "-x", "14", "-u", "14", "-v", "14")
MIOPEN_KEY = "3-6-6-3x3-4-4-4-2-0x0-1x1-1x1-0-NCHW-FP32-F"


def loaded(cli: Cli, *arguments: str, exit_code: int = 0, **overrides: object) -> Any:
    result = cli(*arguments, "--json", **overrides)
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout, parse_constant=pytest.fail)


def solver_ids() -> list[str]:
    return [solver.SolverDbId() for solver in default_registry().for_operation("conv")]


def test_find_reports_every_candidate_and_stores(cli: Cli, db_path: Path) -> None:
    result = cli("find", *POINT, "-F", "2")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("problem  conv-bwd-n4-c3-k32-i14x14")
    assert lines[1] == "device   host, mode HYBRID"
    winner = lines[2].split()[1].rstrip(",")
    assert winner in ("GemmBwdRest", "ConvDirectNaiveConvBwd")
    assert lines[2].endswith("measured now, stored in the perf DB")
    table = lines[4:]
    assert table[1].split()[:2] == [winner, "won"]
    (others,) = [line for line in table if line.startswith("not applicable, solves another direction: ")]
    for name in solver_ids():
        in_table = sum(line.startswith(name + " ") for line in table)
        assert in_table + others.replace(",", "").split().count(name) == 1, name
        assert in_table == ("Fwd" not in name and "Wrw" not in name), name
    assert "\x1b" not in result.stdout
    assert result.stderr == ""
    assert rows_in(db_path) > 0


def test_tuning_measures_again_and_keeps_the_configs(cli: Cli, db_path: Path) -> None:
    loaded(cli, "find", *POINT, "-F", "2")
    (tuned,) = loaded(cli, "find", *POINT, "-F", "2", "--tune")
    assert tuned["source"] == "measured now"
    configs = {one["solver_id"]: one["config"] for one in tuned["candidates"] if one["time_ms"] is not None}
    assert configs == {"GemmBwdRest": "rank=0", "ConvDirectNaiveConvBwd": ""}
    (row,) = sqlite3.connect(db_path).execute("SELECT config FROM perf_records").fetchall()
    assert row == ("rank=0",)
    result = cli("find", *POINT, "-F", "2")
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("GemmBwdRest ")]
    assert "rank=0" in line and line.endswith("user DB")


def test_a_config_of_the_command_line_is_measured_and_not_stored(cli: Cli, db_path: Path) -> None:
    (report,) = loaded(cli, "find", *POINT, "-F", "2", "--config", "GemmBwdRest=rank=0")
    assert (report["source"], report["mode"], report["notes"]) == ("measured now", "NORMAL", [])
    assert not db_path.exists()


def test_a_config_of_the_command_line_that_breaks_a_rule_is_named_and_the_find_goes_on(cli: Cli) -> None:
    result = cli("find", *POINT, "-F", "2", "--config", "GemmBwdRest=rank=7", "--config", "ConvDirectNaiveConvBwd=x=1")
    assert result.exit_code == 0
    notes = [line for line in result.stdout.splitlines() if line.startswith("note: the config asked for is refused, ")]
    assert len(notes) == 2
    assert "GemmBwdRest runs with its default: " in notes[0] and "rank 7" in notes[0]
    assert "ConvDirectNaiveConvBwd has no perf configs" in notes[1]
    (row,) = [line for line in result.stdout.splitlines() if line.startswith("GemmBwdRest ")]
    assert "rank=0" in row


@pytest.mark.parametrize("value", ["GemmBwdRest", "=rank=0", "GemmBwdRest=", "GemmBwd=rank=0"])
def test_a_config_without_a_solver_or_a_text_is_wrong_use(cli: Cli, db_path: Path, value: str) -> None:
    result = cli("find", *POINT, "-F", "2", "--config", value)
    assert result.exit_code == 2
    assert value.split("=")[0] in result.stderr
    assert not db_path.exists()


def test_a_second_find_answers_from_the_db(cli: Cli, db_path: Path) -> None:
    (first,) = loaded(cli, "find", *POINT, "-F", "2")
    rows = rows_in(db_path)
    (second,) = loaded(cli, "find", *POINT, "-F", "2")
    assert (first["source"], second["source"]) == ("measured now", "user DB")
    assert [one["solver_id"] for one in first["results"]] == [one["solver_id"] for one in second["results"]]
    assert [one["time_ms"] for one in first["results"]] == [one["time_ms"] for one in second["results"]]
    assert rows_in(db_path) == rows
    (normal,) = loaded(cli, "find", *POINT, "-F", "2", "--find-mode", "1")
    assert (normal["source"], normal["mode"]) == ("measured now", "NORMAL")


def test_json_has_what_the_table_has(cli: Cli) -> None:
    reports = loaded(cli, "find", *POINT)
    assert [report["problem"].split("-")[1] for report in reports] == ["fwd", "bwd", "wrw"]
    for report in reports:
        assert {one["solver_id"] for one in report["candidates"]} == set(solver_ids())
        won = [one for one in report["candidates"] if one["outcome"] == "won"]
        assert len(won) == 1
        assert won[0]["solver_id"] == report["results"][0]["solver_id"]
        assert won[0]["samples"] >= 3
        assert won[0]["verified"] is True
        assert all(one["reason"] for one in report["candidates"] if one["outcome"] == "not applicable")


def test_directions_are_chosen_by_bits(cli: Cli) -> None:
    directions = {bits: [one["problem"].split("-")[1] for one in loaded(cli, "immediate", *SMALL, "-F", bits)]
                  for bits in ("0", "1", "2", "4", "5", "6")}  # fmt: skip
    assert directions == {
        "0": ["fwd", "bwd", "wrw"], "1": ["fwd"], "2": ["bwd"], "4": ["wrw"], "5": ["fwd", "wrw"], "6": ["bwd", "wrw"],
    }  # fmt: skip


def test_long_and_short_flags_and_keys_name_the_same_problem(cli: Cli) -> None:
    expected = ConvProblem.create("fwd", (2, 3, 6, 6), (4, 3, 3, 3))
    long = ("--batchsize", "2", "--in_channels", "3", "--in_h", "6", "--in_w", "6", "--out_channels", "4",
            "--fil_h", "3", "--fil_w", "3", "--forw", "1")  # fmt: skip
    for named in ((*SMALL, "-F1"), long, ("--key", expected.key()), ("--key", MIOPEN_KEY)):
        assert [one["problem"] for one in loaded(cli, "immediate", *named)] == [expected.key()]


def test_odd_short_flags_of_three_dimensions(cli: Cli) -> None:
    odd = ("-_", "3", "-!", "6", "-@", "2", "-#", "2", "-$", "1", "-^", "1")
    (answer,) = loaded(cli, "immediate", *SMALL, *odd, "-F", "1", "-I", "ndhwc", "-f", "NDHWC", "-O", "NDHWC")
    expected = ConvProblem.create(
        "fwd", (2, 3, 6, 6, 6), (4, 3, 2, 3, 3), stride=(2, 1, 1), pad=(1, 0, 0), layout="NDHWC"
    )
    assert answer["problem"] == expected.key()


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "fp16", "bf16"])
def test_dtypes(cli: Cli, dtype: str) -> None:
    (report,) = loaded(cli, "find", *POINT, "-F", "1", "--dtype", dtype)
    assert f"-{dtype}-" in report["problem"]
    outcomes = {one["solver_id"]: one["outcome"] for one in report["candidates"]}
    assert outcomes["GemmFwdRest"] in ("won", "lost", "skipped as too slow")
    assert outcomes[report["results"][0]["solver_id"]] == "won"


def test_immediate_ranks_without_a_db_and_takes_the_winner_from_one(cli: Cli, db_path: Path) -> None:
    (before,) = loaded(cli, "immediate", *POINT, "-F", "2")
    assert before["choices"][0]["solver_id"] == "GemmBwdRest"
    assert {one["source"] for one in before["choices"]} == {"WTI"}
    assert not db_path.exists()
    (report,) = loaded(cli, "find", *POINT, "-F", "2")
    shown = cli("immediate", *POINT, "-F", "2")
    first = shown.stdout.splitlines()[3].split()
    assert first[:2] == ["1", report["results"][0]["solver_id"]]
    assert shown.stdout.splitlines()[3].endswith("user DB")


def test_explain_has_a_reason_for_every_solver(cli: Cli) -> None:
    (answer,) = loaded(cli, "explain", *POINT, "-F", "2")
    assert {one["solver_id"] for one in answer["solvers"]} == set(solver_ids())
    assert all(one["applicable"] or one["reason"] for one in answer["solvers"])
    assert answer["flops"] == 2 * 4 * 3 * 14 * 14 * 32
    assert answer["min_bytes"] == 4 * (4 * 588 + 32 * 588 + 4 * 32)
    assert answer["floor_ms"] == max(answer["compute_floor_ms"], answer["memory_floor_ms"]) > 0
    applicable = [one for one in answer["solvers"] if one["applicable"]]
    assert all(one["expected_ms"] >= 0.99 * answer["compute_floor_ms"] for one in applicable)
    shown = cli("explain", *POINT, "-F", "2")
    assert shown.exit_code == 0
    assert re.search(r"no, solves another direction: .*\bGemmFwd1x1_0_1, ", shown.stdout)
    assert all(name in shown.stdout for name in solver_ids())
    assert "floor" in shown.stdout


def test_explain_shows_the_record_of_a_find(cli: Cli) -> None:
    cli("find", *POINT, "-F", "2")
    (answer,) = loaded(cli, "explain", *POINT, "-F", "2")
    winner = next(one for one in answer["solvers"] if one["record"] == "won")
    assert winner["recorded_ms"] > 0
    assert "won, " in cli("explain", *POINT, "-F", "2").stdout


def test_only_some_solvers(cli: Cli, db_path: Path) -> None:
    (report,) = loaded(cli, "find", *POINT, "-F", "2", "--solver", "ConvDirectNaiveConvBwd")
    assert [one["solver_id"] for one in report["results"]] == ["ConvDirectNaiveConvBwd"]
    assert report["stored"] is False
    assert not db_path.exists()


def test_a_workspace_limit_that_excludes_somebody_stores_nothing(cli: Cli, db_path: Path) -> None:
    limited = (*SMALL, "-F", "2", "--workspace-limit", "1B")
    (report,) = loaded(cli, "find", *limited)
    outcomes = {one["outcome"] for one in report["candidates"]}
    assert "workspace too small" in outcomes
    assert report["stored"] is False
    assert not db_path.exists()
    (answer,) = loaded(cli, "immediate", *limited)
    assert all(one["workspace_bytes"] <= 1 for one in answer["choices"])


def test_verification_can_be_switched(cli: Cli) -> None:
    (off,) = loaded(cli, "find", *POINT, "-F", "1", "--verify", "off")
    assert not any(one["verified"] for one in off["candidates"])
    (always,) = loaded(cli, "find", *POINT, "-F", "1", "--verify", "always", "--find-mode", "NORMAL")
    assert len(always["results"]) > 0
    assert all(one["verified"] for one in always["candidates"] if one["outcome"] in ("won", "lost"))


def test_fast_mode_measures_nothing(cli: Cli, db_path: Path) -> None:
    (report,) = loaded(cli, "find", *POINT, "-F", "1", "--find-mode", "fast")
    assert report["source"] == "WTI"
    assert report["results"][0]["solver_id"] == "GemmFwdRest"
    assert not db_path.exists()


def test_nothing_usable_is_a_failure_with_reasons(cli: Cli, db_path: Path) -> None:
    result = cli("find", *POINT, "-F", "1", "--solver", "GemmBwdRest")
    assert result.exit_code == 1
    (message,) = result.stderr.splitlines()
    assert message.startswith("hipfind: error: no solver has a usable result on host")
    assert "hipfind explain" in message
    assert "GemmBwdRest" in result.stdout
    assert "GemmFwdRest" in result.stdout
    assert not db_path.exists()
    (report,) = loaded(cli, "find", *POINT, "-F", "1", "--solver", "GemmBwdRest", exit_code=1)
    assert report["results"] == []


def test_a_disabled_solver_is_shown_as_excluded(cli: Cli) -> None:
    (report,) = loaded(cli, "find", *POINT, "-F", "2", disable_solver=("GemmBwdRest",))
    outcomes = {one["solver_id"]: one["outcome"] for one in report["candidates"]}
    assert outcomes["GemmBwdRest"] == "excluded by settings"
    assert outcomes["ConvDirectNaiveConvBwd"] == "won"
