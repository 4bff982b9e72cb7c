"""Right results from every solver that applies, against float64: made-up problems, point outputs, real shapes."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hipfind.device.base import Device
from hipfind.problem import ConvProblem
from hipfind.solvers.registry import default_registry
from hipfind.target import known
from tests.helpers.arrays import make_arrays
from tests.helpers.conv_cases import DIRECTIONS, conv_shapes, cut_down, point_outputs, row_arguments
from tests.helpers.shared import needs_shared
from tests.helpers.solving import check_all, solve
from tests.helpers.strategies import conv_problems

SOLVERS = default_registry().for_operation("conv")
POINT_SOLVER = {"fwd": "GemmFwdRest", "bwd": "GemmBwdRest", "wrw": "GemmWrwUniversal"}
NAIVE = {"fwd": "ConvDirectNaiveConvFwd", "bwd": "ConvDirectNaiveConvBwd", "wrw": "ConvDirectNaiveConvWrw"}
HALF = ("fp16", "bf16")

made_up = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def one_position(draw: st.DrawFn) -> ConvProblem:
    """Convolutions with one output position: the image has the filter's size or a little more."""
    ndim = draw(st.integers(2, 3))
    taps = draw(st.tuples(*[st.integers(1, 5)] * ndim))
    spare = draw(st.tuples(*[st.integers(0, 2)] * ndim)) if draw(st.booleans()) else (0,) * ndim
    stride = draw(st.tuples(*[st.integers(1, 7)] * ndim))
    more = tuple(min(extra, step - 1) for extra, step in zip(spare, stride, strict=True))
    image = tuple(tap + extra for tap, extra in zip(taps, more, strict=True))
    layouts = {2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}[ndim]
    names = (
        tuple(draw(st.sampled_from(layouts)) for _ in "xwy")
        if draw(st.booleans())
        else layouts[draw(st.integers(0, 1))]
    )
    c = draw(st.integers(1, 4))
    return ConvProblem.create(
        draw(st.sampled_from(DIRECTIONS)), (draw(st.integers(1, 4)), c, *image), (draw(st.integers(1, 6)), c, *taps),
        stride=stride, layout=names, dtype=draw(st.sampled_from(("fp32", "fp16", "bf16", "fp64"))),
    )  # fmt: skip


@made_up
@given(problem=conv_problems(scaling=True), seed=st.integers(0, 2**16))
def test_any_legal_problem(problem: ConvProblem, seed: int, device: Device) -> None:
    assert check_all(device, SOLVERS, problem, seed), "no solver applies"


@made_up
@given(problem=conv_problems(packed=True, empty=False, layouts=("first", "last")), seed=st.integers(0, 2**16))
def test_problems_of_one_layout_have_a_gemm_solver(problem: ConvProblem, seed: int, device: Device) -> None:
    assert [name for name in check_all(device, SOLVERS, problem, seed) if name.startswith("Gemm")]


@made_up
@given(
    problem=conv_problems(scaling=True) | one_position(),
    seed=st.integers(0, 2**16),
)
def test_solutions_made_for_gpus_are_right_on_any_device(problem: ConvProblem, seed: int, device: Device) -> None:
    """Kernels take their items one element at a time there; products and workspace are other ones too.

    Triton's kernels run on GPUs alone, and through its interpreter: tests/kernels/test_interpreted.py.
    """
    assert check_all(device, SOLVERS, problem, seed, target=dataclasses.replace(known("gfx942"), triton=False))


