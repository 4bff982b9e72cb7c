"""record and capture: what a model's calls are, and the list of problems that tune takes."""

from __future__ import annotations

from pathlib import Path

import torch
from click.testing import CliRunner

import hipfind.torch as hft
from hipfind import settings
from hipfind.cli.main import main
from hipfind.problem.problem_list import read_list
from hipfind.torch import conv_operators, optimizer, upsample_operators
from hipfind.torch.recording import ConvCall, record
from tests.torch.models import UNet, X, small


def test_recording_sees_what_autocast_makes_and_leaves_buffers_alone() -> None:
    model = small()
    with torch.autocast("cpu", torch.bfloat16):
        calls = record(model, X).calls
    assert [next(iter(one)).x.dtype for one in calls.values()] == [torch.bfloat16] * 2
    assert int(model[1].num_batches_tracked) == 0 and not bool(model[1].running_mean.any())


def test_frozen_and_evaluated_models_run_fewer_directions() -> None:
    model = small()
    for one in model[0].parameters():
        one.requires_grad_(False)
    directions = {name: next(iter(calls)).directions for name, calls in record(model, X).calls.items()}
    assert directions == {"0": ("fwd",), "2": ("fwd", "bwd", "wrw")}
    model.eval()
    assert {next(iter(calls)).directions for calls in record(model, X).calls.values()} == {("fwd",)}


def test_captured_problems_are_what_runs_and_what_tune_takes(tmp_path: Path) -> None:
    model = UNet(4)
    captured = hft.capture(model, torch.randn(1, 3, 8, 8))
    path = tmp_path / "unet.yaml"
    captured.save(path)
    listed = read_list(path.read_text(), str(path))
    assert listed.errors == []
    assert [one.problem.key() for one in listed.problems] == [one.key() for one in captured.problems]
    assert len(listed.unique()) == len(captured.problems) == len(captured.modules)
    assert {one.operation for one in captured.problems} == {"conv", "upsample"}
    ran: set[str] = set()
    for operators in (conv_operators, upsample_operators):
        operators._calls._calls.clear()
    hft.optimize(model, torch.randn(1, 3, 8, 8), seconds=0.001, find_mode="fast", min_gain=0.0001, whole_step=False)
    model(torch.randn(1, 3, 8, 8)).square().sum().backward()
    for operators in (conv_operators, upsample_operators):
        ran |= {call.plan.problem.canonical().key() for call in operators._calls._calls.values()}
    assert ran <= {one.canonical().key() for one in captured.problems}
    with settings.override(user_db_path=str(tmp_path / "tune.db")):
        done = CliRunner().invoke(main, ["tune", "--dry-run", "--device", "host", str(path)], catch_exceptions=False)
    assert done.exit_code == 0 and f"{len(captured.problems)} problems on host" in done.output
    assert hft.capture(model.eval(), torch.randn(1, 3, 8, 8)).problems[0].direction == "fwd"


def test_captured_again_after_optimize_is_the_same() -> None:
    model, x = UNet(4), torch.randn(1, 3, 8, 8)
    before = hft.capture(model, x)
    hft.optimize(model)
    assert hft.capture(model, x) == before
    assert isinstance(next(iter(record(model, x).calls["head"])), ConvCall)
    assert optimizer.restore(model) == ["up"]
