"""MIOpen's lists of model layers through ``hipfind conv``: a hundred with the batch cut, each right in float64."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from benchmarks import driver_lines
from benchmarks.driver_lines import Line, Result
from hipfind import settings
from tests.helpers.shared import needs_shared, shared_dir

COUNT = 100
MOST_FLOPS = 60_000_000
"""An operation count at which a line takes a tenth of a second on two cores, its float64 reference included."""


@pytest.fixture(autouse=True)
def memory_only() -> Any:
    with settings.override(disable_user_db=True, device="host"):
        yield


@needs_shared
def test_a_sample_of_the_lines_is_right() -> None:
    lines = driver_lines.cut(driver_lines.read_lines([shared_dir() / "data" / "miopen" / "driver_commands"]))
    assert sum(line.count for line in lines) == 4897
    small = [line for line in lines if line.flops <= MOST_FLOPS]
    results = [driver_lines.run_line(line) for line in random.Random(0).sample(small, COUNT)]
    assert driver_lines.failures(results) == []
    assert len({run["solver_id"] for one in results for run in one.runs}) >= 6
    assert {run["problem"].split("-")[1] for one in results for run in one.runs} == {"fwd", "bwd", "wrw"}


def line(text: str) -> Line:
    (found,) = driver_lines.cut([text])
    return found


def test_lines_are_cut_and_counted() -> None:
    same = "./bin/MIOpenDriver conv -n {} -c 3 -H 8 -W 8 -k 4 -F 1"
    found = driver_lines.cut([same.format(8), same.format(64), "MIOpenDriver convfp16 -n 2 -c 3 -H 8 -W 8 -k 4 -F 3"])
    assert [(one.words[0], one.count) for one in found] == [("conv", 2), ("convfp16", 1)]
    assert found[0].flops == 2 * 6 * 6 * 4 * 3 * 9
    assert found[0].words[-6:] == ("-n", "1", "-i", "1", "-S", "0")


def test_what_fails_is_told_with_its_reason() -> None:
    right = driver_lines.run_line(line("conv -c 3 -H 8 -W 8 -k 4"))
    assert right.is_right and len(right.runs) == 3
    unknown = driver_lines.run_line(Line(("conv", "-S", "NoSuchSolver"), 0))
    assert (unknown.outcome, unknown.code) == ("wrong use", 2)
    wrong = Result(right.line, 3, "", ({**right.runs[0], "verified": False, "error": 0.5},))
    silent = dataclasses.replace(right, runs=({**right.runs[0], "verified": None},))
    told = driver_lines.failures([right, unknown, wrong, silent])
    assert len(told) == 3
    assert "NoSuchSolver" in told[0] and "error 0.5, limit" in told[1] and told[2].startswith("not verified")
    assert {row["outcome"]: row["lines"] for row in driver_lines.table([right, wrong])} == {
        "right": 1,
        "wrong result": 1,
    }


def test_a_crash_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    from hipfind.cli import conv

    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(conv, "run_conv", fail)
    crashed = driver_lines.run_line(line("conv -c 3 -H 8 -W 8 -k 4"))
    assert (crashed.outcome, crashed.message) == ("failed", "ZeroDivisionError: a bug")


def test_lines_run_in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPFIND_DISABLE_USER_DB", "1")
    lines = driver_lines.cut(["conv -c 3 -H 8 -W 8 -k 4 -F 1", "convbfp16 -c 3 -H 8 -W 8 -k 4 -F 2"])
    results = list(driver_lines.run_all(lines, 2))
    assert driver_lines.failures(results) == [] and {one.line for one in results} == set(lines)
