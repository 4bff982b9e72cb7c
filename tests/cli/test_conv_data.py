"""The driver's files, buffer checks and the rest of its flags: what is taken works, what is not is refused by name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hipfind.cli import conv_guard
from hipfind.cli.conv import _REFUSED
from hipfind.device.host import HostDevice
from hipfind.find.operands import Operands
from hipfind.problem import ConvProblem
from hipfind.problem.driver_flags import FLAGS
from tests.cli.conftest import SMALL, Cli
from tests.helpers.process import ROOT

QUICK = ("-i", "1", "-S", "0")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def ok(cli: Cli, *arguments: str) -> list[dict[str, Any]]:
    result = cli(*arguments, "--json")
    assert result.exit_code == 0, result.output
    runs: list[dict[str, Any]] = json.loads(result.stdout, parse_constant=pytest.fail)
    return runs


def tensor(name: str, dtype: Any, lengths: tuple[int, ...], axes: tuple[int, ...] = (0, 1, 2, 3)) -> Any:
    """A dumped file as an array; ``axes`` from memory order to logical order."""
    return np.fromfile(name, dtype).reshape(lengths).transpose(axes).astype(np.float64)


def test_dumped_tensors_are_one_convolution(cli: Cli) -> None:
    runs = ok(cli, "conv", *SMALL, *QUICK, "-o", "1")
    assert [run["files"] for run in runs] == [
        ["dump_in.bin", "dump_wei.bin", "dump_fwd_out_gpu.bin", "dump_fwd_out_cpu.bin"],
        ["dump_dout.bin", "dump_wei.bin", "dump_bwd_din_gpu.bin", "dump_bwd_din_cpu.bin"],
        ["dump_dout.bin", "dump_in.bin", "dump_bwd_dwei_gpu.bin", "dump_bwd_dwei_cpu.bin"],
    ]
    x, w = tensor("dump_in.bin", np.float32, (2, 3, 6, 6)), tensor("dump_wei.bin", np.float32, (4, 3, 3, 3))
    dy = tensor("dump_dout.bin", np.float32, (2, 4, 4, 4))
    for direction, stem, lengths in (
        ("fwd", "dump_fwd_out", dy.shape), ("bwd", "dump_bwd_din", x.shape), ("wrw", "dump_bwd_dwei", w.shape),
    ):  # fmt: skip
        expected = ConvProblem.create(direction, x.shape, w.shape).reference({"x": x, "w": w, "y": dy})
        assert np.allclose(tensor(f"{stem}_gpu.bin", np.float32, lengths), expected, atol=1e-4)
        assert np.allclose(tensor(f"{stem}_cpu.bin", np.float32, lengths), expected, rtol=1e-6, atol=1e-6)


def test_files_hold_memory_order_and_the_problems_dtype(cli: Cli) -> None:
    layouts = ("--in_layout", "NHWC", "--fil_layout", "NHWC", "--out_layout", "NHWC")
    ok(cli, "convbfp16", *SMALL, *QUICK, "-o", "1", "-F", "1", *layouts)
    logical = (0, 3, 1, 2)
    x = tensor("dump_in.bin", ml_dtypes.bfloat16, (2, 6, 6, 3), logical)
    w = tensor("dump_wei.bin", ml_dtypes.bfloat16, (4, 3, 3, 3), logical)
    expected = ConvProblem.create("fwd", x.shape, w.shape).reference({"x": x, "w": w})
    assert np.allclose(tensor("dump_fwd_out_gpu.bin", ml_dtypes.bfloat16, (2, 4, 4, 4), logical), expected, atol=0.2)
    assert np.allclose(
        tensor("dump_fwd_out_cpu.bin", np.float32, (2, 4, 4, 4), logical), expected, rtol=1e-6, atol=1e-5
    )


def test_without_verification_no_reference_is_dumped(cli: Cli, own_folder: Path) -> None:
    ok(cli, "conv", *SMALL, *QUICK, "-F", "1", "-o", "1", "-V", "0")
    assert sorted(path.name for path in own_folder.iterdir()) == [
        "dump_fwd_out_gpu.bin", "dump_in.bin", "dump_wei.bin",
    ]  # fmt: skip


@pytest.mark.parametrize("mode", ["conv", "trans"])
def test_tensors_are_read_from_files(cli: Cli, mode: str) -> None:
    problems = ConvProblem.from_driver_command(f"conv {' '.join(SMALL)} -m {mode}")
    rng = np.random.default_rng(7)
    arrays = {role: rng.standard_normal(problems[0].tensor(role).lengths, np.float32) for role in "xwy"}
    for role, array in arrays.items():
        array.tofile(f"{role}.bin")
    runs = ok(cli, "conv", *SMALL, *QUICK, "-m", mode, "-o", "1", "-d", "x.bin", "-e", "w.bin", "-D", "y.bin")
    assert [run["verified"] for run in runs] == [True] * 3
    for problem, stem in zip(problems, ("dump_fwd_out", "dump_bwd_din", "dump_bwd_dwei"), strict=True):
        expected = problem.reference(arrays)
        assert np.allclose(tensor(f"{stem}_gpu.bin", np.float32, expected.shape), expected, atol=1e-4)
    for role, name in (("x", "dump_in.bin"), ("w", "dump_wei.bin"), ("y", "dump_dout.bin")):
        assert Path(name).read_bytes() == arrays[role].tobytes()


def test_nan_in_a_file_goes_where_the_reference_has_it(cli: Cli) -> None:
    x = np.ones((2, 3, 6, 6), np.float32)
    x[1, 2, 5, 5] = np.nan
    x.tofile("x.bin")
    (run,) = ok(cli, "conv", *SMALL, *QUICK, "-F", "1", "-d", "x.bin", "-o", "1")
    assert run["verified"] is True
    assert np.isnan(tensor("dump_fwd_out_gpu.bin", np.float32, (2, 4, 4, 4))).sum() == 4


def test_the_numerics_check_sees_the_runs_tensors(cli: Cli) -> None:
    x = np.ones((2, 3, 6, 6), np.float32)
    x[0, 0, 0, 0] = np.inf
    x.tofile("x.bin")
    result = cli("conv", *SMALL, *QUICK, "-F", "1", "-d", "x.bin", check_numerics="raise")
    assert result.exit_code == 1
    assert "NaN or Inf after a run: input x elements=216 zeros=0 nans=0 infs=1" in result.stderr


def test_files_that_do_not_fit_are_refused(cli: Cli) -> None:
    Path("short.bin").write_bytes(bytes(860))
    result = cli("conv", *SMALL, *QUICK, "-F", "1", "-d", "short.bin")
    assert result.exit_code == 1
    assert "short.bin must hold 864 bytes of fp32 for lengths (2, 3, 6, 6) (got 860 bytes)" in result.stderr
    result = cli("conv", *SMALL, *QUICK, "-F", "1", "-e", "none.bin")
    assert result.exit_code == 1
    assert "cannot be read: No such file" in result.stderr and "none.bin" in result.stderr
    result = cli("conv", *SMALL, *QUICK, "-F", "2", "-d", "short.bin")
    assert result.exit_code == 2
    assert "--in_data (-d) is a file for x, which the directions asked for do not read" in result.stderr
    assert not list(Path().glob("dump*"))


def test_a_folder_keeps_references(cli: Cli, own_folder: Path) -> None:
    ok(cli, "conv", *SMALL, *QUICK, "-C", "kept/here")
    names = sorted(path.name.rpartition("_")[0] for path in Path("kept/here").iterdir())
    assert names == ["conv_bwd_dat", "conv_bwd_wei", "conv_fwd_out"]
    (kept,) = Path("kept/here").glob("conv_fwd_out_*")
    right = np.fromfile(kept, np.float64)
    (right + 1).tofile(kept)
    wrong = cli("conv", *SMALL, *QUICK, "-F", "1", "-C", "kept/here")
    assert wrong.exit_code == 3, "the kept result is what the output is compared with"
    np.ones((2, 3, 6, 6), np.float32).tofile("x.bin")
    ok(cli, "conv", *SMALL, *QUICK, "-F", "1", "-C", "kept/here", "-d", "x.bin")  # other data: not that result
    kept.write_bytes(b"cut off")
    ok(cli, "conv", *SMALL, *QUICK, "-F", "1", "-C", "kept/here")
    assert np.array_equal(np.fromfile(kept, np.float64), right)


def test_a_folder_that_cannot_be_written(cli: Cli) -> None:
    Path("file").write_bytes(b"")
    result = cli("conv", *SMALL, *QUICK, "-F", "1", "-C", "file/inside")
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr


@pytest.mark.parametrize("solver", ["ConvDirectNaiveConvFwd", "GemmFwdRest"])
@pytest.mark.parametrize("side", ["1", "2"])
def test_a_buffer_check_lets_what_is_right_pass(cli: Cli, side: str, solver: str) -> None:
    (run,) = ok(cli, "conv", *SMALL, "-i", "1", "-F", "1", "-S", solver, "-~", side)
    assert run["overruns"] == [] and run["verified"] is True


@pytest.mark.parametrize(
    ("side", "where", "found"), [("1", "before", -4), ("2", "after", 1), ("1", "", 1), ("2", "", -4)]
)
def test_a_buffer_check_finds_a_write_outside(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, side: str, where: str, found: int
) -> None:
    poison = Operands.poison_output

    def stray(operands: Operands) -> None:
        poison(operands)
        memory = operands._memory[operands.problem.output]
        at = memory.address + (found if found < 0 else memory.nbytes + found)
        operands.device.copy_in(at, np.zeros(1, np.uint8))

    monkeypatch.setattr(Operands, "poison_output", stray)
    result = cli("conv", *SMALL, *QUICK, "-F", "1", "-~", side)
    assert "Forward Convolution Verifies OK" in result.stdout
    assert result.exit_code == (3 if where else 0)
    assert (f"Forward Convolution FAILED: {where} y memory was written" in result.stdout) == bool(where)


def test_margins_hold_nan() -> None:
    guards = conv_guard.Guards(HostDevice(), conv_guard.BACK)
    memory = guards.allocate(12)
    values = np.empty(1, np.float32)
    for at in (memory.address - 4, memory.address + 12):
        HostDevice().copy_out(values, at)
        assert np.isnan(values).all()


def test_a_tuning_policy_is_a_find_enforce(cli: Cli) -> None:
    sources = [
        ok(cli, "conv", *SMALL, "-i", "1", "-F", "1", *policy)[0]["source"]
        for policy in ((), (), ("-&", "3"), ("-&", "1"))
    ]
    assert sources == ["measured now", "user DB", "measured now", "user DB"]
    result = cli("conv", *SMALL, "-&", "6")
    assert result.exit_code == 2
    assert "--tuning_policy (-&) has no such value (got '6'); legal: 0, 1, 2, 3, 4, 5" in result.stderr


def test_a_graph_is_refused_where_the_device_records_none(cli: Cli) -> None:
    result = cli("conv", *SMALL, *QUICK, "-F", "1", "-J", "1")
    assert result.exit_code == 1
    assert (
        "host cannot record this solution as a graph" in result.stderr and "leave out --use_hip_graph" in result.stderr
    )


def test_a_recorded_graph_is_what_runs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    streams: list[int] = []

    def capture(self: HostDevice, run: Any) -> Any:
        return lambda stream: (streams.append(stream), run(stream))

    monkeypatch.setattr(HostDevice, "capture", capture)
    (run,) = ok(cli, "conv", *SMALL, "-i", "3", "-S", "0", "-F", "1", "-J", "1")
    assert run["verified"] is True
    assert streams == [0, 0, 0]


@pytest.mark.parametrize("flag", [flag for flag in FLAGS if flag.only or flag.long in _REFUSED], ids=lambda f: f.long)
def test_flags_that_hipfind_does_not_have_are_refused_with_the_reason(cli: Cli, flag: Any) -> None:
    value = str(flag.default + 1) if isinstance(flag.default, int) else "fp8"
    result = cli("conv", *SMALL, *QUICK, f"--{flag.long}", value)
    assert result.exit_code == 2
    assert f"--{flag.long} (-{flag.short})" in result.stderr
    assert (flag.only or _REFUSED[flag.long]) in result.stderr
    assert result.stdout == ""
    assert cli("conv", *SMALL, *QUICK, "-F", "1", f"--{flag.long}", str(flag.default)).exit_code == 0


def test_the_command_of_every_call_is_printed(cli: Cli) -> None:
    result = cli("conv", *SMALL, "-F", "2", "-i", "1", "--log-cmd", "--json")
    found, ran = result.stderr.splitlines()
    line = "hipfind conv -n 2 -c 3 -H 6 -W 6 -k 4 -y 3 -x 3 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 2 -t 1"
    assert found == f"hipfind: Command [LogCmdFind] {line}"
    assert ran == f"hipfind: Command [LogCmdRun] {line} -S {json.loads(result.stdout)[0]['solver_id']}"
    assert cli("conv", *SMALL, "-F", "2", "-i", "1").stderr == ""
    again = cli(*ran.partition("] hipfind ")[2].split(), "-i", "1")
    assert again.exit_code == 0 and "Verifies OK" in again.stdout


def test_the_map_tells_of_every_flag() -> None:
    text = (ROOT / "docs" / "miopen-map.md").read_text(encoding="utf-8")
    assert [flag.long for flag in FLAGS if f"`--{flag.long} -{flag.short}`" not in text] == []
    refused = [flag for flag in FLAGS if flag.only or flag.long in _REFUSED]
    rows = [line for line in text.splitlines() if "| refused:" in line]
    assert sorted(flag.long for flag in refused) == sorted(re.findall(r"`--(\w+) -.`", "".join(rows)))
