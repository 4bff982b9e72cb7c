"""The log of a command: on stderr, at the level that the setting names, gone afterwards."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from hipfind.errors import SettingError
from tests.cli.conftest import SMALL, Cli
from tests.helpers.process import run_python


def test_info_shows_one_line_a_decision(cli: Cli) -> None:
    result = cli("find", *SMALL, "-F", "1", log_level="info")
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("hipfind: info: find problem=conv-fwd-n2-c3-k4-") and line.endswith(" source=measured now")
    (line,) = cli("immediate", *SMALL, "-F", "1", log_level="info").stderr.splitlines()
    assert line.startswith("hipfind: info: immediate problem=conv-fwd-") and line.endswith(" source=user DB")


@pytest.mark.parametrize("level", ["warning", "off", "error"])
def test_a_decision_is_not_said_at_other_levels(cli: Cli, level: str) -> None:
    assert cli("find", *SMALL, "-F", "1", log_level=level).stderr == ""


def test_the_logger_is_left_as_it_was(cli: Cli) -> None:
    logger = logging.getLogger("hipfind")
    before = (logger.level, list(logger.handlers))
    cli("find", *SMALL, "-F", "1", log_level="debug")
    assert (logger.level, list(logger.handlers)) == before


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("HIPFIND_LOG_LEVEL", "loud", "HIPFIND_LOG_LEVEL must be one of off, error"),
        ("HIPFIND_CHECK_NUMERICS", "8", "HIPFIND_CHECK_NUMERICS must be a sum of 1"),
    ],
)
def test_a_wrong_variable_is_wrong_use_and_help_still_comes(
    tmp_path: Path, variable: str, value: str, said: str
) -> None:
    done = run_python(["-m", "hipfind", "immediate", *SMALL], tmp_path, **{variable: value})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"hipfind: error: {said}") and len(done.stderr.splitlines()) == 1
    assert run_python(["-m", "hipfind", "--help"], tmp_path, **{variable: value}).returncode == 0


def test_a_wrong_level_is_refused(cli: Cli) -> None:
    with pytest.raises(SettingError, match="HIPFIND_LOG_LEVEL must be one of off, error, warning, info, debug"):
        cli("find", *SMALL, log_level="loud")
