"""What calls say: one line a decision in the log, silence by default, and the equivalent command where asked for."""

from __future__ import annotations

import logging
import pathlib
import shlex
from collections.abc import Iterator

import numpy as np
import pytest

import hipfind as hf
from hipfind import settings
from hipfind.find.calls import command_of
from hipfind.problem.driver import parse_command
from hipfind.problem.keys import problem_of_key
from hipfind.problem.problem_list import read_list
from tests.helpers.process import ROOT, run_python

PROBLEM = hf.ConvProblem.create("bwd", x=(2, 3, 6, 6), w=(4, 3, 3, 3), pad=1)
LINE = "hipfind conv -n 2 -c 3 -H 6 -W 6 -k 4 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 2 -t 1"


@pytest.fixture(autouse=True)
def own_db(tmp_path: pathlib.Path) -> Iterator[None]:
    with settings.override(user_db_path=str(tmp_path / "hipfind.db"), device="host"):
        yield


def test_find_immediate_and_plan_say_one_line_each(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="hipfind"):
        report = hf.find(PROBLEM)
        choices = hf.immediate(PROBLEM)
        plan = hf.plan(PROBLEM)
    assert report.best is not None
    where = f"problem={PROBLEM.key()} device=host"
    chosen = f"solver={plan.solver_id} time_ms={choices[0].time_ms:.6g}"
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.INFO] == [
        f"find {where} solver={report.best.solver_id} time_ms={report.best.time_ms:.6g} source=measured now",
        f"immediate {where} {chosen} source=user DB",
        f"plan {where} {chosen} source=user DB",
    ]
    assert {record.name for record in caplog.records} == {"hipfind.find"}


def test_a_problem_without_a_solver_says_so(caplog: pytest.LogCaptureFixture) -> None:
    problem = hf.ConvProblem.create("fwd", x=(2, 3, 6, 6), w=(4, 3, 3, 3), dtype="int8")
    with caplog.at_level(logging.INFO, logger="hipfind"):
        assert hf.immediate(problem) == []
    assert caplog.messages == [f"immediate problem={problem.key()} device=host solver=none time_ms=- source=-"]


def test_the_library_is_silent_by_default(tmp_path: pathlib.Path) -> None:
    code = (
        "import logging, hipfind as hf; logging.getLogger('hipfind.find').warning('not seen');"
        "hf.find(hf.ConvProblem.create('fwd', x=(2, 3, 6, 6), w=(4, 3, 3, 3)))"
    )
    done = run_python(["-c", code], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_call_is_printed_as_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    dy, w = np.ones(PROBLEM.y.lengths, np.float32), np.ones(PROBLEM.w.lengths, np.float32)
    with settings.override(log_cmd=True):
        hf.find(PROBLEM)
        hf.immediate(PROBLEM)
        plan = hf.plan(PROBLEM)
        plan(dy, w)
        hf.conv_bwd_data(dy, w, PROBLEM.x.lengths, pad=1)
        hf.upsample_bilinear2d_backward(np.ones((1, 2, 8, 8), np.float32), (4, 4))
    printed = capsys.readouterr().err.splitlines()
    forced = f"{LINE} -S {plan.solver_id}"
    assert printed[:5] == [
        f"hipfind: Command [LogCmdFind] {LINE}",
        f"hipfind: Command [LogCmdImmediate] {LINE} -S 0",
        f"hipfind: Command [LogCmdPlan] {forced}",
        f"hipfind: Command [LogCmdRun] {forced}",
        f"hipfind: Command [LogCmdRun] {forced}",
    ]
    assert printed[5].startswith("hipfind: Command [LogCmdRun] hipfind find --key upsample-") and len(printed) == 6
    assert {one.problem for one in read_list("\n".join(printed), "log").problems} == {PROBLEM}


def test_a_plan_made_before_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    dy, w = np.ones(PROBLEM.y.lengths, np.float32), np.ones(PROBLEM.w.lengths, np.float32)
    plan = hf.plan(PROBLEM)
    with settings.override(log_cmd=True):
        assert hf.plan(PROBLEM) is not plan
        capsys.readouterr()
        plan(dy, w)
    assert hf.plan(PROBLEM) is plan
    assert capsys.readouterr().err == ""


def test_commands_say_the_problem() -> None:
    assert parse_command(command_of(PROBLEM)).problems() == [PROBLEM]
    forced = parse_command(command_of(PROBLEM, "GemmBwdRest"))
    assert (forced.problems(), forced.solution) == ([PROBLEM], "GemmBwdRest")


@pytest.mark.parametrize("changes", [{"beta": 1.0}, {"deterministic": True}, {"x_strides": (108, 36, 6, 1)}])
def test_what_flags_cannot_say_is_named_by_key(changes: dict[str, object]) -> None:
    problem = hf.ConvProblem.create("fwd", **{"x": (2, 2, 6, 6), "w": (4, 2, 3, 3), **changes})  # type: ignore[arg-type]
    program, command, option, key, *rest = shlex.split(command_of(problem, "GemmFwdRest"))
    assert (program, command, option, rest) == ("hipfind", "find", "--key", ["--solver", "GemmFwdRest"])
    assert problem_of_key(key) == problem
    assert command_of(problem, "0").split()[:2] == ["hipfind", "immediate"]


def test_the_settings_page_names_every_source() -> None:
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert [source.value for source in hf.Source if f"`{source.value}`" not in text] == []
