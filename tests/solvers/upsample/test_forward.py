"""Right results of the forward pass from every solver that applies, on the host and as made for a GPU."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hipfind.device.base import Device
from hipfind.invokers.steps import KernelStep, flat
from hipfind.problem import UpsampleProblem
from hipfind.solvers.reasons import Reason
from hipfind.solvers.registry import default_registry
from hipfind.target import known
from tests.helpers.arrays import make_arrays
from tests.helpers.solving import check_all, solve
from tests.helpers.strategies import upsample_problems
from tests.helpers.upsampling import packed

SOLVERS = default_registry().for_operation("upsample")
LINES, DIRECT = (default_registry().get(name) for name in ("UpsampleFwdLines", "UpsampleFwdDirect"))
BOTH = ["UpsampleFwdLines", "UpsampleFwdDirect"]
GPU = known("sm_90")
made_up = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def forward(**more: Any) -> Any:
    return upsample_problems(directions=("fwd",), **more)


def form(problem: UpsampleProblem, target: Any = GPU) -> tuple[str, int]:
    """The form and the line of the solution's kernel."""
    ((_, step),) = flat(LINES.GetSolution(target, problem).steps)
    assert isinstance(step, KernelStep)
    defines = dict(step.kernel.defines)
    return defines["FORM"], int(defines["LINE"])


@settings(made_up, max_examples=100)
@given(problem=forward(dtypes=("fp32",)), seed=st.integers(0, 2**16), for_gpu=st.booleans())
def test_any_legal_problem(problem: UpsampleProblem, seed: int, for_gpu: bool, device: Device) -> None:
    names = check_all(device, SOLVERS, problem, seed, target=GPU if for_gpu else None)
    assert names == ["UpsampleEmptyBatch"] if problem.is_empty else names[-1] == "UpsampleFwdDirect"


@made_up
@given(problem=forward(packed=True, empty=False, layouts=("first", "last")), for_gpu=st.booleans())
def test_packed_problems_have_both_solvers(problem: UpsampleProblem, for_gpu: bool, device: Device) -> None:
    """In every dtype."""
    assert check_all(device, SOLVERS, problem, target=GPU if for_gpu else None) == BOTH


@made_up
@given(
    problem=forward(dtypes=("fp32", "bf16"), empty=False, max_size=20),
    value=st.sampled_from((np.nan, np.inf, -np.inf)),
    seed=st.integers(0, 2**16),
    for_gpu=st.booleans(),
)
def test_what_is_not_finite_stays_where_it_belongs(
    problem: UpsampleProblem, value: float, seed: int, for_gpu: bool, device: Device
) -> None:
    """One element of x that is not finite: the outputs with a weight for it are what it is, and no others."""
    if 0 in problem.x.strides:
        return
    arrays = make_arrays(problem, seed)
    arrays["x"][np.unravel_index(seed % problem.x.elements, problem.x.lengths)] = value
    expected = problem.reference(arrays)
    target = GPU if for_gpu else device.target
    for solver in SOLVERS:
        if solver.IsApplicable(target, problem):
            out = solve(device, solver, problem, arrays, target=target).astype(np.float64)
            special = ~np.isfinite(expected)
            assert np.array_equal(~np.isfinite(out), special), solver.SolverDbId()
            assert np.array_equal(out[special], expected[special], equal_nan=True), solver.SolverDbId()


@made_up
@given(problem=forward(dtypes=("fp64",), empty=False, max_size=12), seed=st.integers(0, 2**16), for_gpu=st.booleans())
def test_forward_and_backward_are_adjoint(problem: UpsampleProblem, seed: int, for_gpu: bool, device: Device) -> None:
    """<U x, g> = <x, U^T g> to 1e-12 in fp64, of what solvers make of both sides."""
    backward = packed(problem, "bwd")
    arrays, gradients = make_arrays(problem, seed), make_arrays(backward, seed + 1)
    target = GPU if for_gpu else device.target
    dx = solve(device, default_registry().get("UpsampleBwdGather"), backward, gradients)
    right = (arrays["x"] * dx).sum()
    for solver in SOLVERS:
        if solver.IsApplicable(target, problem):
            y = solve(device, solver, problem, arrays, target=target)
            size = np.abs(y * gradients["dy"]).sum() + np.abs(arrays["x"] * dx).sum()
            assert abs((y * gradients["dy"]).sum() - right) <= 1e-12 * size, solver.SolverDbId()


@made_up
@given(problem=forward(dtypes=("fp32",), empty=False), seed=st.integers(0, 2**16), for_gpu=st.booleans())
def test_solvers_agree_with_torch(problem: UpsampleProblem, seed: int, for_gpu: bool, device: Device) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    arrays = make_arrays(problem, seed)
    x = np.ascontiguousarray(arrays["x"])
    theirs = torch.ops.aten.upsample_bilinear2d(
        torch.from_numpy(x), list(problem.y.lengths[2:]), problem.align_corners, *(axis.scale for axis in problem.axes)
    ).numpy()
    target = GPU if for_gpu else device.target
    for solver in SOLVERS:
        if solver.IsApplicable(target, problem):
            # torch's fp32 coordinates, below 2^5 here, are off by some 2^-18, and so are its weights
            out = solve(device, solver, problem, arrays, target=target)
            assert np.abs(out - theirs).max() <= 2.0**-15 * max(float(np.abs(x).max()), 1.0), solver.SolverDbId()


