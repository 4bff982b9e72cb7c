"""Right results from every upsampling solver that applies: made-up sizes, the suite, public reports."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hipfind.device.base import Device
from hipfind.problem import UpsampleProblem, tolerance
from hipfind.solvers.registry import AnySolver, default_registry
from hipfind.target import known
from tests.helpers.arrays import make_arrays
from tests.helpers.solving import check_all, solve
from tests.helpers.strategies import upsample_problems
from tests.helpers.upsampling import resize

Array = npt.NDArray[Any]
SOLVERS = default_registry().for_operation("upsample")
EVERY = {"UpsampleBwdBlock", "UpsampleBwdSeparable", "UpsampleBwdScatter", "UpsampleBwdGather"}
GPU = known("sm_90")
GPU_ONLY = {"UpsampleBwdStrip"}
"""Their threads keep values from one phase of a group to the next; the host runs a group's threads phase by phase."""
WHOLE = {"UpsampleBwdWhole"}
"""For a few scales only."""

SUITE: dict[str, dict[str, Any]] = {
    "x2": {"x": (2, 8, 16, 16), "y": (2, 8, 32, 32)},
    "x32": {"x": (1, 3, 8, 8), "y": (1, 3, 256, 256)},
    "x2 corners": {"x": (3, 4, 32, 32), "y": (3, 4, 64, 64), "align_corners": True},
    "x16": {"x": (2, 16, 8, 8), "y": (2, 16, 128, 128)},
    "x8 wide": {"x": (1, 19, 16, 32), "y": (1, 19, 128, 256)},
    "half": {"x": (2, 16, 32, 32), "y": (2, 16, 16, 16)},
}
"""The performance suite, made smaller."""


def that_run_on(device: Device) -> list[AnySolver]:
    """The solvers whose solutions run there, whatever target they are made for."""
    return [one for one in SOLVERS if not (device.target.is_host and one.SolverDbId() in GPU_ONLY)]


def every(device: Device) -> set[str]:
    return EVERY if device.target.is_host else EVERY | GPU_ONLY


made_up = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@settings(made_up, max_examples=100)
@given(problem=upsample_problems(dtypes=("fp32",)), seed=st.integers(0, 2**16))
def test_any_legal_problem(problem: UpsampleProblem, seed: int, device: Device) -> None:
    names = check_all(device, SOLVERS, problem, seed)
    assert names == ["UpsampleEmptyBatch"] if problem.is_empty else "UpsampleBwdGather" in names


@settings(made_up, max_examples=100)
@given(problem=upsample_problems(dtypes=("fp32",)), seed=st.integers(0, 2**16))
def test_solutions_made_for_gpus_are_right_on_any_device(problem: UpsampleProblem, seed: int, device: Device) -> None:
    """There threads share the sums of a tile, take single elements, and add atomically."""
    assert check_all(device, that_run_on(device), problem, seed, target=GPU)


@made_up
@given(problem=upsample_problems(dtypes=("fp32",), packed=True, empty=False, layouts=("first", "last")))
def test_packed_problems_have_every_solver(problem: UpsampleProblem, device: Device) -> None:
    """All but the scatter where a GPU has to be deterministic: its atomic additions have no fixed order."""
    for target in (device.target, GPU):
        missing = {"UpsampleBwdScatter"} if problem.deterministic and not target.is_host else set()
        assert set(check_all(device, that_run_on(device), problem, target=target)) - WHOLE == every(device) - missing


CASES = [(name, dtype) for name in SUITE for dtype in ("fp32", "bf16")] + [("x2", "fp16"), ("x2", "fp64")]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_the_suite(name: str, dtype: str, layout: str, device: Device) -> None:
    problem = UpsampleProblem.create("bwd", dtype=dtype, layout=layout, **SUITE[name])
    for target in (device.target, GPU):
        assert set(check_all(device, that_run_on(device), problem, target=target)) == every(device) | WHOLE


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("size", [(9, 5), (5, 9), (7, 3)])
def test_height_and_width_are_not_mixed_up(size: tuple[int, int], layout: str, device: Device) -> None:
    """B50: both orientations, border pixels exact, gradients with gaps too."""
    height, width = size
    lengths = {"x": (2, 3, height, width), "y": (2, 3, 2 * height, 2 * width)}
    gaps = (600, 200, 2 * width + 3, 1) if layout == "NCHW" else (900, 1, 6 * width + 4, 3)
    for strides, align_corners in itertools.product((None, gaps), (False, True)):
        problem = UpsampleProblem.create(
            "bwd", layout=layout, align_corners=align_corners, y_strides=strides, **lengths
        )
        check_all(device, SOLVERS, problem)
        if not align_corners:
            arrays = make_arrays(problem, seed=0)
            arrays["dy"][...] = 1.0
            for solver in SOLVERS:
                if solver.IsApplicable(device.target, problem):
                    out = solve(device, solver, problem, arrays)
                    assert np.array_equal(out, np.full(out.shape, 4.0)), solver.SolverDbId()


