"""``hipfind upsample``: find, immediate and explain, and the keys of its problems in other commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hipfind.problem import UpsampleProblem
from tests.cli.conftest import Cli, rows_in

SIZES = ("-n", "2", "-c", "3", "-H", "9", "-W", "5", "--out_h", "18", "--out_w", "10")
KEY = "upsample-bwd-bilinear-n2-c3-i9x5-o18x10-fp32-NCHW"


def loaded(cli: Cli, *arguments: str) -> Any:
    result = cli(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout, parse_constant=pytest.fail)


def test_find_measures_and_stores_and_immediate_answers(cli: Cli, db_path: Path) -> None:
    shown = cli("upsample", "find", *SIZES)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines()[0] == f"problem  {KEY}"
    assert "UpsampleBwdScatter" in shown.stdout and "Gemm" not in shown.stdout
    assert rows_in(db_path) > 0
    (again,) = loaded(cli, "upsample", "find", *SIZES)
    assert (again["problem"], again["source"]) == (KEY, "user DB")
    (ranked,) = loaded(cli, "upsample", "immediate", *SIZES)
    assert ranked["choices"][0]["solver_id"] == again["results"][0]["solver_id"]
    assert ranked["choices"][0]["source"] == "user DB"
    listed = cli("db", "list")
    assert KEY in listed.stdout


def test_explain_has_a_reason_for_every_solver(cli: Cli) -> None:
    (answer,) = loaded(cli, "upsample", "explain", *SIZES, "--dtype", "bf16", "-I", "nhwc", "--deterministic")
    assert answer["problem"] == "upsample-bwd-bilinear-n2-c3-i9x5-o18x10-bf16-NHWC-det"
    assert answer["floor_ms"] > 0
    assert all(one["applicable"] or one["reason"] for one in answer["solvers"])
    refused = {one["solver_id"] for one in answer["solvers"] if not one["applicable"]}
    assert refused == {"UpsampleEmptyBatch", "UpsampleBwdStrip"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--scale", "2"), {"dy": (1, 3, 18, 10)}),
        (("--scale", "1.7", "--scale", "2.2"), {"scales": (1.7, 2.2)}),
        (("--out_h", "4", "--out_w", "30", "--align_corners"), {"dy": (1, 3, 4, 30), "align_corners": True}),
        (("--out_h", "15", "--out_w", "8", "--scale", "1.7"), {"dy": (1, 3, 15, 8), "scales": 1.7}),
    ],
)
def test_a_problem_by_sizes_or_scales(cli: Cli, arguments: tuple[str, ...], problem: dict[str, Any]) -> None:
    (ranked,) = loaded(cli, "upsample", "immediate", "-H", "9", "-W", "5", *arguments)
    assert ranked["problem"] == UpsampleProblem.create("bwd", (1, 3, 9, 5), **problem).key()


def test_keys_are_taken_by_the_commands_for_convolutions(cli: Cli) -> None:
    for command in ("find", "immediate", "explain"):
        (answer,) = loaded(cli, command, "--key", KEY)
        assert answer["problem"] == KEY
    shown = cli("db", "show", KEY)
    assert shown.exit_code == 0 and "UpsampleBwdGather" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-H", "9", "-W", "5"), "named by --out_h and --out_w, or by --scale"),
        (("-H", "9", "-W", "5", "--out_h", "4"), "named by --out_h and --out_w, or by --scale"),
        (("-H", "9", "-W", "5", "--out_h", "18", "--out_w", "11", "--scale", "2"), "width of dy must be"),
        (("-H", "9", "-W", "5", "--scale", "0"), "scales must be finite numbers greater than 0 (got 0.0)"),
        (("-H", "0", "-W", "5", "--out_h", "4", "--out_w", "4"), "sizes of 1 or more"),
        (("-H", "9", "-W", "5", "--scale", "2", "--scale", "2", "--scale", "2"), "one number, or two"),
        (("-W", "5", "--scale", "2"), "--in_h"),
        (("-H", "x", "-W", "5", "--scale", "2"), "not a valid integer"),
    ],
)
def test_wrong_use_is_one_message_and_stores_nothing(
    cli: Cli, db_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    for command in ("find", "immediate", "explain"):
        result = cli("upsample", command, *arguments)
        assert result.exit_code == 2
        assert message in result.stderr and result.stderr.startswith("hipfind: error: ")
        assert result.stdout == ""
    assert rows_in(db_path) == 0
