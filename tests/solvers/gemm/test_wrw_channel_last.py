from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hipfind.device.base import Device
from hipfind.problem import ConvProblem
from hipfind.solvers.gemm.wrw_channel_last import GemmWrwChannelLast
from tests.helpers.bounds import assert_inside
from tests.helpers.solving import check_all
from tests.helpers.strategies import conv_problems
from tests.solvers.gemm.shapes import GPU, conv, gemms, refusal, shape, solution_of, words

SOLVER = GemmWrwChannelLast()

made_up = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
channel_last = conv_problems(
    packed=True, empty=False, directions=("wrw",), modes=("convolution",), layouts=("last",)
)  # fmt: skip


@made_up
@given(problem=channel_last, seed=st.integers(0, 2**16))
def test_against_float64(problem: ConvProblem, seed: int, device: Device) -> None:
    for target in (device.target, GPU):
        if SOLVER.IsApplicable(target, problem):
            assert_inside(problem, SOLVER.GetSolution(target, problem))
            check_all(device, [SOLVER], problem, seed, target=target)


def test_many_small_images_are_one_sum_that_overwrites_dw() -> None:
    for dtype in ("fp32", "bf16"):
        solution = solution_of(
            SOLVER, conv("wrw", 32, 6, (7, 7), 10, (3, 2), stride=2, pad=1, layout="NHWC", dtype=dtype)
        )
        assert words(solution) == ["im2col_last", "gemm"]
        assert shape(gemms(solution)[0]) == (10, 6 * 3 * 2, 32 * 4 * 4, 1)


def test_larger_images_are_added_block_by_block(device: Device) -> None:
    problem = conv("wrw", 9, 4, (32, 32), 6, (3, 3), pad=1, layout="NHWC")
    solution = solution_of(SOLVER, problem)
    assert words(solution) == ["im2col_last", "gemm", "3 x (im2col_last, gemm+)", "im2col_last", "gemm+"]
    assert [gemm.k for gemm in gemms(solution)] == [2 * 1024, 2 * 1024, 1024]
    assert check_all(device, [SOLVER], problem)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_16_bit_sums_over_blocks_are_kept_in_fp32_and_rounded_once(dtype: str, device: Device) -> None:
    problem = conv("wrw", 9, 4, (32, 32), 6, (3, 3), pad=1, layout="NHWC", dtype=dtype)
    solution = solution_of(SOLVER, problem)
    assert words(solution)[-1] == "cast_from_fp32"
    assert {gemm.dtype_c.value for gemm in gemms(solution)} == {"fp32"}
    columns = 2 * 1024 * 4 * 9 * 2
    assert solution.workspace_bytes == columns + 4 * problem.w.elements
    assert check_all(device, [SOLVER], problem)


def test_groups_are_a_batch() -> None:
    solution = solution_of(SOLVER, conv("wrw", 1, 6, (4, 9, 8), 12, (1, 3, 3), groups=3, layout="NDHWC"))
    assert shape(gemms(solution)[0]) == (4, 2 * 9, 4 * 7 * 6, 3)


def test_what_others_do_without_columns_is_left_to_them() -> None:
    assert refusal(SOLVER, conv("wrw", 2, 4, (5, 5), 6, (1, 1), layout="NHWC")) == "SPECIALIZED"
    assert refusal(SOLVER, conv("wrw", 2, 4, (5, 5), 6, (5, 5), layout="NHWC")) == "SPECIALIZED"
    assert refusal(SOLVER, conv("wrw", 2, 4, (5, 5), 6, (3, 3))) == "LAYOUT"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (3, 3), layout="NHWC")) == "DIRECTION"