@pytest.mark.parametrize("scale", [2.0, 1.7])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_the_gather_equals_the_scatter(dtype: str, align_corners: bool, scale: float, device: Device) -> None:
    """B63: the same result, and the same bits in every run of what is said to be deterministic."""
    problem = UpsampleProblem.create(
        "bwd", (2, 4, 32, 32), scales=scale, align_corners=align_corners, dtype=dtype, deterministic=True
    )
    arrays = make_arrays(problem, seed=4)
    expected = problem.reference(arrays)
    applicable = [solver for solver in SOLVERS if solver.IsApplicable(device.target, problem)]
    # scatter adds in no fixed order on GPUs; strip is there only
    assert len(applicable) == (5 if scale == 2.0 else 4)
    for solver in applicable:
        outs = [solve(device, solver, problem, arrays) for _ in range(2)]
        assert np.array_equal(*outs), solver.SolverDbId()
        assert tolerance.judge(problem, arrays, outs[0], expected).ok, solver.SolverDbId()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("for_gpu", [False, True], ids=["here", "made for a GPU"])
def test_sums_over_a_million_terms_lose_nothing(layout: str, for_gpu: bool, device: Device) -> None:
    """bf16 terms of one sign, whose sum is known exactly: what is left is one rounding to bf16."""
    problem = UpsampleProblem.create("bwd", (1, 2, 1, 1), (1, 2, 1024, 1024), dtype="bf16", layout=layout)
    arrays = make_arrays(problem, seed=5)
    arrays["dy"][...] = np.abs(arrays["dy"].astype(np.float32)).astype(arrays["dy"].dtype)
    exact = arrays["dy"].astype(np.float64).sum(axis=(2, 3), keepdims=True)
    target = GPU if for_gpu else device.target
    for solver in that_run_on(device):
        if solver.IsApplicable(target, problem) and solver.SolverDbId() != "UpsampleBwdScatter":
            out = solve(device, solver, problem, arrays, target=target).astype(np.float64)
            assert np.abs(out / exact - 1.0).max() <= 2.0**-8, solver.SolverDbId()


@made_up
@given(
    problem=upsample_problems(dtypes=("fp32",), empty=False, layouts=("first", "last"), max_size=20),
    value=st.sampled_from((np.nan, np.inf, -np.inf)),
    seed=st.integers(0, 2**16),
    for_gpu=st.booleans(),
)
def test_what_is_not_finite_stays_where_it_belongs(
    problem: UpsampleProblem, value: float, seed: int, for_gpu: bool, device: Device
) -> None:
    """One element of dy that is not finite: the pixels with a weight in it, and no others, are not finite either."""
    arrays = make_arrays(problem, seed)
    if 0 in problem.y.strides:
        return
    place = np.unravel_index(seed % problem.y.elements, problem.y.lengths)
    arrays["dy"][place] = value
    finite = np.isfinite(problem.reference(arrays))
    target = GPU if for_gpu else device.target
    for solver in that_run_on(device):
        if solver.IsApplicable(target, problem):
            out = solve(device, solver, problem, arrays, target=target)
            assert np.array_equal(np.isfinite(out), finite), solver.SolverDbId()


@made_up
@given(problem=upsample_problems(dtypes=("fp64",), empty=False, max_size=12), seed=st.integers(0, 2**16))
def test_every_solver_is_the_adjoint(problem: UpsampleProblem, seed: int, device: Device) -> None:
    """<g, U x> = <U^T g, x> to 1e-12 in fp64."""
    arrays = make_arrays(problem, seed)
    x = np.random.default_rng(seed).standard_normal(problem.x.lengths)
    terms = arrays["dy"] * resize(problem, x)
    for solver in SOLVERS:
        if solver.IsApplicable(device.target, problem):
            out = solve(device, solver, problem, arrays)
            size = float(np.abs(terms).sum() + np.abs(out * x).sum())
            assert abs(float(terms.sum() - (out * x).sum())) <= 1e-12 * size, solver.SolverDbId()