@st.composite
def pointwise(draw: st.DrawFn) -> ConvProblem:
    """Convolutions with a 1x1 filter, either layout, groups, strides, any dilation."""
    ndim, groups = draw(st.integers(2, 3)), draw(st.integers(1, 3))
    image = draw(st.tuples(*[st.integers(1, 6)] * ndim))
    stride: Any = draw(st.sampled_from((1, 1, 2, 3)) | st.tuples(*[st.integers(1, 2)] * ndim))
    layout = {2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}[ndim][draw(st.integers(0, 1))]
    c, k = groups * draw(st.integers(1, 4)), groups * draw(st.integers(1, 4))
    return ConvProblem.create(
        draw(st.sampled_from(DIRECTIONS)), (draw(st.integers(1, 4)), c, *image), (k, c // groups, *(1,) * ndim),
        stride=stride, dilation=draw(st.integers(1, 3)), groups=groups, layout=layout,
        dtype=draw(st.sampled_from(("fp32", "fp16", "bf16", "fp64"))),
    )  # fmt: skip


@made_up
@given(problem=pointwise(), seed=st.integers(0, 2**16))
def test_pointwise_problems(problem: ConvProblem, seed: int, device: Device) -> None:
    names = check_all(device, SOLVERS, problem, seed)
    has_one_stride = len(set(problem.stride)) == 1 and (problem.stride[0], problem.ndim) in ((1, 2), (1, 3), (2, 2))
    if has_one_stride and problem.direction != "wrw":
        assert [name for name in names if "1x1" in name], "a 1x1 solver applies in either layout"


@made_up
@given(problem=one_position(), seed=st.integers(0, 2**16))
def test_one_output_position(problem: ConvProblem, seed: int, device: Device) -> None:
    assert set(problem.out_spatial) == {1}
    names = check_all(device, SOLVERS, problem, seed)
    if problem.in_spatial == problem.filter and len(set(problem.layouts)) == 1:
        assert POINT_SOLVER[problem.direction] in names


@pytest.mark.parametrize("is_channel_last", [False, True], ids=["channel-first", "channel-last"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_point_outputs(direction: str, dtype: str, is_channel_last: bool, device: Device) -> None:
    for name, problem in point_outputs(direction, dtype, is_channel_last).items():
        names = check_all(device, SOLVERS, problem)
        assert NAIVE[direction] in names, name
        if problem.in_spatial == problem.filter or not is_channel_last:
            assert POINT_SOLVER[direction] in names, name
        else:
            assert POINT_SOLVER[direction] not in names, f"{name}: only channel-first may scatter"


@needs_shared
@pytest.mark.parametrize("row", conv_shapes(), ids=lambda row: row["id"])
def test_real_shapes(row: dict[str, str], device: Device) -> None:
    problem = cut_down(row_arguments(row))
    names = check_all(device, SOLVERS, problem)
    if problem.dtype.is_float:
        assert NAIVE[problem.direction] in names
        assert len(names) >= 2, "a GEMM solver applies to every packed problem of one layout"


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("images", [1, 2, 8, 256, 4096])
def test_weight_gradients_do_not_lose_precision_with_the_batch(dtype: str, images: int, device: Device) -> None:
    """Summed in fp32 and rounded once, whatever the batch: point output, im2col, and 1x1 in both layouts."""
    for x, w, layout in (
        ((images, 16, 2, 2), (16, 16, 2, 2), "NCHW"),
        ((images, 16, 3, 2), (16, 16, 2, 2), "NCHW"),
        ((images, 64, 1, 2), (16, 64, 1, 1), "NCHW"),
        ((images, 64, 1, 2), (16, 64, 1, 1), "NHWC"),
    ):
        problem = ConvProblem.create("wrw", x, w, dtype=dtype, layout=layout)
        arrays = make_arrays(problem, seed=3)
        expected = problem.reference(arrays)
        for solver in SOLVERS:
            if solver.IsApplicable(device.target, problem):
                out = solve(device, solver, problem, arrays).astype(np.float64)
                error = np.abs(out - expected).max() / np.abs(expected).max()
                assert error < {"bf16": 0.005, "fp16": 0.0007}[dtype], f"{solver.SolverDbId()}: {error}"


def test_grouped_and_depthwise_in_every_direction(device: Device) -> None:
    for direction, dtype in itertools.product(DIRECTIONS, ("fp32", "bf16")):
        for groups, c, k in ((3, 6, 9), (6, 6, 6), (6, 6, 12)):
            problem = ConvProblem.create(
                direction, (2, c, 8, 7), (k, c // groups, 3, 2), groups=groups, pad=(1, 0), stride=(2, 1), dtype=dtype
            )
            assert len(check_all(device, SOLVERS, problem)) >= 2
