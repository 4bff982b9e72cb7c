from __future__ import annotations

import pytest

from hipfind.problem.dtypes import DType
from hipfind.solvers.gemm.bwd_rest import GemmBwdRest
from tests.helpers.conv_cases import point_outputs
from tests.solvers.gemm.shapes import HOST, conv, gemms, refusal, shape, solution_of, words

SOLVER = GemmBwdRest()


def test_a_product_and_col2im_for_every_image() -> None:
    solution = solution_of(SOLVER, conv("bwd", 4, 6, (9, 8), 10, (3, 2), stride=2, pad=1))
    assert words(solution) == ["4 x (gemm, col2im)"]
    assert shape(gemms(solution)[0]) == (6 * 3 * 2, 5 * 5, 10, 1)
    assert solution.workspace_bytes == 6 * 3 * 2 * 5 * 5 * 4


def test_groups_are_a_batch_and_workspace_is_for_all_of_them() -> None:
    solution = solution_of(SOLVER, conv("bwd", 1, 6, (4, 9, 8), 12, (1, 3, 3), groups=3))
    assert words(solution) == ["gemm", "col2im"]
    assert shape(gemms(solution)[0]) == (2 * 9, 4 * 7 * 6, 4, 3)
    assert solution.workspace_bytes == 6 * 9 * 4 * 7 * 6 * 4


@pytest.mark.parametrize(("dtype", "columns"), [("bf16", "fp32"), ("fp16", "fp32"), ("fp32", "fp32"), ("fp64", "fp64")])
def test_columns_of_16_bit_types_are_fp32(dtype: str, columns: str) -> None:
    for problem in (
        conv("bwd", 4, 6, (9, 8), 10, (3, 2), dtype=dtype),
        conv("bwd", 4, 6, (5, 5), 10, (4, 4), stride=4, dtype=dtype),
    ):
        solution = solution_of(SOLVER, problem)
        assert {gemm.dtype_c.value for gemm in gemms(solution)} == {columns}
        elements = 6 * 6 * 7 * 7 if problem.out_spatial == (7, 7) else 4 * 6 * 16
        assert solution.workspace_bytes == elements * DType(columns).itemsize


@pytest.mark.parametrize("is_channel_last", [False, True])
def test_point_output_is_one_product_without_workspace_or_clear(is_channel_last: bool) -> None:
    for name, problem in point_outputs("bwd", "fp32", is_channel_last).items():
        if problem.in_spatial != problem.filter:
            continue
        solution = solution_of(SOLVER, problem)
        assert words(solution) == ["gemm"], name
        assert shape(gemms(solution)[0]) == (problem.n, problem.w.elements // problem.k, problem.k, 1), name
        assert solution.workspace_bytes == 0, name


@pytest.mark.parametrize(
    ("image", "taps", "more"),
    [
        ((5, 5, 5), (4, 4, 4), {"stride": 4}),
        ((7, 5), (4, 3), {"stride": (4, 3)}),
        ((2, 2), (3, 3), {"pad": 1, "stride": 5}),
        ((7, 7), (3, 3), {"dilation": 3}),
    ],
    ids=["3D", "2D", "padded", "dilated"],
)
def test_one_output_position_scatters_one_product_over_all_images(
    image: tuple[int, ...], taps: tuple[int, ...], more: dict[str, object]
) -> None:
    problem = conv("bwd", 8, 4, image, 32, taps, **more)
    assert set(problem.out_spatial) == {1}
    solution = solution_of(SOLVER, problem)
    assert words(solution) == ["gemm", "col2im"]
    assert shape(gemms(solution)[0]) == (8, problem.w.elements // 32, 32, 1)
    assert solution.workspace_bytes == 8 * problem.w.elements // 32 * 4


def test_channel_last_does_not_take_the_channel_first_scatter() -> None:
    for image, taps, layout in (((5, 5, 5), (4, 4, 4), "NDHWC"), ((7, 5), (4, 3), "NHWC")):
        assert refusal(SOLVER, conv("bwd", 8, 4, image, 32, taps, stride=4, layout=layout)) == "LAYOUT"


def test_refusals() -> None:
    assert refusal(SOLVER, conv("bwd", 2, 4, (5, 5), 6, (1, 1))) == "SPECIALIZED"
    assert refusal(SOLVER, conv("bwd", 2, 4, (5, 5), 6, (1, 1), stride=2)) == "SPECIALIZED"
    assert refusal(SOLVER, conv("bwd", 2, 4, (5, 5), 6, (3, 3), layout="NHWC")) == "LAYOUT"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (3, 3))) == "DIRECTION"


def test_strides_that_the_special_solvers_do_not_take_are_not_left_without_a_product() -> None:
    for stride in (3, (1, 2), (2, 1)):
        assert words(solution_of(SOLVER, conv("bwd", 1, 4, (5, 5), 6, (1, 1), stride=stride))) == ["gemm", "col2im"]
    assert SOLVER.IsApplicable(HOST, conv("bwd", 2, 4, (5, 5, 5), 6, (1, 1, 1), stride=2))