@settings(made_up, max_examples=100)
@given(
    scale=st.sampled_from((2, 4, 8, 16, 32)),
    corners=st.booleans(),
    size=st.tuples(st.integers(1, 2), st.sampled_from((1, 3)), st.integers(1, 9), st.integers(1, 9)),
    dtype=st.sampled_from(("fp32", "bf16")),
    gaps=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    seed=st.integers(0, 2**16),
)
def test_whole_scales(
    scale: int, corners: bool, size: Any, dtype: str, gaps: tuple[int, int], seed: int, device: Device
) -> None:
    """Borders, rows of x and y that are not aligned, heights of any scale."""
    n, c, height, width = size
    width *= 4 if scale == 2 else 2 if scale == 4 else 1
    out_h, out_w = height + seed % 7, width * scale
    rows = width + gaps[0], out_w + gaps[1]
    problem = UpsampleProblem.create(
        "fwd", (n, c, height, width), (n, c, out_h, out_w), dtype=dtype, align_corners=corners and scale == 2,
        x_strides=(c * height * rows[0], height * rows[0], rows[0], 1),
        y_strides=(c * out_h * rows[1], out_h * rows[1], rows[1], 1),
    )  # fmt: skip
    assert form(problem)[0] == "WHOLE"
    assert check_all(device, SOLVERS, problem, seed, target=GPU) == BOTH


@pytest.mark.parametrize(("x", "y"), [((5, 3000), (7, 4100)), ((2, 3000), (3, 1500)), ((3, 1), (2, 2500)),
                                      ((2, 5), (1, 3)), ((1, 1), (40, 50))], ids=str)  # fmt: skip
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("c", [1, 3, 40])
def test_long_rows_and_wide_pixels(x: Any, y: Any, layout: str, c: int, device: Device) -> None:
    """Rows of several lines on the host, and pixels that lines cut."""
    problem = UpsampleProblem.create("fwd", (1, c, *x), (1, c, *y), layout=layout)
    for target in (device.target, GPU):
        assert check_all(device, SOLVERS, problem, target=target) == BOTH


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "fp64"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_same_size_is_a_copy(layout: str, dtype: str, device: Device) -> None:
    problem = UpsampleProblem.create("fwd", (2, 3, 5, 8), (2, 3, 5, 8), layout=layout, dtype=dtype)
    arrays = make_arrays(problem, seed=3)
    for solver, target in itertools.product((LINES, DIRECT), (device.target, GPU)):
        assert np.array_equal(solve(device, solver, problem, arrays, target=target), arrays["x"])


def test_an_expanded_scalar_can_be_resized(device: Device) -> None:
    problem = UpsampleProblem.create("fwd", (2, 3, 5, 4), (2, 3, 11, 9), x_strides=(0, 0, 0, 0))
    assert check_all(device, SOLVERS, problem) == BOTH


@pytest.mark.parametrize(
    ("x", "y", "more", "expected"),
    [
        ((1, 3, 8, 8), (1, 3, 16, 16), {}, ("WHOLE", 8)),
        ((1, 3, 8, 8), (1, 3, 16, 16), {"dtype": "fp32"}, ("WHOLE", 4)),
        ((1, 3, 8, 8), (1, 3, 16, 16), {"align_corners": True}, ("WHOLE", 8)),
        ((1, 3, 8, 8), (1, 3, 32, 32), {"align_corners": True}, ("ELEMENTS", 4)),
        ((1, 3, 8, 9), (1, 3, 16, 18), {}, ("ELEMENTS", 2)),
        ((1, 3, 8, 9), (1, 3, 16, 17), {}, ("ELEMENTS", 1)),
        ((1, 3, 8, 8), (1, 3, 16, 16), {"layout": "NHWC"}, ("ELEMENTS", 4)),
        ((1, 4, 8, 8), (1, 4, 16, 16), {"layout": "NHWC"}, ("CHANNELS", 4)),
        ((1, 16, 8, 8), (1, 16, 16, 16), {"layout": "NHWC"}, ("CHANNELS", 8)),
        ((1, 16, 8, 8), (1, 16, 16, 16), {"layout": "NHWC", "dtype": "fp64"}, ("CHANNELS", 2)),
    ],
)
def test_how_rows_are_read_on_a_gpu(x: Any, y: Any, more: Any, expected: Any) -> None:
    problem = UpsampleProblem.create("fwd", x, y, **{"dtype": "bf16", **more})
    assert form(problem) == expected
    assert form(problem, known("x86_64"))[0] == "ROWS"


def test_what_is_left_to_others() -> None:
    sizes: dict[str, Any] = {"x": (2, 3, 9, 5), "y": (2, 3, 18, 10)}
    gradient = UpsampleProblem.create("bwd", **sizes)
    scattered = UpsampleProblem.create("fwd", **sizes, y_strides=(1080, 360, 20, 2))
    far = UpsampleProblem.create("fwd", (1, 1, 2, 2), (1, 1, 4, 4), x_strides=(2**32, 2**32, 2**32, 2**31))
    for solver in (LINES, DIRECT):
        assert solver.IsApplicable(GPU, gradient).reason is Reason.DIRECTION
    assert LINES.IsApplicable(GPU, scattered).reason is Reason.LAYOUT and DIRECT.IsApplicable(GPU, scattered)
    assert LINES.IsApplicable(GPU, far).reason is Reason.TOO_LARGE and DIRECT.IsApplicable(GPU, far)
    for solver in SOLVERS:
        if solver not in (LINES, DIRECT) and solver.SolverDbId() != "UpsampleEmptyBatch":
            assert solver.IsApplicable(GPU, UpsampleProblem.create("fwd", **sizes)).reason is Reason.DIRECTION
