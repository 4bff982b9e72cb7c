"""optimize, restore and capture: what is swapped, what is left and why, what the report says, and what tune takes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hipfind.torch as hft
from hipfind.torch import conv_operators, racing, upsample_operators, whole
from hipfind.torch.modules import HipfindConv2d, swap
from hipfind.torch.racing import Racer, Timing
from hipfind.torch.recording import AnyCall, record
from hipfind.torch.whole import StepTimes
from tests.torch.models import UNet, X, small

RACE = whole.race
Times = dict[str, tuple[float, float | None]]


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Times], None]:
    """Gives every call the times that the test says: torch's and hipfind's by direction. Whole steps gain."""

    def set_times(times: Times) -> None:
        def time(self: Racer, call: AnyCall) -> tuple[Timing, ...]:
            return tuple(
                Timing(one, *times[one], "Some", "" if times[one][1] else "no solver applies")
                for one in call.directions
            )

        monkeypatch.setattr(Racer, "time", time)
        monkeypatch.setattr(whole, "race", lambda *_: StepTimes(2.0, 1.0))

    return set_times


class _NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> Any:
        raise RuntimeError("no gradient here")


class Broken(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _NoGradient.apply(x)


def directions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The directions that hipfind's operators are going to be asked for."""
    seen: list[str] = []
    run_conv = conv_operators.run_conv
    monkeypatch.setattr(conv_operators, "run_conv", lambda one, *rest: seen.append(one) or run_conv(one, *rest))
    return seen


def directions_by_torch(monkeypatch: pytest.MonkeyPatch, model: nn.Module) -> list[str]:
    """The directions that torch runs in a step of the model."""
    seen: list[str] = []
    by_torch = conv_operators._by_torch
    monkeypatch.setattr(conv_operators, "_by_torch", lambda one, *rest: seen.append(one) or by_torch(one, *rest))
    model(X.clone().requires_grad_()).sum().backward()
    return seen


def test_each_direction_goes_to_the_faster_one(timed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    timed({"fwd": (3.0, 1.0), "bwd": (1.0, 2.0), "wrw": (2.0, 1.95)})
    model, reference = small(), small()
    reference.load_state_dict(model.state_dict())
    report = hft.optimize(model, X)
    assert report.changed == ("0", "2") and report.left == {}
    assert [one.by_torch for one in report.decisions] == [("wrw",), ("bwd", "wrw")]
    assert directions_by_torch(monkeypatch, model) == ["bwd", "wrw", "wrw"]
    model.zero_grad()
    for one in (model, reference):
        one(X).square().sum().backward()
    for one, other in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ({"fwd": (1.0, 1.0), "bwd": (1.0, 3.0), "wrw": (1.0, 0.99)}, "torch's is as fast or faster"),
        ({"fwd": (1.0, None), "bwd": (1.0, None), "wrw": (1.0, None)}, "no solver applies"),
        ({"fwd": (10.0, 10.0), "bwd": (10.0, 10.0), "wrw": (1.0, 0.9)}, "torch's is as fast or faster"),
    ],
)
def test_what_is_not_worth_it_is_left_with_the_reason(timed: Any, times: Times, reason: str) -> None:
    timed(times)
    model = small()
    report = hft.optimize(model, X)
    assert report.changed == () and set(report.left) == {"0", "2"}
    assert all(one.startswith(reason) for one in report.left.values())
    assert type(model[0]) is nn.Conv2d


def test_the_report_is_a_table_and_data(timed: Any) -> None:
    timed({"fwd": (3.0, 1.0), "bwd": (1.0, 2.0), "wrw": (2.0, 0.5)})
    model = nn.Sequential(
        small(), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 2, 3, padding_mode="circular", padding=1)
    )
    report = hft.optimize(model, X)
    lines = str(report).splitlines()
    assert lines[:2] == [
        "3 modules by hipfind, 1 left as they were", "a whole step: 1 ms with hipfind, 2 ms by torch",
    ]  # fmt: skip
    rows = [" ".join(line.split()) for line in lines]
    call = "2x4x6x6 4x4x3x3 NCHW float32"
    assert f"0.2 and 1 more {call} fwd 3 1 3.00 hipfind Some" in rows
    assert f"0.2 and 1 more {call} bwd 1 2 0.50 torch Some" in rows
    assert "  2  Conv2d  padding_mode circular" in str(report)
    assert report.to_dict()["step"] == {"torch_ms": 2.0, "hipfind_ms": 1.0}
    data = report.to_dict()["decisions"]
    assert [one["module"] for one in data] == ["0.0", "0.2", "1", "2"] and data[3]["reason"] == "padding_mode circular"
    assert [one["gain"] for one in data[1]["timings"]] == [3.0, 0.5, 4.0]


