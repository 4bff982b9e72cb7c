"""Wrong results that users of other libraries reported: each fault's whole kind, on every solver that applies.

The numbers are those of public issues of ROCm/MIOpen (M), ROCm/rocm-libraries (R) and ROCm/TheRock (T).
"""

from __future__ import annotations

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
from tests.helpers.conv_cases import DIRECTIONS
from tests.helpers.solving import check_all, solve

SOLVERS = default_registry().for_operation("conv")
POINT_SOLVER = {"fwd": "GemmFwdRest", "bwd": "GemmBwdRest", "wrw": "GemmWrwUniversal"}
NAIVE = ("ConvDirectNaiveConvFwd", "ConvDirectNaiveConvBwd", "ConvDirectNaiveConvWrw")


def every(device: Device, x: tuple[int, ...], w: tuple[int, ...], directions: Any = DIRECTIONS, **more: Any) -> None:
    """Check every solver in every direction; at least one must apply."""
    for direction in directions:
        assert check_all(device, SOLVERS, ConvProblem.create(direction, x, w, **more))


@pytest.mark.parametrize(
    ("image", "taps", "stride"),
    [
        ((14, 14), (7, 1), (3, 1)),
        ((14, 14), (4, 1), (3, 1)),
        ((14, 14), (1, 7), (1, 3)),
        ((14, 14), (7, 7), (1, 3)),
        ((32, 32), (7, 1), (5, 1)),
        ((32, 32), (8, 1), (5, 1)),
    ],
)
def test_filters_that_are_no_multiple_of_the_stride(
    image: tuple[int, int], taps: tuple[int, int], stride: tuple[int, int], device: Device
) -> None:
    """M #575: tall and wide filters with strides of 3 and 5."""
    every(device, (2, 4, *image), (4, 4, *taps), stride=stride)


@pytest.mark.parametrize("stride", range(1, 6))
def test_sweep_of_filter_stride_and_dilation(stride: int, device: Device) -> None:
    for taps, dilation in itertools.product(range(1, 9), range(1, 4)):
        every(device, (1, 2, 25, 3), (2, 2, taps, 2), stride=(stride, 1), dilation=(dilation, 1), pad=(1, 0))


def test_images_smaller_than_the_filter(device: Device) -> None:
    """M #2867: most taps see padding only, and their weights' gradient is exactly 0."""
    every(device, (2, 1, 1, 1), (1, 1, 3, 3), pad=2, stride=2)
    every(device, (2, 2, 2, 2), (3, 2, 2, 2), pad=2, stride=2)
    problem = ConvProblem.create("wrw", (2, 1, 1, 1), (1, 1, 3, 3), pad=2, stride=2)
    arrays = make_arrays(problem, seed=0)
    seen = problem.reference(arrays) != 0
    assert seen.sum() == 4
    for solver in SOLVERS:
        if solver.IsApplicable(device.target, problem):
            assert (solve(device, solver, problem, arrays)[~seen] == 0).all()


def test_asymmetric_in_everything(device: Device) -> None:
    """M PR #3867 and M #77: in and out, height and width must not be mixed up."""
    every(device, (3, 1, 1, 1), (3, 1, 3, 2), pad=(2, 1), stride=(2, 1))
    every(device, (2, 2, 50, 55), (1, 2, 3, 3), stride=(1, 2))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(numbers=st.permutations(range(1, 9)), direction=st.sampled_from(DIRECTIONS))
def test_all_numbers_different(numbers: list[int], direction: str, device: Device) -> None:
    """N, C, K, filter, stride, pad and dilation pairwise different."""
    n, c, k, y, x, u, v, dilation = numbers
    problem = ConvProblem.create(
        direction, (n, c, 9 + y * dilation, 14 + x), (k, c, y, x), stride=(u, v), pad=(9, 10), dilation=(dilation, 1)
    )
    assert len(check_all(device, SOLVERS, problem)) >= 2


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_dilation_of_a_1x1_filter_changes_nothing(layout: str, device: Device) -> None:
    """M #1189, fp16: the same result, to the bit, as with dilation 1."""
    for direction, dilation in itertools.product(DIRECTIONS, ((2, 2), (3, 1))):
        results: dict[str, list[Any]] = {}
        for spread in ((1, 1), dilation):
            problem = ConvProblem.create(
                direction, (2, 16, 7, 7), (8, 16, 1, 1), dilation=spread, dtype="fp16", layout=layout
            )
            arrays = make_arrays(problem, seed=1)
            for solver in SOLVERS:
                if solver.IsApplicable(device.target, problem):
                    results.setdefault(solver.SolverDbId(), []).append(solve(device, solver, problem, arrays))
        assert len(results) >= 2
        for name, (plain, dilated) in results.items():
            assert np.array_equal(plain, dilated), name


