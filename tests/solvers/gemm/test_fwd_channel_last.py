from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hipfind.device.base import Device
from hipfind.problem import ConvProblem
from hipfind.solvers.gemm.fwd_channel_last import GemmFwdChannelLast
from tests.helpers.arrays import make_arrays
from tests.helpers.bounds import assert_inside
from tests.helpers.solving import check_all, solve
from tests.helpers.strategies import conv_problems
from tests.solvers.gemm.shapes import GPU, conv, gemms, refusal, shape, solution_of, words

SOLVER = GemmFwdChannelLast()

made_up = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
channel_last = conv_problems(
    packed=True, empty=False, directions=("fwd",), modes=("convolution",), layouts=("last",)
)  # fmt: skip


@made_up
@given(problem=channel_last, seed=st.integers(0, 2**16))
def test_against_float64(problem: ConvProblem, seed: int, device: Device) -> None:
    for target in (device.target, GPU):
        if SOLVER.IsApplicable(target, problem):
            assert_inside(problem, SOLVER.GetSolution(target, problem))
            check_all(device, [SOLVER], problem, seed, target=target)


def test_many_small_images_are_one_product() -> None:
    solution = solution_of(SOLVER, conv("fwd", 32, 6, (7, 7), 10, (3, 2), stride=2, pad=1, layout="NHWC"))
    assert words(solution) == ["im2col_last", "gemm"]
    assert shape(gemms(solution)[0]) == (32 * 4 * 4, 10, 6 * 3 * 2, 1)
    assert solution.workspace_bytes == 32 * 4 * 4 * 6 * 3 * 2 * 4


def test_larger_images_are_multiplied_in_blocks_and_a_rest(device: Device) -> None:
    solution = solution_of(SOLVER, conv("fwd", 8, 4, (32, 32), 6, (3, 3), pad=1, layout="NHWC"))
    assert words(solution) == ["4 x (im2col_last, gemm)"]
    problem = conv("fwd", 9, 4, (32, 32), 6, (3, 3), pad=1, layout="NHWC")
    solution = solution_of(SOLVER, problem)
    assert words(solution) == ["4 x (im2col_last, gemm)", "im2col_last", "gemm"]
    assert [gemm.m for gemm in gemms(solution)] == [2 * 1024, 1024]
    assert check_all(device, [SOLVER], problem)


def test_groups_are_a_batch() -> None:
    solution = solution_of(SOLVER, conv("fwd", 1, 6, (4, 9, 8), 12, (1, 3, 3), groups=3, layout="NDHWC"))
    assert shape(gemms(solution)[0]) == (4 * 7 * 6, 4, 2 * 9, 3)


def test_rows_on_a_gpu_begin_at_multiples_of_16_bytes() -> None:
    for dtype, pitch in (("bf16", 152), ("fp32", 148), ("fp64", 148)):
        (gemm,) = gemms(SOLVER.GetSolution(GPU, conv("fwd", 2, 3, (20, 20), 8, (7, 7), layout="NHWC", dtype=dtype)))
        assert (gemm.k, gemm.lda) == (147, pitch)


def test_what_others_do_without_columns_is_left_to_them() -> None:
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 1), layout="NHWC")) == "SPECIALIZED"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 1), stride=2, layout="NHWC")) == "SPECIALIZED"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (5, 5), layout="NHWC")) == "SPECIALIZED"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (3, 3))) == "LAYOUT"
    assert refusal(SOLVER, conv("wrw", 2, 4, (5, 5), 6, (3, 3), layout="NHWC")) == "DIRECTION"


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
def test_padding_of_a_line_is_zero_at_both_ends(groups: int, dilation: int, device: Device) -> None:
    """Windows that begin before a line, end behind it, do both, and miss it altogether."""
    for taps, pad in ((3, 2), (3, 4), (7, 6), (2, 5)):
        problem = conv(
            "fwd", 2, 4, (3, 2), 2, (2, taps), pad=pad, dilation=dilation, groups=groups, layout="NHWC"
        )  # fmt: skip
        assert check_all(device, [SOLVER], problem)


def test_what_is_not_finite_reaches_its_own_outputs_only(device: Device) -> None:
    problem = conv("fwd", 3, 4, (9, 8), 4, (3, 3), pad=1, stride=(2, 1), groups=2, layout="NHWC")
    arrays = make_arrays(problem, seed=4)
    before = solve(device, SOLVER, problem, arrays)
    arrays["x"][1, 2, 4, 7] = np.nan
    after = solve(device, SOLVER, problem, arrays)
    reached = np.zeros(problem.y.lengths, bool)
    reached[1, 2:, 2:3, 6:8] = True
    assert np.isnan(after[reached]).all()
    assert np.array_equal(after[~reached], before[~reached])
