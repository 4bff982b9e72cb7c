from __future__ import annotations

import pytest

from hipfind.problem.dtypes import DType
from hipfind.solvers.gemm.wrw_universal import GemmWrwUniversal
from tests.helpers.conv_cases import point_outputs
from tests.solvers.gemm.shapes import conv, gemms, refusal, shape, solution_of, words

SOLVER = GemmWrwUniversal()


def test_images_add_up_and_the_first_overwrites() -> None:
    solution = solution_of(SOLVER, conv("wrw", 4, 6, (9, 8), 10, (3, 2), stride=2, pad=1))
    assert words(solution) == ["im2col", "gemm", "3 x (im2col, gemm+)"]
    assert shape(gemms(solution)[0]) == (10, 6 * 3 * 2, 5 * 5, 1)
    assert solution.workspace_bytes == 6 * 3 * 2 * 5 * 5 * 4


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_16_bit_types_are_summed_in_fp32_behind_the_aligned_columns(dtype: str) -> None:
    problem = conv("wrw", 4, 6, (9, 8), 10, (3, 2), stride=2, pad=1, dtype=dtype)
    solution = solution_of(SOLVER, problem)
    assert words(solution) == ["im2col", "gemm", "3 x (im2col, gemm+)", "cast_from_fp32"]
    assert {gemm.dtype_c for gemm in gemms(solution)} == {DType.FP32}
    assert solution.workspace_bytes == 2048 + 4 * problem.w.elements  # 1800 bytes of columns, aligned to 256


def test_one_image_needs_no_sum() -> None:
    solution = solution_of(SOLVER, conv("wrw", 1, 6, (9, 8), 10, (3, 2), stride=2, pad=1, dtype="bf16"))
    assert words(solution) == ["im2col", "gemm"]
    assert gemms(solution)[0].dtype_c is DType.BF16
    assert solution.workspace_bytes == 1800


def test_groups_are_a_batch() -> None:
    solution = solution_of(SOLVER, conv("wrw", 1, 6, (4, 9, 8), 12, (1, 3, 3), groups=3))
    assert shape(gemms(solution)[0]) == (4, 2 * 9, 4 * 7 * 6, 3)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("is_channel_last", [False, True])
def test_point_output_is_one_product_without_workspace_clear_or_cast(is_channel_last: bool, dtype: str) -> None:
    for name, problem in point_outputs("wrw", dtype, is_channel_last).items():
        if problem.in_spatial != problem.filter:
            continue
        solution = solution_of(SOLVER, problem)
        assert words(solution) == ["gemm"], name
        assert shape(gemms(solution)[0]) == (problem.k, problem.w.elements // problem.k, problem.n, 1), name
        assert solution.workspace_bytes == 0, name


def test_an_image_larger_than_the_filter_takes_im2col() -> None:
    solution = solution_of(SOLVER, conv("wrw", 4, 3, (5, 5, 5), 9, (4, 4, 4), stride=4))
    assert words(solution) == ["im2col", "gemm", "3 x (im2col, gemm+)"]


def test_refusals() -> None:
    assert refusal(SOLVER, conv("wrw", 2, 4, (5, 5), 6, (1, 1))) == "SPECIALIZED"
    assert refusal(SOLVER, conv("wrw", 2, 4, (5, 5), 6, (3, 3), layout="NHWC")) == "LAYOUT"
    assert refusal(SOLVER, conv("bwd", 2, 4, (5, 5), 6, (3, 3))) == "DIRECTION"


def test_a_1x1_filter_with_a_stride_is_not_left_without_a_product() -> None:
    assert words(solution_of(SOLVER, conv("wrw", 1, 4, (5, 5), 6, (1, 1), stride=2))) == ["im2col", "gemm"]