def test_padding_that_differs_at_both_ends(device: Device) -> None:
    """M #749: {top 1, bottom 1, left 2, right 0}, depthwise on a 1x1 image; not taken for symmetric padding."""
    for pad in ([(1, 1), (2, 0)], [(0, 2), (2, 1)], [(0, 0), (0, 1)]):
        every(device, (1, 3, 1, 1), (3, 1, 1, 1), groups=3, pad=pad)
        every(device, (2, 3, 5, 4), (6, 3, 3, 2), pad=pad, stride=(2, 1))
    every(device, (1, 2, 3, 4, 5), (4, 2, 2, 1, 3), pad=[(0, 1), (2, 0), (1, 2)], stride=(1, 2, 2))


@pytest.mark.parametrize(
    ("x", "w", "pad"),
    [
        ((1, 3, 16, 16), (8, 3, 3, 3), 1),
        ((1, 8, 32, 32), (16, 8, 3, 3), 1),
        ((2, 32, 20, 20), (64, 32, 3, 3), 1),
        ((4, 32, 14, 14), (64, 32, 5, 5), 2),
    ],
)
def test_im2col_with_common_shapes(x: tuple[int, ...], w: tuple[int, ...], pad: int, device: Device) -> None:
    """T #2458: an im2col solver won, and was wrong."""
    every(device, x, w, pad=pad)


def test_weights_summed_in_three_dimensions_channel_last(device: Device) -> None:
    """R #8029: bf16 partial sums of a 1x1x1 weight gradient over many pixels."""
    problem = ConvProblem.create("wrw", (8, 16, 16, 16, 16), (16, 16, 1, 1, 1), dtype="bf16", layout="NDHWC")
    arrays = make_arrays(problem, seed=4)
    expected = problem.reference(arrays)
    for solver in SOLVERS:
        if solver.IsApplicable(device.target, problem):
            out = solve(device, solver, problem, arrays).astype(np.float64)
            error = np.abs(out - expected) / np.maximum(np.abs(expected), 1.0)
            assert error.max() < 0.005, solver.SolverDbId()