@made_up
@given(problem=upsample_problems(dtypes=("fp32",), empty=False, max_size=20), seed=st.integers(0, 2**16))
def test_the_best_solver_agrees_with_torch(problem: UpsampleProblem, seed: int, device: Device) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    arrays = make_arrays(problem, seed)
    gradient = np.ascontiguousarray(arrays["dy"])
    sizes, scales = (list(problem.y.lengths[2:]), list(problem.x.lengths)), [axis.scale for axis in problem.axes]
    theirs = torch.ops.aten.upsample_bilinear2d_backward(
        torch.from_numpy(gradient), *sizes, problem.align_corners, *scales
    ).numpy()
    solver = next(solver for solver in SOLVERS if solver.IsApplicable(device.target, problem))
    out = solve(device, solver, problem, arrays)
    # torch's fp32 coordinates, below 2^5 here, are off by some 2^-18, and so are its weights
    bound = 2.0**-17 * problem.reduction_length * max(float(np.abs(gradient).max()), 1.0)
    assert np.abs(out - theirs).max() <= bound


SCALES = (0.5, 2, 3, 4, 8, 16, 32)


@settings(made_up, max_examples=100)
@given(
    scale=st.sampled_from((*SCALES, 2, 2)),
    size=st.tuples(st.integers(1, 3), st.sampled_from((1, 3, 8, 16)), st.integers(1, 20), st.integers(1, 9)),
    layout=st.sampled_from(("NCHW", "NHWC")),
    gap=st.sampled_from((0, 1, 8)),
    seed=st.integers(0, 2**16),
    value=st.sampled_from((0.0, np.nan, np.inf)),
    for_gpu=st.booleans(),
    corners=st.booleans(),
)
def test_whole_scales(
    scale: float,
    size: Any,
    layout: str,
    gap: int,
    seed: int,
    value: float,
    for_gpu: bool,
    corners: bool,
    device: Device,
) -> None:
    """Borders, strips in both directions, rows that are not aligned, what is not finite: one binary for each scale."""
    n, c, height, width = size
    height, width = (max(extent // 3, 1) for extent in (height, width)) if scale > 4 else (height, width)
    if scale < 1:
        height, width = 2 * height, 2 * width
    corners &= scale == 2 and min(height, width) > 1
    out_h, out_w = int(height * scale), int(width * scale)
    row, image = (out_w + gap, c * out_h * (out_w + gap)) if layout == "NCHW" else (c * out_w + gap, 0)
    strides = (image, out_h * row, row, 1) if layout == "NCHW" else (out_h * row, 1, row, c)
    problem = UpsampleProblem.create(
        "bwd", (n, c, height, width), (n, c, out_h, out_w), layout=layout, y_strides=strides, align_corners=corners
    )
    arrays = make_arrays(problem, seed)
    if value != 0.0:
        arrays["dy"][np.unravel_index(seed % problem.y.elements, problem.y.lengths)] = value
    expected, target = problem.reference(arrays), GPU if for_gpu else device.target
    solver = default_registry().get("UpsampleBwdWhole")
    assert solver.IsApplicable(target, problem)
    out = solve(device, solver, problem, arrays, target=target)
    finite = np.isfinite(expected)
    assert np.array_equal(np.isfinite(out), finite)
    bound = 2.0**-20 * problem.reduction_length * float(np.abs(arrays["dy"][np.isfinite(arrays["dy"])]).max(initial=1))
    assert np.abs(out[finite] - expected[finite]).max(initial=0) <= bound


@pytest.mark.parametrize(
    ("dx", "dy"),
    [
        ((1, 1, 1, 1), (1, 1, 3000, 1)),
        ((1, 1, 1, 1), (1, 1, 1, 20_000)),
        ((1, 2, 2, 1), (1, 2, 5000, 9)),
        ((1, 3, 1, 2), (1, 3, 7, 9_000)),
        ((1, 1, 3000, 2), (1, 1, 2, 3)),
        ((1, 1, 1, 9000), (1, 1, 1, 3)),
        ((1, 700, 2, 3), (1, 700, 9, 5)),
        ((1, 1100, 2, 2), (1, 1100, 3, 3)),
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_long_windows_and_wide_pixels(dx: Any, dy: Any, layout: str, device: Device) -> None:
    """More than a tile has room for, in either direction: windows are cut into chunks."""
    problem = UpsampleProblem.create("bwd", dx, dy, layout=layout)
    for target in (device.target, GPU):
        assert "UpsampleBwdGather" in check_all(device, that_run_on(device), problem, target=target)


def test_an_expanded_scalar_is_a_gradient(device: Device) -> None:
    """What the backward pass of a sum hands on: strides of 0."""
    problem = UpsampleProblem.create("bwd", (2, 3, 5, 4), (2, 3, 11, 9), y_strides=(0, 0, 0, 0))
    assert check_all(device, SOLVERS, problem) == ["UpsampleBwdScatter", "UpsampleBwdGather"]
