"""The driver: MIOpen's lines run, are verified, and print MIOpen-like lines."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hipfind.cli import conv_run
from hipfind.find.operands import Operands
from hipfind.problem import ConvProblem
from tests.cli.conftest import SMALL, Cli, rows_in

LOGGED = (
    "./bin/MIOpenDriver convbfp16 -n 4 -c 3 -H 14 -W 14 -k 32 -y 14 -x 14 -p 0 -q 0 -u 14 -v 14 -l 1 -j 1 "
    "--in_layout NHWC --fil_layout NHWC --out_layout NHWC -m conv -g 1 -F 4 -t 1"
)
LOGGED_3D = (
    "./bin/MIOpenDriver convfp16 -n 2 -c 4 --in_d 5 -H 5 -W 5 -k 8 --fil_d 4 -y 4 -x 4 --pad_d 0 -p 0 -q 0 "
    "--conv_stride_d 4 -u 4 -v 4 --dilation_d 1 -l 1 -j 1 --spatial_dim 3 -m conv -g 1 -F 2 -t 1"
)
LISTED = (
    "./bin/MIOpenDriver convfp16 --batchsize 2 --spatial_dim 2 --pad_h 2 --pad_w 2 --pad_d 0 --conv_stride_h 1 "
    "--conv_stride_w 1 --conv_stride_d 0 --dilation_h 1 --dilation_w 1 --dilation_d 0 --group_count 1 --mode conv "
    "--pad_mode default --trans_output_pad_h 0 --trans_output_pad_w 0 --trans_output_pad_d 0 --out_layout NCHW "
    "--in_d 1 --in_h 9 --in_w 9 --fil_d 1 --fil_h 5 --fil_w 5 --in_channels 4 --out_channels 6 --forw 4"
)


def as_hipfind(line: str) -> list[str]:
    return shlex.split(line.replace("./bin/MIOpenDriver", "hipfind"))[1:]


def loaded(cli: Cli, *arguments: str) -> list[dict[str, Any]]:
    result = cli(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout, parse_constant=pytest.fail)


@pytest.mark.parametrize("line", [LOGGED, LOGGED_3D], ids=["2D", "3D"])
def test_a_logged_line_runs(cli: Cli, line: str) -> None:
    result = cli(*as_hipfind(line))
    assert result.exit_code == 0, result.output
    printed, algorithm, time, iterations, names, numbers, verified = result.stdout.splitlines()
    assert ConvProblem.from_driver_command(printed) == ConvProblem.from_driver_command(line)
    title = "Backward Weights" if line == LOGGED else "Backward Data"
    assert re.fullmatch(
        rf"hipfind {title} Conv\. Algorithm: \w+, Solution: \w+(, Config: \S+)? \(measured now\)", algorithm
    )
    assert re.fullmatch(rf"GPU Kernel Time {title} Conv\. Elapsed: \d+\.\d{{6}} ms \(average\)", time)
    least, median, mean, most, gflops, gbytes = map(float, re.findall(r"(?<= )[\d.e+-]+(?=[, ])", iterations)[1:])
    assert least <= median <= most and least <= mean <= most
    shape = title.rpartition(" ")[2]
    assert re.fullmatch(rf"Backward Convolution {shape} Verifies OK on CPU reference \(\S+ < \S+\)", verified)
    stats = dict(zip(names.split(", "), numbers.split(", "), strict=True))
    (problem,) = ConvProblem.from_driver_command(line)
    by_name = {
        "n": problem.n, "c": problem.c, "k": problem.k, "ho": 1, "wo": 1,
        "x": problem.filter[-1], "y": problem.filter[-2],
        "flopCnt": problem.flops, "bytesWritten": problem.tensor(problem.output).nbytes,
        "bytesRead": sum(problem.tensor(role).nbytes for role in problem.inputs),
    }  # fmt: skip
    assert {name: int(stats[name]) for name in by_name} == by_name
    assert gflops == pytest.approx(problem.flops / median / 1e6, rel=0.01, abs=1e-3 * problem.flops)
    assert gbytes == pytest.approx(problem.min_bytes / median / 1e6, rel=0.01, abs=1e-3 * problem.min_bytes)


def test_a_line_of_a_list_of_layers_runs(cli: Cli) -> None:
    (run,) = loaded(cli, *as_hipfind(LISTED), "-i", "1")
    assert run["verified"] is True
    assert run["problem"] == ConvProblem.from_driver_command(LISTED)[0].key()


def test_the_second_run_answers_from_the_db(cli: Cli, db_path: Path) -> None:
    first = cli("conv", *SMALL, "-F", "1")
    rows = rows_in(db_path)
    second = cli("conv", *SMALL, "-F", "1")
    assert "(measured now)" in first.stdout
    assert "(user DB)" in second.stdout
    assert rows_in(db_path) == rows > 0
    assert "(measured now)" in cli("conv", *SMALL, "-F", "1", "-s", "1").stdout


def test_all_directions_are_verified(cli: Cli) -> None:
    result = cli("conv", *SMALL, "-i", "1", "-S", "0")
    assert result.exit_code == 0, result.output
    verified = [line for line in result.stdout.splitlines() if "Verifies OK" in line]
    assert [line.partition(" Verifies")[0] for line in verified] == [
        "Forward Convolution", "Backward Convolution Data", "Backward Convolution Weights",
    ]  # fmt: skip


@pytest.mark.parametrize("base", ["conv", "convfp16", "convbfp16", "convfp64"])
def test_dtypes_and_transposed_mode(cli: Cli, base: str) -> None:
    runs = loaded(cli, base, *SMALL, "-m", "trans", "-u", "2", "-v", "2", "-Y", "1", "-i", "1", "-S", "0")
    assert [run["verified"] for run in runs] == [True] * 3
    assert all(0 <= run["error"] <= run["limit"] < 0.01 for run in runs)


def test_a_solver_by_name_by_number_and_by_immediate_mode(cli: Cli, db_path: Path) -> None:
    naive = "ConvDirectNaiveConvFwd"
    for wanted in (naive, "85"):
        (run,) = loaded(cli, "conv", *SMALL, "-F", "1", "-i", "1", "-S", wanted)
        assert run["solver_id"] == naive
    (run,) = loaded(cli, "conv", *SMALL, "-F", "1", "-i", "1", "-S", "0")
    assert run["source"] == "WTI"
    assert not db_path.exists()


def test_a_solver_that_does_not_apply_is_a_failure_with_its_reason(cli: Cli) -> None:
    result = cli("conv", *SMALL, "-F", "1", "-S", "GemmBwdRest")
    assert result.exit_code == 1
    assert "GemmBwdRest cannot solve this problem: solves another direction" in result.stderr


def test_what_is_printed_is_chosen_by_flags(cli: Cli) -> None:
    def lines(*flags: str) -> list[str]:
        result = cli("conv", *SMALL, "-F", "1", "-i", "2", "-S", "0", *flags)
        assert result.exit_code == 0, result.output
        return [line.split()[0] for line in result.stdout.splitlines()]

    assert lines("-V", "0", "-P", "0") == ["hipfind"]
    assert lines("-V", "1", "-P", "0") == ["hipfind", "Forward"]
    assert lines("-V", "0", "-P", "0", "-t", "1", "-w", "1") == [
        "hipfind", "Wall-clock", "iterations:", "GPU", "iterations:", "stats:", "stats:",
    ]  # fmt: skip


def test_iterations_are_counted(cli: Cli) -> None:
    (run,) = loaded(cli, "conv", *SMALL, "-F", "1", "-i", "7", "-V", "0", "-S", "0")
    assert run["iterations"] == 7
    assert run["verified"] is None
    assert run["time_ms"] > 0
    assert run["wall_ms"] >= run["time_ms"]
    for times, mean in ((run["device_times"], run["time_ms"]), (run["wall_times"], run["wall_ms"])):
        assert times["min_ms"] <= times["median_ms"] <= times["max_ms"]
        assert times["mean_ms"] == mean
    assert run["gflops"] == pytest.approx(run["flops"] / run["device_times"]["median_ms"] / 1e6)
    moved = run["bytes_read"] + run["bytes_written"]
    assert run["gbytes_per_s"] == pytest.approx(moved / run["device_times"]["median_ms"] / 1e6)


@pytest.mark.parametrize("factor", [1.5, np.nan])
def test_a_wrong_result_is_a_failure_that_names_its_direction(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    read = Operands.read_output

    def spoiled(operands: Operands) -> Any:
        output = np.array(read(operands))
        if operands.problem.direction == "bwd":
            output[-1, -1, -1, -1] *= factor
        return output

    monkeypatch.setattr(Operands, "read_output", spoiled)
    result = cli("conv", *SMALL, "-i", "1", "-S", "0")
    assert result.exit_code == 3
    assert "Forward Convolution Verifies OK" in result.stdout
    assert re.search(r"^Backward Convolution Data FAILED: \S+ > \S+$", result.stdout, re.MULTILINE)
    assert "Backward Convolution Weights Verifies OK" in result.stdout


def test_an_output_that_nobody_writes_fails(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_run.Prepared, "run", lambda self: None)
    monkeypatch.setattr(conv_run.Prepared, "checked_run", lambda self: None)
    result = cli("conv", *SMALL, "-F", "1", "-i", "1", "-S", "0")
    assert result.exit_code == 3
    assert "Forward Convolution FAILED: nan > " in result.stdout


def test_an_empty_batch_is_legal(cli: Cli) -> None:
    runs = loaded(cli, "conv", *SMALL, "-n", "0", "-i", "1")
    assert [run["verified"] for run in runs] == [True] * 3
    assert {run["source"] for run in runs} == {"trivial"}
    assert {run["device"] for run in runs} == {"host"}
