"""Exit codes and messages of failures that are not wrong use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import hipfind.errors as errors
from hipfind.find import api
from tests.cli.conftest import SMALL, Cli
from tests.helpers.process import clean_environment, run_python


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (errors.DeviceError("the device is not there", got="hip:7"), 1, "the device is not there (got hip:7)"),
        (errors.OutOfMemoryError("no room", got="9 GiB"), 1, "no room (got 9 GiB)"),
        (errors.NoSolutionError("nothing applies"), 1, "nothing applies"),
        (errors.PerfDbError("no file", got="x.db"), 1, "no file (got x.db)"),
        (errors.ProblemError("wrong shape", got="5"), 2, "wrong shape (got 5)"),
        (errors.SettingError("HIPFIND_X must be 1", got="2"), 2, "HIPFIND_X must be 1 (got 2)"),
        (errors.UnknownSolverError("unknown solver", got="X"), 2, "unknown solver (got X)"),
        (MemoryError("Unable to allocate 9 GiB"), 1, "not enough memory: Unable to allocate 9 GiB"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_errors_become_messages(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(api, "immediate", fail)
    result = cli("immediate", *SMALL)
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.strip() == f"hipfind: error: {said}"


def test_a_bug_is_not_hidden(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(api, "immediate", fail)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        cli("immediate", *SMALL)


def test_an_unknown_device_fails(cli: Cli) -> None:
    result = cli("immediate", *SMALL, "--device", "abacus")
    assert result.exit_code in (1, 2)
    assert "abacus" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_help_and_version(cli: Cli) -> None:
    for arguments in ((), ("--help",), ("-h",)):
        shown = cli(*arguments)
        assert shown.exit_code == 0
        assert all(name in shown.output for name in ("find", "immediate", "explain", "convbfp16", "devices", "db"))
    assert cli("--version").output.startswith("hipfind 0.")
    assert "--in_channels" in cli("conv", "--help").output


def test_a_wrong_setting_in_the_environment_is_wrong_use(tmp_path: Path) -> None:
    done = run_python(["-m", "hipfind", "immediate", *SMALL], tmp_path, HIPFIND_FIND_MODE="QUICK")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("hipfind: error: HIPFIND_FIND_MODE must be one of NORMAL (1)")
    assert len(done.stderr.splitlines()) == 1


def test_a_db_fault_is_one_warning_and_the_answer_stands(tmp_path: Path) -> None:
    not_a_folder = tmp_path / "file"
    not_a_folder.write_text("")
    done = run_python(
        ["-m", "hipfind", "find", *SMALL, "-F", "1"],
        tmp_path,
        HIPFIND_USER_DB_PATH=str(not_a_folder / "perf.db"),
        PYTHONWARNINGS="default",
    )
    assert done.returncode == 0, done.stderr
    assert "measured now" in done.stdout
    (warning,) = done.stderr.splitlines()
    assert warning.startswith("hipfind: warning: ")
    assert str(not_a_folder) in warning


@pytest.mark.parametrize("arguments", [("solvers",), ("--help",), ("explain", *SMALL, "--json")])
def test_a_reader_that_leaves_early_is_no_error_message(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "hipfind", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(tmp_path),
    )
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, said = process.communicate(timeout=60)
    assert said == b""
    assert process.returncode == 1
