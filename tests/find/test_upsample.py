"""Resizing gradients through the engine of convolutions: one-shot function, find, immediate mode, plans, perf DB."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import hipfind as hf
from hipfind import settings
from hipfind.errors import ArrayError, NotApplicableError, ProblemError
from hipfind.perfdb.queries import problem_records
from hipfind.perfdb.store import PerfDb
from hipfind.problem import UpsampleProblem, tolerance
from tests.helpers.arrays import make_arrays

Array = npt.NDArray[Any]
SIZES = {"x": (2, 8, 16, 12), "y": (2, 8, 32, 24)}
EVERY = {"UpsampleBwdBlock", "UpsampleBwdSeparable", "UpsampleBwdScatter", "UpsampleBwdGather", "UpsampleBwdWhole"}


@pytest.fixture(autouse=True)
def db_path(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    path = tmp_path / "hipfind.db"
    with settings.override(user_db_path=str(path), device="host"):
        yield path


def gradient(*lengths: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(7).standard_normal(lengths).astype(dtype)


def assert_right(out: Array, dy: Array, **more: Any) -> None:
    problem = UpsampleProblem.create("bwd", out.shape, dy.shape, dtype=dy.dtype, **more)
    arrays = {"dy": dy}
    assert tolerance.judge(problem, arrays, out, problem.reference(arrays)).ok


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("align_corners", [False, True])
def test_the_one_shot_function(dtype: Any, align_corners: bool) -> None:
    dy = gradient(2, 3, 18, 10, dtype=dtype)
    out = hf.upsample_bilinear2d_backward(dy, (9, 5), align_corners)
    assert out.shape == (2, 3, 9, 5) and out.dtype == dy.dtype
    assert_right(out, dy, align_corners=align_corners)


@pytest.mark.parametrize("scales", [(1.7, 2.5), [1.7, None]])
def test_scale_factors_change_the_coordinates(scales: Any) -> None:
    dy = gradient(1, 2, 15, 12)
    out = hf.upsample_bilinear2d_backward(dy, [9, 5], scales=scales)
    assert_right(out, dy, scales=scales)
    assert not np.allclose(out, hf.upsample_bilinear2d_backward(dy, [9, 5]))


def test_channel_last_gradients_give_channel_last_results() -> None:
    dy = gradient(2, 18, 10, 3).transpose(0, 3, 1, 2)
    out = hf.upsample_bilinear2d_backward(dy, (9, 5))
    assert out.transpose(0, 2, 3, 1).flags.c_contiguous
    assert_right(out, dy)


def test_out_may_have_any_strides() -> None:
    dy, whole = gradient(2, 3, 18, 10), np.full((2, 3, 9, 11), np.nan, np.float32)
    out = whole[..., 1::2]
    assert hf.upsample_bilinear2d_backward(dy, (9, 5), out=out) is out
    assert_right(out, dy)
    assert np.isnan(whole[..., 0::2]).all()


def test_an_expanded_gradient_and_an_empty_batch() -> None:
    dy = np.broadcast_to(np.float32(0.5), (2, 3, 18, 10))
    assert np.array_equal(hf.upsample_bilinear2d_backward(dy, (9, 5)), np.full((2, 3, 9, 5), 2.0))
    assert hf.upsample_bilinear2d_backward(gradient(0, 3, 18, 10), (9, 5)).shape == (0, 3, 9, 5)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("scale", [2.0, 0.5, 1.7])
def test_it_is_torchs_function(scale: float, layout: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    form = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    x = torch.randn(2, 4, 20, 14, dtype=torch.float64).contiguous(memory_format=form).requires_grad_()
    y = torch.nn.functional.interpolate(x, scale_factor=scale, mode="bilinear")
    dy = torch.randn_like(y).contiguous(memory_format=form)
    y.backward(dy)
    out = hf.upsample_bilinear2d_backward(dy, (20, 14), scales=scale)
    assert isinstance(out, torch.Tensor) and out.stride() == x.stride()
    assert torch.allclose(out, x.grad, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("shape", "size", "more", "message"),
    [
        ((2, 3, 18, 10), (9,), {}, "input_size needs 2 numbers: height and width"),
        ((2, 3, 18, 10), (9, 0), {}, r"sizes of 1 or more.*dy=\(2, 3, 18, 10\), dx=\(2, 3, 9, 0\)"),
        ((2, 3, 18, 10), (-9, 5), {}, "must not be negative"),
        (
            (2, 3, 18, 10),
            (9, 5),
            {"scales": 1.9},
            r"height of dy must be .* 17 .*dx=\(2, 3, 9, 5\), dy=\(2, 3, 18, 10\)",
        ),
        ((2, 3, 1, 18, 10), (9, 5), {}, r"need 4 lengths .*dy=\(2, 3, 1, 18, 10\), dx=\(2, 3, 9, 5\)"),
        ((18, 10), (9, 5), {}, "a tensor has 4 dimensions"),
    ],
)
def test_bad_sizes_are_named(shape: tuple[int, ...], size: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        hf.upsample_bilinear2d_backward(np.zeros(shape, np.float32), size, **more)


def test_an_output_of_the_wrong_shape_or_dtype_is_refused() -> None:
    dy = gradient(2, 3, 18, 10)
    with pytest.raises(ArrayError, match=r"dx must have lengths \(2, 3, 9, 5\) \(got \(2, 3, 9, 6\)\)"):
        hf.upsample_bilinear2d_backward(dy, (9, 5), out=np.zeros((2, 3, 9, 6), np.float32))
    with pytest.raises(ArrayError, match=r"dx must be fp32 \(got fp64\)"):
        hf.upsample_bilinear2d_backward(dy, (9, 5), out=np.zeros((2, 3, 9, 5), np.float64))


def test_find_stores_what_immediate_mode_and_plans_answer_from(db_path: pathlib.Path) -> None:
    problem = hf.UpsampleProblem.create("bwd", **SIZES)
    before = hf.immediate(problem)
    assert before[0].solver_id == "UpsampleBwdBlock" and before[0].source is hf.Source.WTI
    report = hf.find(problem, mode="normal")
    assert report.source is hf.Source.MEASURED and report.stored
    outcomes = {one.solver_id: one.outcome for one in report.candidates}
    # dy is not empty; strips are for GPUs
    for other in ("UpsampleEmptyBatch", "UpsampleBwdStrip", "UpsampleFwdLines", "UpsampleFwdDirect"):
        assert outcomes.pop(other) is hf.Outcome.NOT_APPLICABLE
    assert set(outcomes) == EVERY
    assert set(outcomes.values()) <= {hf.Outcome.WON, hf.Outcome.LOST, hf.Outcome.SKIPPED_SLOW}
    assert report.best is not None

    assert hf.find(problem).source is hf.Source.USER_DB
    choice = hf.immediate(problem)[0]
    assert (choice.solver_id, choice.source) == (report.best.solver_id, hf.Source.USER_DB)
    arrays = make_arrays(problem, seed=1)
    plan = hf.plan(problem)
    assert plan.solver_id == report.best.solver_id
    assert tolerance.judge(problem, arrays, plan(arrays["dy"]), problem.reference(arrays)).ok
    with PerfDb.open(db_path, read_only=True) as db:
        (stored,) = problem_records(db, problem.key())
    facts = {
        name: stored.columns[name] for name in ("operation", "direction", "dtype", "layout", "n", "c", "k", "input")
    }
    assert facts == {"operation": "upsample", "direction": "bwd", "dtype": "fp32", "layout": "NCHW", "n": 2, "c": 8,
                     "k": None, "input": "16x12"}  # fmt: skip


def test_a_forward_find_is_stored_beside_the_gradients(db_path: pathlib.Path) -> None:
    forward, backward = (hf.UpsampleProblem.create(direction, **SIZES) for direction in ("fwd", "bwd"))
    assert hf.immediate(forward)[0].solver_id == "UpsampleFwdLines"
    report = hf.find(forward, mode="normal", verify="always")
    ran = {one.solver_id: one.outcome for one in report.candidates if one.outcome is not hf.Outcome.NOT_APPLICABLE}
    assert set(ran) == {"UpsampleFwdLines", "UpsampleFwdDirect"}
    assert set(ran.values()) <= {hf.Outcome.WON, hf.Outcome.LOST, hf.Outcome.SKIPPED_SLOW}
    assert hf.immediate(forward)[0].source is hf.Source.USER_DB
    assert hf.immediate(backward)[0].source is hf.Source.WTI
    arrays = make_arrays(forward, seed=1)
    out = hf.plan(forward)(arrays["x"])
    assert tolerance.judge(forward, arrays, out, forward.reference(arrays)).ok
    with PerfDb.open(db_path, read_only=True) as db:
        (stored,) = problem_records(db, forward.key())
    assert (stored.columns["operation"], stored.columns["direction"]) == ("upsample", "fwd")


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("align_corners", [False, True])
def test_the_one_shot_forward_function(dtype: Any, align_corners: bool) -> None:
    x = gradient(2, 3, 9, 5, dtype=dtype)
    out = hf.upsample_bilinear2d(x, (18, 10), align_corners)
    problem = UpsampleProblem.create("fwd", x.shape, out.shape, dtype=x.dtype, align_corners=align_corners)
    assert out.shape == (2, 3, 18, 10) and out.dtype == x.dtype
    assert tolerance.judge(problem, {"x": x}, out, problem.reference({"x": x})).ok


def test_an_empty_batch_stays_empty() -> None:
    assert hf.upsample_bilinear2d(np.zeros((0, 3, 9, 5), np.float32), scales=2).shape == (0, 3, 18, 10)


@pytest.mark.parametrize(
    "name", ["UpsampleBwdBlock", "UpsampleBwdSeparable", "UpsampleBwdScatter", "UpsampleBwdGather"]
)
def test_a_solver_can_be_forced(name: str) -> None:
    problem = hf.UpsampleProblem.create("bwd", **SIZES, dtype="bf16", layout="NHWC")
    arrays = make_arrays(problem, seed=2)
    plan = hf.plan(problem, solver=name)
    assert plan.solver_id == name
    assert tolerance.judge(problem, arrays, plan(arrays["dy"]), problem.reference(arrays)).ok


def test_solvers_of_one_operation_refuse_problems_of_another() -> None:
    resize, conv = hf.UpsampleProblem.create("bwd", **SIZES), hf.ConvProblem.create("fwd", (1, 2, 5, 5), (2, 2, 3, 3))
    with pytest.raises(NotApplicableError, match="solves another operation"):
        hf.plan(resize, solver="GemmBwdRest")
    with pytest.raises(NotApplicableError, match="solves another operation"):
        hf.plan(conv, solver="UpsampleBwdGather")
    assert {one.solver_id for one in hf.explain(resize)}.isdisjoint(one.solver_id for one in hf.explain(conv))


def test_a_workspace_limit_leaves_solvers_without_one() -> None:
    problem = hf.UpsampleProblem.create("bwd", **SIZES)
    assert [one.workspace_bytes for one in hf.immediate(problem, workspace_limit=0)] == [0, 0, 0]


def test_arrays_that_do_not_fit_a_plan_are_refused_by_what_differs() -> None:
    plan = hf.plan(hf.UpsampleProblem.create("bwd", (2, 3, 9, 5), (2, 3, 18, 10)))
    dy = gradient(2, 3, 18, 10)
    for bad, message in (
        (gradient(2, 3, 18, 11), r"dy must have lengths \(2, 3, 18, 10\) \(got \(2, 3, 18, 11\)\)"),
        (gradient(2, 3, 9, 5), r"dy must have lengths \(2, 3, 18, 10\) \(got \(2, 3, 9, 5\)\)"),
        (dy.astype(np.float64), r"dy must be fp32 \(got fp64\)"),
        (gradient(2, 18, 10, 3).transpose(0, 3, 1, 2), r"dy must have strides \(540, 180, 10, 1\) .*540, 1, 30, 3"),
    ):
        with pytest.raises(ArrayError, match=message):
            plan(bad)
    with pytest.raises(ArrayError, match=r"takes 1 arrays: dy \(got 2\)"):
        plan(dy, dy)
    with pytest.raises(ArrayError, match=r"dx must have lengths \(2, 3, 9, 5\) \(got \(2, 3, 9, 6\)\)"):
        plan(dy, out=gradient(2, 3, 9, 6))


def test_explain_has_estimates_reasons_and_afterwards_records() -> None:
    problem = hf.UpsampleProblem.create("bwd", **SIZES, x_strides=(3000, 350, 20, 1), y_strides=(9000, 1100, 2, 45))
    before = {one.solver_id: one for one in hf.explain(problem)}
    assert {name for name, one in before.items() if one.applicable} == {"UpsampleBwdGather", "UpsampleBwdScatter"}
    for one in before.values():
        assert one.record == "" and one.recorded_ms is None
        if one.applicable:
            assert one.reason == "" and one.expected_ms > 0 and one.wti > 0 and one.workspace_bytes >= 0
        else:
            assert one.reason and one.expected_ms is None and one.wti is None
    assert "(9000, 1100, 2, 45)" in before["UpsampleBwdSeparable"].reason
    report = hf.find(problem, mode="normal")
    after = {one.solver_id: one for one in hf.explain(problem)}
    assert {name for name, one in after.items() if one.record} == {"UpsampleBwdGather", "UpsampleBwdScatter"}
    assert report.best is not None
    assert after[report.best.solver_id].recorded_ms == pytest.approx(report.best.time_ms)


def test_an_empty_batch_has_a_trivial_answer_that_is_not_stored(db_path: pathlib.Path) -> None:
    problem = hf.UpsampleProblem.create("bwd", (0, 3, 9, 5), (0, 3, 18, 10))
    report = hf.find(problem, mode="normal")
    assert report.source is hf.Source.TRIVIAL and not report.stored
    assert [one.solver_id for one in hf.immediate(problem)] == ["UpsampleEmptyBatch"]
    assert hf.plan(problem)(gradient(0, 3, 18, 10)).shape == (0, 3, 9, 5)
