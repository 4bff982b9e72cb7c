"""Plans and the one-shot functions on the host device: right results, reuse, threads, and refusals."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hipfind as hf
from hipfind import settings
from hipfind.errors import (
    ArrayError,
    DeviceError,
    NoSolutionError,
    NotApplicableError,
    ProblemError,
    UnknownSolverError,
    WorkspaceError,
)
from hipfind.problem import tolerance
from tests.helpers.arrays import make_arrays

SEED = {"x": (16, 3, 14, 14), "w": (40, 3, 14, 14), "stride": 14}
IM2COL = {"x": (3, 4, 9, 8), "w": (6, 4, 3, 3), "pad": 1}


@pytest.fixture(autouse=True)
def own_db(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    path = tmp_path / "hipfind.db"
    with settings.override(user_db_path=str(path), device="host"):
        yield path


def run(problem: hf.ConvProblem, **options: Any) -> None:
    """Make arrays, run a plan, and check its result against float64."""
    arrays = make_arrays(problem, seed=1)
    plan = hf.plan(problem, **options)
    out = plan(*(arrays[role] for role in problem.inputs))
    verdict = tolerance.judge(problem, arrays, out, problem.reference(arrays))
    assert verdict.ok, (plan, verdict)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "fp64"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("direction", ["fwd", "bwd", "wrw"])
def test_a_plan_gives_the_right_result(direction: str, layout: str, dtype: str) -> None:
    run(hf.ConvProblem.create(direction, **SEED, layout=layout, dtype=dtype))


@pytest.mark.parametrize("mode", ["convolution", "transpose"])
@pytest.mark.parametrize("direction", ["fwd", "bwd", "wrw"])
def test_a_plan_runs_on_bare_addresses(direction: str, mode: str) -> None:
    problem = hf.ConvProblem.create(direction, x=(3, 4, 9, 8), w=(4, 4, 3, 3), pad=1, mode=mode)
    arrays, plan = make_arrays(problem, seed=2), hf.plan(problem)
    inputs = [arrays[role] for role in problem.inputs]
    expected, out = plan(*inputs), np.full(problem.tensor(problem.output).lengths, np.nan, np.float32)
    room = np.zeros(plan.workspace_bytes + 64, np.uint8)
    for workspace in (0, -(-room.ctypes.data // 64) * 64):
        out.fill(np.nan)
        plan.run([one.ctypes.data for one in inputs], out.ctypes.data, workspace)
        assert np.array_equal(out, expected)


@pytest.mark.parametrize("direction", ["fwd", "bwd", "wrw"])
def test_transposed_convolutions_take_their_arrays_in_their_own_order(direction: str) -> None:
    """B43: C != K, groups, output padding."""
    run(
        hf.ConvProblem.create(
            direction, x=(2, 6, 5, 4), w=(6, 2, 3, 3), stride=2, pad=1, groups=2, mode="transpose", output_padding=1
        )
    )


def test_an_unknown_problem_ranks_point_output_first_and_naive_last() -> None:
    for direction in ("fwd", "bwd", "wrw"):
        for dtype in ("fp32", "bf16"):
            problem = hf.ConvProblem.create(direction, x=(9500, 3, 14, 14), w=(1280, 3, 14, 14), stride=14, dtype=dtype)
            choices = hf.immediate(problem)
            assert choices[0].solver_id in ("GemmFwdRest", "GemmBwdRest", "GemmWrwUniversal")
            assert choices[0].source is hf.Source.WTI
            assert choices[-1].solver_id.startswith("ConvDirectNaive")
            assert [choice.time_ms for choice in choices] == sorted(choice.time_ms for choice in choices)


def test_a_find_makes_the_next_plan_come_from_the_db() -> None:
    problem = hf.ConvProblem.create("fwd", **IM2COL)
    assert hf.plan(problem).choice.source is hf.Source.WTI
    report = hf.find(problem)
    assert report.source is hf.Source.MEASURED and report.stored and report.best is not None
    plan = hf.plan(problem)
    assert plan.choice.source is hf.Source.USER_DB and plan.solver_id == report.best.solver_id
    assert hf.find(problem).source is hf.Source.USER_DB


def test_every_measured_candidate_was_verified() -> None:
    report = hf.find(hf.ConvProblem.create("bwd", **IM2COL), mode="normal")
    timed = [one for one in report.candidates if one.time_ms is not None]
    assert len(timed) >= 2 and all(one.verified for one in timed)


def test_a_plan_is_kept_and_shared() -> None:
    problem = hf.ConvProblem.create("fwd", **SEED)
    again = hf.ConvProblem.create("fwd", **SEED)
    assert hf.plan(problem) is hf.plan(again)


def test_a_plan_writes_into_out_and_returns_it() -> None:
    problem = hf.ConvProblem.create("fwd", **SEED)
    arrays = make_arrays(problem, seed=2)
    out = np.full(problem.y.lengths, np.nan, np.float32)
    assert hf.plan(problem)(arrays["x"], arrays["w"], out=out) is out
    assert tolerance.judge(problem, arrays, out, problem.reference(arrays)).ok


def test_an_output_that_overlaps_an_input_is_refused() -> None:
    problem = hf.ConvProblem.create("fwd", x=(2, 3, 6, 6), w=(3, 3, 3, 3), pad=1)
    plan = hf.plan(problem)
    memory = np.zeros(2 * problem.x.elements, np.float32)
    x, w = memory[: problem.x.elements].reshape(2, 3, 6, 6), np.ones((3, 3, 3, 3), np.float32)
    for shift in (0, 1, problem.x.elements - 1):
        before = memory.copy()
        out = memory[shift : shift + problem.y.elements].reshape(2, 3, 6, 6)
        with pytest.raises(ArrayError, match="y must not share elements with x"):
            plan(x, w, out=out)
        assert np.array_equal(memory, before)
    plan(x, w, out=memory[problem.x.elements :].reshape(2, 3, 6, 6))


def test_an_output_between_an_inputs_elements_is_its_own() -> None:
    """Two halves of the channels of one tensor: their spans overlap, their elements do not."""
    both = np.random.default_rng(0).standard_normal((2, 6, 5, 5), np.float32)
    x, y, w = both[:, :3], both[:, 3:], np.ones((3, 3, 1, 1), np.float32)
    tensors = {"x_strides": (150, 25, 5, 1), "y_strides": (150, 25, 5, 1)}
    problem = hf.ConvProblem.create("fwd", x=(2, 3, 5, 5), w=(3, 3, 1, 1), **tensors)
    expected = x.astype(np.float64).sum(axis=1, keepdims=True).repeat(3, axis=1)
    hf.plan(problem)(x, w, out=y)
    assert np.allclose(y, expected, atol=1e-5)


def test_beta_reads_the_output_and_needs_it() -> None:
    problem = hf.ConvProblem.create("fwd", **IM2COL, alpha=0.5, beta=2.0)
    arrays = make_arrays(problem, seed=3)
    plan = hf.plan(problem)
    with pytest.raises(ArrayError, match="beta"):
        plan(arrays["x"], arrays["w"])
    reference = problem.reference(arrays)
    out = arrays["y"].copy()
    plan(arrays["x"], arrays["w"], out=out)
    assert tolerance.judge(problem, arrays, out, reference).ok


def test_a_given_workspace_is_used_and_checked() -> None:
    problem = hf.ConvProblem.create("fwd", **IM2COL)
    plan = hf.plan(problem, solver="GemmFwdRest")
    assert plan.workspace_bytes == 4 * 9 * 9 * 8 * 4
    arrays = make_arrays(problem, seed=4)
    workspace = np.full(plan.workspace_bytes, 0xFF, np.uint8)
    out = plan(arrays["x"], arrays["w"], workspace=workspace)
    assert tolerance.judge(problem, arrays, out, problem.reference(arrays)).ok
    assert not (workspace == 0xFF).all()
    with pytest.raises(WorkspaceError, match=str(plan.workspace_bytes)):
        plan(arrays["x"], arrays["w"], workspace=workspace[:-1])


def test_one_plan_in_many_threads() -> None:
    problem = hf.ConvProblem.create("fwd", **IM2COL)
    plan = hf.plan(problem, solver="GemmFwdRest")  # it has a workspace, which calls must not share
    wrong: list[int] = []

    def work(seed: int) -> None:
        arrays = make_arrays(problem, seed=seed)
        reference = problem.reference(arrays)
        for _ in range(20):
            if not tolerance.judge(problem, arrays, plan(arrays["x"], arrays["w"]), reference).ok:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("direction", ["fwd", "bwd", "wrw"])
def test_batch_zero_gives_an_empty_or_zero_result(direction: str, own_db: pathlib.Path) -> None:
    """B48."""
    problem = hf.ConvProblem.create(direction, x=(0, 3, 5, 5), w=(4, 3, 3, 3))
    report = hf.find(problem)
    assert report.source is hf.Source.TRIVIAL and not report.stored and not own_db.exists()
    arrays = {role: np.zeros(problem.tensor(role).lengths, np.float32) for role in problem.roles}
    out = hf.plan(problem)(*(arrays[role] for role in problem.inputs))
    assert out.shape == problem.tensor(problem.output).lengths
    assert not out.any()


def test_one_shot_functions_agree_with_the_reference() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 4, 9, 7)).astype(np.float32)
    w = rng.standard_normal((6, 2, 3, 2)).astype(np.float32)
    options: dict[str, Any] = {"stride": (2, 1), "pad": (1, 0), "groups": 2}
    y = hf.conv(x, w, **options)
    fwd = hf.ConvProblem.create("fwd", x.shape, w.shape, **options)
    assert tolerance.judge(fwd, {"x": x, "w": w}, y, fwd.reference({"x": x, "w": w})).ok
    dy = rng.standard_normal(y.shape).astype(np.float32)
    dx = hf.conv_bwd_data(dy, w, x.shape, **options)
    bwd = hf.ConvProblem.create("bwd", x.shape, w.shape, **options)
    assert tolerance.judge(bwd, {"y": dy, "w": w}, dx, bwd.reference({"y": dy, "w": w})).ok
    dw = hf.conv_bwd_weights(dy, x, w.shape, **options)
    wrw = hf.ConvProblem.create("wrw", x.shape, w.shape, **options)
    assert tolerance.judge(wrw, {"y": dy, "x": x}, dw, wrw.reference({"y": dy, "x": x})).ok


def test_one_shot_output_takes_the_inputs_layout() -> None:
    rng = np.random.default_rng(0)
    x = np.ascontiguousarray(rng.standard_normal((2, 9, 7, 4)).astype(ml_dtypes.bfloat16)).transpose(0, 3, 1, 2)
    w = np.ascontiguousarray(rng.standard_normal((6, 3, 2, 4)).astype(ml_dtypes.bfloat16)).transpose(0, 3, 1, 2)
    y = hf.conv(x, w)
    assert y.dtype == x.dtype and y.transpose(0, 2, 3, 1).flags.c_contiguous
    channel_first = hf.conv(np.ascontiguousarray(x), np.ascontiguousarray(w))
    assert channel_first.flags.c_contiguous


@pytest.mark.parametrize(
    ("x", "w", "options", "error", "message"),
    [
        (np.ones((2, 3, 5, 5)), np.ones((4, 4, 3, 3)), {}, ProblemError, "w must be"),
        (np.ones((2, 3, 5, 5)), np.ones((4, 3, 7, 3)), {}, ProblemError, "larger than the padded image"),
        (np.ones((2, 3, 5, 5)), np.ones((4, 3, 3, 3)), {"groups": 2}, ProblemError, "divisible by groups"),
        (np.ones((2, 3, 5, 5)), np.ones((4, 3, 3, 3), np.float32), {}, ProblemError, "same float dtype"),
        (np.ones((2, 3, 5, 5), complex), np.ones((4, 3, 3, 3), complex), {}, ProblemError, "unknown dtype"),
        (np.ones((3, 5, 5)), np.ones((4, 3, 3, 3)), {}, ProblemError, "dimensions"),
        (np.ones((2, 3, 5, 5)), np.ones((4, 3, 3, 3)), {"device": "tpu"}, DeviceError, "tpu"),
    ],
)
def test_wrong_one_shot_use_is_one_sentence(
    x: Any, w: Any, options: dict[str, Any], error: type[Exception], message: str, own_db: pathlib.Path
) -> None:
    with pytest.raises(error, match=message):
        hf.conv(x, w, **options)
    assert not own_db.exists()


def test_arrays_that_do_not_fit_a_plan_are_refused_before_anything_runs() -> None:
    problem = hf.ConvProblem.create("fwd", **SEED)
    plan = hf.plan(problem)
    x, w = np.ones(problem.x.lengths, np.float32), np.ones(problem.w.lengths, np.float32)
    with pytest.raises(ArrayError, match="takes 2 arrays: x, w"):
        plan(x)
    with pytest.raises(ArrayError, match="fp32"):
        plan(x.astype(np.float64), w)
    with pytest.raises(ArrayError, match="lengths"):
        plan(x[:-1], w)
    with pytest.raises(ArrayError, match="strides"):
        plan(np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2), w)
    with pytest.raises(ArrayError, match="read-only"):
        frozen = np.ones(problem.y.lengths, np.float32)
        frozen.flags.writeable = False
        plan(x, w, out=frozen)
    with pytest.raises(ArrayError, match="must be an array"):
        plan([1.0], w)


def test_a_forced_solver_is_used_or_refused() -> None:
    """B32: a way to force a solver, which fails loudly."""
    problem = hf.ConvProblem.create("fwd", **SEED)
    assert hf.plan(problem, solver="ConvDirectNaiveConvFwd").solver_id == "ConvDirectNaiveConvFwd"
    with pytest.raises(NotApplicableError, match="GemmBwdRest cannot solve this problem: solves another direction"):
        hf.plan(problem, solver="GemmBwdRest")
    with pytest.raises(UnknownSolverError, match="GemmFwdRest"):
        hf.plan(problem, solver="GemmFwdRst")


def test_no_solver_is_an_error_that_says_where_to_look() -> None:
    with pytest.raises(NoSolutionError, match="hipfind explain"):
        hf.plan(hf.ConvProblem.create("fwd", **SEED, dtype="int8"))


def test_a_workspace_limit_chooses_what_fits() -> None:
    problem = hf.ConvProblem.create("fwd", **IM2COL)
    assert "GemmFwdRest" in [choice.solver_id for choice in hf.immediate(problem)]
    assert "GemmFwdRest" not in [choice.solver_id for choice in hf.immediate(problem, workspace_limit=0)]
    assert hf.plan(problem, workspace_limit=0).workspace_bytes == 0


def test_a_plan_follows_a_newer_answer() -> None:
    """A plan made by estimate gives way to the winner of a Find, without a new process."""
    problem = hf.ConvProblem.create("fwd", **IM2COL)
    x, w = (np.ones(tensor.lengths, np.float32) for tensor in (problem.x, problem.w))
    hf.conv(x, w, pad=1)
    report = hf.find(problem)
    assert report.best is not None
    plan = hf.plan(problem)
    assert (plan.solver_id, plan.choice.source) == (report.best.solver_id, hf.Source.USER_DB)
    with settings.override(disable_solver=report.best.solver_id):
        assert hf.plan(problem).solver_id != report.best.solver_id