def test_all_is_given_back_where_the_whole_step_is_slower(timed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    timed({"fwd": (3.0, 1.0), "bwd": (1.0, 2.0), "wrw": (2.0, 0.5)})
    for times, is_kept in ((StepTimes(1.0, 1.1), False), (StepTimes(1.0, 1.01), True)):
        monkeypatch.setattr(whole, "race", lambda *_, times=times: times)
        model = small()
        report = hft.optimize(model, X)
        assert report.changed == (("0", "2") if is_kept else ())
        assert report.step is times and (type(model[0]) is nn.Conv2d) != is_kept
        if not is_kept:
            assert report.left["2"].startswith("2.40 times as fast by itself, but the whole step is slower: ")
            assert "by_torch" not in model[2].__dict__
            assert hft.optimize(model, X, whole_step=False).changed == ("0", "2")
    monkeypatch.undo()


@pytest.mark.parametrize("training", [True, False])
def test_a_raced_step_leaves_the_model_as_it_was(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small().train(training)
    swap(model[0], ("fwd",))
    random, x = torch.get_rng_state(), X.clone().requires_grad_()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    ran = directions(monkeypatch)
    times = whole.race(model, x, [(model[0], ("fwd",))], seconds=0.0)
    assert times.torch_ms > 0 and times.hipfind_ms > 0
    assert set(ran) == ({"fwd", "bwd", "wrw"} if training else {"fwd"})
    assert all(torch.equal(model.state_dict()[name], one) for name, one in before.items())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(one.grad is None for one in (x, *model.parameters()))
    assert type(model[0]) is HipfindConv2d and model[0].by_torch == ("fwd",)


def test_a_step_that_does_not_run_is_a_note(timed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    timed({"fwd": (3.0, 1.0), "bwd": (3.0, 1.0), "wrw": (3.0, 1.0)})
    monkeypatch.setattr(whole, "race", RACE)
    model = nn.Sequential(small(), Broken())
    report = hft.optimize(model, X)
    assert report.changed == ("0.0", "0.2") and report.step is None
    assert report.notes[-1] == "A whole step was not timed, it does not run: no gradient here"
    assert type(model[0][0]) is HipfindConv2d


def test_times_on_a_cpu_with_spinning_threads_come_with_a_note(timed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    timed({"fwd": (3.0, 1.0), "wrw": (3.0, 1.0), "bwd": (3.0, 1.0)})
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    assert hft.optimize(small(), X).notes == ()  # torch has one thread here
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert "set OPENBLAS_THREAD_TIMEOUT=4 before" in str(hft.optimize(small(), X))
    monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", "4")
    assert hft.optimize(small(), X).notes == ()


def test_a_real_measurement_names_solvers_and_times() -> None:
    report = hft.optimize(
        UNet(4), torch.randn(1, 3, 8, 8), seconds=0.002, find_mode="fast", min_gain=0.0001, whole_step=False
    )
    assert report.left == {}
    for decision in report.decisions:
        assert decision.timings
        for one in decision.timings:
            assert one.torch_ms > 0 and one.hipfind_ms is not None and one.hipfind_ms > 0 and one.solver_id
    assert {one.direction for one in report.decisions[0].timings} == {"fwd", "wrw"}  # nobody asks for the image's


def test_both_forms_of_a_problem_are_measured_where_the_second_looks_better_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of an image with channels last and a filter without: as they lie, and once that is slow, packed first."""
    found: list[tuple[str, ...]] = []

    def choose(make: Any, *_: Any) -> tuple[Any, bool]:
        return make(bool(found)), bool(found)

    def find(problem: Any, *_: Any, **__: Any) -> None:
        found.append(problem.layouts)

    monkeypatch.setattr(racing, "choose", choose)
    monkeypatch.setattr(racing, "find", find)
    model = nn.Conv2d(3, 4, 3).requires_grad_(False)
    hft.optimize(model, X.to(memory_format=torch.channels_last), seconds=0.001, whole_step=False)
    assert found == [("NHWC", "NCHW", "NHWC"), ("NHWC", "NHWC", "NHWC")]


def test_a_find_is_stored_for_later(tmp_path: Path) -> None:
    model = nn.Conv2d(3, 4, 3)
    report = hft.optimize(model, X, seconds=0.001)
    assert (tmp_path / "hipfind.db").exists()
    window = "1,1/0,0/0,0/1,1/0,0/1/C/first/"
    call = conv_operators.call_of("fwd", X, model.weight.detach(), None, window)
    assert call.plan.choice.source.value == "user DB"
    assert call.plan.solver_id == report.decisions[0].timings[0].solver_id


def test_prediction_needs_no_example() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 4, 4), nn.Conv2d(8, 8, 2, 2, padding=1), nn.Conv3d(8, 8, 2, 2), nn.Conv2d(8, 8, 1),
        nn.ConvTranspose2d(8, 8, 2, 2), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Upsample(scale_factor=2),
    )  # fmt: skip
    report = hft.optimize(model)
    assert report.changed == ("0", "2", "5")
    assert report.left["6"] == "mode nearest, not bilinear" and "example" in report.left["3"]
    report.undo()
    assert hft.optimize(model.eval()).changed == ("0", "2", "5")
    assert hft.restore(model) == ["0", "2", "5"] and hft.restore(model) == []


class Own(nn.Conv2d):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return -super().forward(input)


@pytest.mark.parametrize(
    ("times", "by_torch"),
    [
        ({"fwd": (3.0, 1.0), "bwd": (3.0, 1.0)}, ()),
        ({"fwd": (1.0, 2.0), "bwd": (3.0, 1.0)}, ("fwd",)),
        ({"fwd": (3.0, 1.0), "bwd": (1.0, 2.0)}, ("bwd",)),
        ({"fwd": (1.0, 2.0), "bwd": (1.0, None)}, None),
    ],
)
def test_each_direction_of_an_upsampling_goes_to_the_faster_one(
    timed: Any, monkeypatch: pytest.MonkeyPatch, times: Times, by_torch: tuple[str, ...] | None
) -> None:
    timed(times)
    model = nn.UpsamplingBilinear2d(scale_factor=2)
    report = hft.optimize(model, X.clone().requires_grad_())
    assert report.changed == (() if by_torch is None else ("",))
    if by_torch is None:
        assert report.left[""] == "no solver applies"
        return
    assert report.decisions[0].by_torch == by_torch
    ran: list[str] = []
    run = upsample_operators._run
    monkeypatch.setattr(upsample_operators, "_run", lambda one, *rest: ran.append(one) or run(one, *rest))
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 3, 12, 12, dtype=torch.float64)
    y, expected = model(x), F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
    torch.testing.assert_close(y, expected)
    gradients = (torch.autograd.grad((one * weights).sum(), x)[0] for one in (y, expected))
    torch.testing.assert_close(*gradients)
    assert ran == [one for one in ("fwd", "bwd") if one not in by_torch]
    assert torch.autograd.gradgradcheck(model, x)
    report.undo()
    assert "by_torch" not in model.__dict__ and type(model) is nn.UpsamplingBilinear2d


def test_an_upsampling_counts_its_forward_pass_where_nobody_asks_for_gradients() -> None:
    model = nn.Upsample(scale_factor=2, mode="bilinear")
    for given, expected in ((X, ("fwd",)), (X.clone().requires_grad_(), ("fwd", "bwd"))):
        assert {next(iter(calls)).directions for calls in record(model, given).calls.values()} == {expected}
    keys = [one.key() for one in hft.capture(model, X).problems]
    assert keys == ["upsample-fwd-bilinear-n2-c3-i6x6-o12x12-fp32-NCHW"]


def test_unsupported_modules_are_left_and_named() -> None:
    weights = nn.Conv2d(2, 2, 2, 2)
    weights.weight = nn.Parameter(torch.zeros(2, 2, 2, 2).to_sparse())
    replaced = nn.Conv2d(2, 2, 2, 2)
    replaced.forward = lambda x: x
    cases: list[tuple[nn.Module, str]] = [
        (nn.Conv2d(2, 2, 2, 2, padding_mode="circular"), "padding_mode circular"),
        (nn.Conv2d(2, 2, 2, 2, dtype=torch.complex64), "complex numbers (torch.complex64)"),
        (weights, "sparse weights (torch.sparse_coo)"),
        (replaced, "its forward was replaced"),
        (nn.Conv1d(2, 2, 2, 2), "Conv1d is not supported"),
        (nn.ConvTranspose3d(2, 2, 2, 2), "ConvTranspose3d is not supported"),
        (nn.LazyConv2d(2, 2, 2), "LazyConv2d is not supported"),
        (Own(2, 2, 2, 2), "Own, a subclass of Conv2d, may do something else"),
        (nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 2, 2, 2)),
         "ParametrizedConv2d, a subclass of Conv2d, may do something else"),
        (nn.Upsample(scale_factor=2, mode="bicubic"), "mode bicubic, not bilinear"),
    ]  # fmt: skip
    model = nn.ModuleList([module for module, _ in cases])
    kinds = [type(module) for module in model]
    assert hft.optimize(model).left == {str(index): reason for index, (_, reason) in enumerate(cases)}
    assert [type(module) for module in model] == kinds


def test_quantized_modules_are_left() -> None:
    class Quantized(nn.Conv2d):
        pass

    Quantized.__module__ = "torch.ao.nn.quantized.modules.conv"
    assert hft.optimize(nn.ModuleList([Quantized(2, 2, 2, 2)])).left == {"0": "quantized"}


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv2d(3, 4, 3)
        self.unused = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.interpolate(self.inner(x), scale_factor=2, mode="bilinear")
        return F.conv2d(y, self.inner.weight.sum((2, 3), keepdim=True)[:, :1].expand(4, 4, 1, 1))


def test_calls_of_functions_and_modules_that_were_not_called_are_listed(timed: Any) -> None:
    timed({"fwd": (2.0, 1.0), "bwd": (2.0, 1.0), "wrw": (2.0, 1.0)})
    report = hft.optimize(Functional(), X)
    assert report.changed == ("inner",)
    assert report.left["unused"] == "not called with the example input"
    assert "call of a function" in report.left[""]
    assert "(the model itself)" in str(report)


def test_swapped_modules_behave_as_before(timed: Any) -> None:
    timed({"fwd": (2.0, 1.0), "bwd": (2.0, 1.0), "wrw": (2.0, 1.0)})
    model = small()
    seen: list[str] = []
    model[0].register_forward_hook(lambda *_: seen.append("hook"))
    hft.optimize(model, X, whole_step=False)
    assert isinstance(model[0], nn.Conv2d) and "HipfindConv2d(3, 4" in repr(model)
    assert seen == ["hook"] and model(X) is not None and seen == ["hook"] * 2
    model[0]._forward_hooks.clear()
    copy = pickle.loads(pickle.dumps(model))
    torch.testing.assert_close(copy.eval()(X), model.eval()(X))
    assert model.double()[0].weight.dtype is torch.float64
    assert hft.optimize(model, X.double()).left["0"] == "hipfind does it already"
    assert hft.restore(copy) == ["0", "2"] and "by_torch" not in copy[0].__dict__


def test_transposed_modules_take_an_output_size(timed: Any) -> None:
    timed({"fwd": (2.0, 1.0), "bwd": (2.0, 1.0), "wrw": (2.0, 1.0)})
    model = nn.ConvTranspose2d(3, 4, 3, stride=2)
    expected = model(X, output_size=(14, 14))
    assert hft.optimize(model, X).changed == ("",)
    torch.testing.assert_close(model(X, output_size=(14, 14)), expected)