def test_gradients_of_strided_and_grouped_convolutions_reach_every_pixel(device: Device) -> None:
    """R PR #7732: with stride 2 and 3 only the first of several products was run."""
    for stride, groups, dtype in itertools.product((2, 3), (1, 2), ("fp32", "bf16")):
        every(device, (2, 4, 9, 9), (6, 4 // groups, 3, 3), ("bwd",), stride=stride, groups=groups, dtype=dtype)


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolutions_with_other_channels_in_than_out(groups: int, device: Device) -> None:
    """M #2459: against the mirror's reference, C != K, output padding."""
    for direction in DIRECTIONS:
        problem = ConvProblem.create(
            direction, (2, 6, 5, 5), (6, 4 // groups, 3, 3), mode="transpose", stride=2, pad=1, output_padding=1,
            groups=groups,
        )  # fmt: skip
        assert len(check_all(device, SOLVERS, problem)) >= 2


def test_tensors_with_gaps(device: Device) -> None:
    """R #11387, M #2444: a padded batch stride is right or refused, in every tensor."""
    for taps, direction in itertools.product(((1, 1), (2, 2)), DIRECTIONS):
        packed: dict[str, Any] = {"direction": direction, "x": (2, 4, 2, 2), "w": (4, 4, *taps)}
        y = ConvProblem.create(**packed).y
        for more in (
            {"x_strides": (32, 4, 2, 1)},
            {"w_strides": (64, 8, 3, 1)},
            {"y_strides": (32, y.strides[1], y.strides[2], 1)},
            {"x_strides": (32, 4, 2, 1), "y_strides": (1, 100, 30, 10)},
        ):
            problem = ConvProblem.create(**packed, **more)
            assert check_all(device, SOLVERS, problem) == [name for name in NAIVE if name.lower().endswith(direction)]


def test_strides_of_axes_of_length_one_mean_nothing(device: Device) -> None:
    """M #2860: one channel, or one pixel, is channel-first and channel-last alike."""
    for x, w, strides in (
        ((2, 1, 3, 4), (5, 1, 2, 2), [(12, 1, 4, 1), (12, 12, 4, 1), (12, 77, 4, 1)]),
        ((2, 6, 1, 1), (5, 6, 1, 1), [(6, 1, 6, 6), (6, 1, 1, 1), (6, 1, 99, 7)]),
        ((1, 2, 1, 5), (3, 2, 1, 2), [(10, 1, 10, 2), (99, 1, 7, 2)]),
    ):
        for direction in DIRECTIONS:
            problems = [ConvProblem.create(direction, x, w, x_strides=one) for one in strides]
            assert len({problem.key() for problem in problems}) == 1
            names = {tuple(check_all(device, SOLVERS, problem)) for problem in problems}
            assert len(names) == 1


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_eight_combinations_of_layouts(direction: str, device: Device) -> None:
    """R PR #8693: x, w and y of a point output must share one flattening order; y has both."""
    for layouts in itertools.product(("NCHW", "NHWC"), repeat=3):
        problem = ConvProblem.create(direction, (4, 3, 14, 14), (8, 3, 14, 14), stride=14, layout=layouts)
        has_one_product = POINT_SOLVER[direction] in check_all(device, SOLVERS, problem)
        assert has_one_product == (layouts[0] == layouts[1]), layouts
        check_all(device, SOLVERS, ConvProblem.create(direction, (2, 4, 5, 4), (6, 4, 1, 1), layout=layouts))
        check_all(device, SOLVERS, ConvProblem.create(direction, (2, 4, 5, 4), (6, 4, 3, 2), layout=layouts))


def test_a_batch_of_zero(device: Device) -> None:
    """pytorch #19599: an empty y and dx, a dw of zeros."""
    for direction in DIRECTIONS:
        for layout, groups in itertools.product(("NCHW", "NHWC"), (1, 3)):
            problem = ConvProblem.create(direction, (0, 3, 3, 3), (3, 3 // groups, 3, 3), layout=layout, groups=groups)
            assert check_all(device, SOLVERS, problem) == ["ConvEmptyBatch"]


@pytest.mark.parametrize("layout", ["NHWC", "NDHWC"])
def test_channel_last_pointwise_is_one_product(layout: str) -> None:
    """R PR #11517: not refused by a layout rule that only im2col needs; and only this case takes that path."""
    image = (14,) * (len(layout) - 2)
    ones = (1,) * len(image)
    target = known("gfx942")
    for direction, solver_id in zip(
        DIRECTIONS, ("GemmFwd1x1_0_1", "GemmBwd1x1_stride1", "GemmWrw1x1_stride1"), strict=True
    ):
        solver = default_registry().get(solver_id)
        problem = ConvProblem.create(direction, (8, 256, *image), (64, 256, *ones), layout=layout)
        assert solver.IsApplicable(target, problem)
        assert len(solver.GetSolution(target, problem).steps) == 1
        for more in ({"stride": 2}, {"pad": 1}):
            other = ConvProblem.create(direction, (8, 256, *image), (64, 256, *ones), layout=layout, **more)
            assert not solver.IsApplicable(target, other)


@pytest.mark.slow
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_more_images_than_a_16_bit_grid(direction: str, device: Device) -> None:
    """M PR #3958: patches by the ten thousands."""
    every(device, (70_000, 3, 4, 4), (4, 3, 4, 4), (direction,), stride=4)
    every(device, (70_000, 1, 2, 2), (2, 1, 1, 1), (direction,), dtype="bf16", layout="NHWC")
