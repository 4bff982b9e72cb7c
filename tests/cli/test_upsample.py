"""``hipfind upsample``: find, immediate and explain, and the keys of its problems in other commands."""

from __future__ import annotations

import itertools
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
    assert refused == {"UpsampleEmptyBatch", "UpsampleBwdStrip", "UpsampleFwdLines", "UpsampleFwdDirect"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--scale", "2"), {"y": (1, 3, 18, 10)}),
        (("--scale", "1.7", "--scale", "2.2"), {"scales": (1.7, 2.2)}),
        (("--out_h", "4", "--out_w", "30", "--align_corners"), {"y": (1, 3, 4, 30), "align_corners": True}),
        (("--out_h", "15", "--out_w", "8", "--scale", "1.7"), {"y": (1, 3, 15, 8), "scales": 1.7}),
    ],
)
def test_a_problem_by_sizes_or_scales(cli: Cli, arguments: tuple[str, ...], problem: dict[str, Any]) -> None:
    (ranked,) = loaded(cli, "upsample", "immediate", "-H", "9", "-W", "5", *arguments)
    assert ranked["problem"] == UpsampleProblem.create("bwd", (1, 3, 9, 5), **problem).key()


def test_the_forward_pass_is_asked_for_by_its_direction(cli: Cli) -> None:
    key = KEY.replace("bwd", "fwd")
    (found,) = loaded(cli, "upsample", "find", *SIZES, "--direction", "fwd")
    assert found["problem"] == key
    assert {one["solver_id"] for one in found["results"]} == {"UpsampleFwdLines", "UpsampleFwdDirect"}
    (ranked,) = loaded(cli, "upsample", "immediate", *SIZES, "--direction", "fwd")
    assert ranked["choices"][0]["source"] == "user DB"
    (answer,) = loaded(cli, "upsample", "explain", *SIZES, "--direction", "fwd")
    assert {one["solver_id"] for one in answer["solvers"] if one["applicable"]} == {
        "UpsampleFwdLines", "UpsampleFwdDirect",
    }  # fmt: skip
    (by_key,) = loaded(cli, "immediate", "--key", key)
    assert by_key["problem"] == key
    refused = cli("upsample", "find", *SIZES, "--direction", "wrw")
    assert refused.exit_code == 2 and "'wrw' is not one of 'fwd', 'bwd'" in refused.stderr


def test_tables_for_people(cli: Cli) -> None:
    ranked = cli("upsample", "immediate", *SIZES)
    assert ranked.exit_code == 0, ranked.output
    first, *lines = ranked.stdout.splitlines()
    assert first == f"problem  {KEY}"
    ranks = [line.split()[:2] for line in lines if "Upsample" in line]
    assert [rank for rank, _ in ranks] == [str(place) for place in range(1, len(ranks) + 1)] and len(ranks) >= 4
    explained = cli("upsample", "explain", *SIZES, "-I", "NHWC")
    assert explained.exit_code == 0, explained.output
    assert explained.stdout.splitlines()[0].split() == ["problem", KEY.replace("NCHW", "NHWC")]
    assert {name for _, name in ranks} < {line.split()[0] for line in explained.stdout.splitlines() if line}
    assert "UpsampleEmptyBatch" in explained.stdout, "with its reason"


def test_an_empty_batch_has_a_trivial_answer(cli: Cli, db_path: Path) -> None:
    arguments = ("-n", "0", "-H", "9", "-W", "5", "--scale", "2")
    (found,) = loaded(cli, "upsample", "find", *arguments)
    assert (found["source"], [one["solver_id"] for one in found["results"]]) == ("trivial", ["UpsampleEmptyBatch"])
    (ranked,) = loaded(cli, "upsample", "immediate", *arguments)
    assert [one["solver_id"] for one in ranked["choices"]] == ["UpsampleEmptyBatch"]
    assert rows_in(db_path) == 0


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("upsample-bwd-bilinear-n2-c3-i9x5-o18x0-fp32-NCHW", "dy=(2, 3, 18, 0), dx=(2, 3, 9, 5)"),
        ("upsample-bwd-bilinear-n2-c3-i9x5-o18x10-fp32-NCHW-sh1.9", "height of dy must be"),
        ("upsample-bwd-bilinear-n2-c3-i9x5", "a key looks like upsample-bwd-bilinear"),
        ("upsample-wrw-bilinear-n2-c3-i9x5-o18x10-fp32-NCHW", "upsampl"),
    ],
)
def test_bad_keys_are_one_message_and_store_nothing(cli: Cli, db_path: Path, key: str, message: str) -> None:
    for command in ("find", "immediate", "explain"):
        result = cli(command, "--key", key)
        assert result.exit_code == 2 and result.stdout == ""
        assert message in result.stderr and result.stderr.startswith("hipfind: error: ")
    assert rows_in(db_path) == 0


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
        (("-H", "-9", "-W", "5", "--scale", "2"), "must not be negative (got lengths (1, 3, -9, 5))"),
        (("-n", "-1", "-H", "9", "-W", "5", "--scale", "2"), "must not be negative (got lengths (-1, 3, 9, 5))"),
        (("-c", "0", "-H", "9", "-W", "5", "--scale", "2"), "dy=(1, 0, 18, 10), dx=(1, 0, 9, 5)"),
        (("-H", "9", "-W", "5", "--scale", "0.1"), "dy=(1, 3, 0, 0), dx=(1, 3, 9, 5)"),
        (("-H", "9", "-W", "5", "--scale", "nan"), "scales must be finite numbers greater than 0 (got nan)"),
        (("-H", "9", "-W", "5", "--scale", "2", "--dtype", "int8"), "'int8' is not one of"),
        (("-H", "9", "-W", "5", "--scale", "2", "-I", "NCDHW"), "'NCDHW' is not one of"),
        (("-H", "9", "-W", "5", "--scale", "2", "--stride", "2"), "No such option"),
    ],
)
def test_wrong_use_is_one_message_and_stores_nothing(
    cli: Cli, db_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    for command, form in itertools.product(("find", "immediate", "explain"), ((), ("--json",))):
        result = cli("upsample", command, *arguments, *form)
        assert result.exit_code == 2
        assert message in result.stderr and result.stderr.startswith("hipfind: error: ")
        assert result.stdout == ""
    assert rows_in(db_path) == 0
