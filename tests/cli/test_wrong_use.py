"""Wrong use: exit code 2, one sentence that names what was given, no traceback, nothing written to the DB."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import SMALL, Cli, rows_in

PROBLEM_COMMANDS = ("find", "immediate", "explain", "conv", "convbfp16")
WRONG_PROBLEMS = {
    "channels not divisible by groups": (("-c", "3", "-k", "4", "-g", "2"), "3, 4 and 2"),
    "no group at all": (("-g", "0"), "'0'"),
    "filter larger than the padded image": (("-H", "4", "-y", "7", "-p", "1"), "the filter is larger"),
    "dilated filter larger than the image": (("-H", "4", "-y", "3", "-l", "2"), "the filter is larger"),
    "stride of zero": (("-u", "0"), "stride"),
    "negative padding": (("-p", "-1"), "-1"),
    "no channels": (("-c", "0"), "0"),
    "negative batch": (("-n", "-4"), "-4"),
    "unknown layout": (("--in_layout", "HWCN"), "HWCN"),
    "layout of the other rank": (("--in_layout", "NDHWC"), "NDHWC"),
    "not a number": (("-n", "many"), "many"),
    "a fraction": (("-n", "2.5"), "2.5"),
    "unknown mode": (("-m", "deconv"), "deconv"),
    "direction out of range": (("-F", "9"), "9"),
    "four dimensions": (("--spatial_dim", "4"), "4"),
    "unknown long flag": (("--in_hight", "8"), "--in_hight"),
    "unknown short flag": (("-Q", "8"), "-Q"),
    "missing value": (("-n",), "-n"),
    "a word that is no flag": (("fast",), "fast"),
    "padding value": (("--pad_val", "1"), "--pad_val"),
    "bias": (("-b", "1"), "--bias"),
    "vector layout": (("-Z", "1"), "--tensor_vect"),
    "cast": (("-U", "fp8"), "--in_cast_type"),
}
WRONG_OPTIONS = {
    "unknown dtype": (("find", *SMALL, "--dtype", "fp8"), "fp8"),
    "unknown find mode": (("find", *SMALL, "--find-mode", "9"), "9"),
    "reserved find mode": (("find", *SMALL, "--find-mode", "4"), "4"),
    "unknown solver": (("find", *SMALL, "--solver", "GemmFwdRset"), "did you mean GemmFwdRest"),
    "unknown verification": (("find", *SMALL, "--verify", "sometimes"), "sometimes"),
    "no size": (("find", *SMALL, "--workspace-limit", "lots"), "lots"),
    "unknown solver to run": (("conv", *SMALL, "-F", "1", "-S", "GemmFwdRset"), "GemmFwdRset"),
    "number of no solver": (("conv", *SMALL, "-F", "1", "-S", "9999"), "9999"),
    "no iterations": (("conv", *SMALL, "-i", "0"), "--iter"),
    "driver flag that is not here": (("conv", *SMALL, "-G", "1"), "--gpualloc"),
    "file that nobody reads": (("conv", *SMALL, "-F", "2", "--in_data", "x.bin"), "--in_data"),
    "no problem": (("find",), "--key"),
    "only options": (("immediate", "--json"), "--key"),
    "not a key": (("find", "--key", "1-2-3"), "1-2-3"),
    "not an own key": (("find", "--key", "conv-fwd-n1"), "conv-fwd-n1"),
    "key and flags": (("find", "--key", "3-8-8-3x3-6-6-6-1-0x0-1x1-1x1-0-NCHW-FP32-F", "-n", "2"), "--batchsize"),
    "key that contradicts itself": (("explain", "--key", "3-8-8-3x3-6-9-6-1-0x0-1x1-1x1-0-NCHW-FP32-F"), "must be 6"),
    "unknown command": (("fnid",), "fnid"),
    "option of no command": (("solvers", "--all"), "--all"),
    "argument too many": (("devices", "host"), "host"),
}


@pytest.mark.parametrize("command", PROBLEM_COMMANDS)
@pytest.mark.parametrize(("flags", "named"), WRONG_PROBLEMS.values(), ids=WRONG_PROBLEMS)
def test_a_wrong_problem(cli: Cli, db_path: Path, command: str, flags: tuple[str, ...], named: str) -> None:
    _check(cli, db_path, (command, *SMALL, *flags), named)


@pytest.mark.parametrize(("arguments", "named"), WRONG_OPTIONS.values(), ids=WRONG_OPTIONS)
def test_a_wrong_option(cli: Cli, db_path: Path, arguments: tuple[str, ...], named: str) -> None:
    _check(cli, db_path, arguments, named)


@pytest.mark.parametrize("group", ["db", "upsample"])
def test_a_group_alone(cli: Cli, db_path: Path, group: str) -> None:
    _check(cli, db_path, (group,), "Missing command")


def test_wrong_use_leaves_what_was_stored(cli: Cli, db_path: Path) -> None:
    assert cli("find", *SMALL, "-F", "1").exit_code == 0
    before = rows_in(db_path)
    assert before > 0
    for arguments in (("-g", "2"), ("-F", "1", "--solver", "Nobody"), ("-F", "1", "--find-mode", "fastest")):
        assert cli("find", *SMALL, *arguments).exit_code == 2
    assert rows_in(db_path) == before


def _check(cli: Cli, db_path: Path, arguments: tuple[str, ...], named: str) -> None:
    result = cli(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (message,) = result.stderr.splitlines()
    assert message.startswith("hipfind: error: ")
    assert named in message
    assert "Traceback" not in message
    assert rows_in(db_path) == 0
