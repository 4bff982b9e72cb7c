from __future__ import annotations

import pytest

from hipfind.problem.dtypes import DType
from hipfind.solvers.gemm.wrw_1x1_stride1 import GemmWrw1x1_stride1
from tests.solvers.gemm.shapes import conv, gemms, refusal, shape, solution_of, words

SOLVER = GemmWrw1x1_stride1()


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(("image", "layout"), [((6, 7), "NHWC"), ((2, 6, 7), "NDHWC")])
def test_channel_last_is_one_product_without_workspace(image: tuple[int, ...], layout: str, dtype: str) -> None:
    problem = conv("wrw", 8, 16, image, 24, (1,) * len(image), layout=layout, dtype=dtype)
    solution = solution_of(SOLVER, problem)
    assert words(solution) == ["gemm"]
    assert shape(gemms(solution)[0]) == (24, 16, problem.x.elements // 16, 1)
    assert solution.workspace_bytes == 0


def test_channel_first_adds_up_images_without_a_clear() -> None:
    solution = solution_of(SOLVER, conv("wrw", 8, 16, (6, 7), 24, (1, 1)))
    assert words(solution) == ["gemm", "7 x (gemm+)"]
    assert shape(gemms(solution)[0]) == (24, 16, 42, 1)
    assert solution.workspace_bytes == 0


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_channel_first_16_bit_types_are_summed_in_fp32_and_rounded_once(dtype: str) -> None:
    solution = solution_of(SOLVER, conv("wrw", 8, 16, (6, 7), 24, (1, 1), dtype=dtype))
    assert words(solution) == ["gemm", "7 x (gemm+)", "cast_from_fp32"]
    assert {gemm.dtype_c for gemm in gemms(solution)} == {DType.FP32}
    assert solution.workspace_bytes == 4 * 24 * 16


def test_one_image_needs_no_sum() -> None:
    solution = solution_of(SOLVER, conv("wrw", 1, 16, (6, 7), 24, (1, 1), dtype="bf16"))
    assert words(solution) == ["gemm"]
    assert gemms(solution)[0].dtype_c is DType.BF16
    assert solution.workspace_bytes == 0


def test_groups_are_a_batch() -> None:
    for layout, expected in (("NCHW", (3, 2, 25, 4)), ("NHWC", (3, 2, 200, 4))):
        solution = solution_of(SOLVER, conv("wrw", 8, 8, (5, 5), 12, (1, 1), groups=4, layout=layout))
        assert shape(gemms(solution)[0]) == expected


def test_refusals() -> None:
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 1))) == "DIRECTION"
    assert refusal(SOLVER, conv("wrw", 2, 4, (5, 5), 6, (1, 1), stride=2)) == "STRIDE"
    assert refusal(SOLVER, conv("wrw", 2, 4, (5, 5), 6, (1, 1), pad=1)) == "PADDING"
    assert refusal(SOLVER, conv("wrw", 2, 4, (5, 5), 6, (1, 2))) == "FILTER"
    assert refusal(SOLVER, conv("wrw", 2, 4, (5, 5), 6, (1, 1), layout=("NCHW", "NCHW", "NHWC"))) == "LAYOUT"
