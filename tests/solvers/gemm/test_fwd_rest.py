from __future__ import annotations

import dataclasses

import pytest

from hipfind.solvers.gemm.fwd_rest import GemmFwdRest
from tests.helpers.conv_cases import point_outputs
from tests.solvers.gemm.shapes import HOST, conv, gemms, refusal, shape, solution_of, words

SOLVER = GemmFwdRest()


def test_im2col_and_a_product_for_every_image() -> None:
    solution = solution_of(SOLVER, conv("fwd", 4, 6, (9, 8), 10, (3, 2), stride=2, pad=1, dtype="fp16"))
    assert words(solution) == ["4 x (im2col, gemm)"]
    assert shape(gemms(solution)[0]) == (10, 5 * 5, 6 * 3 * 2, 1)
    assert solution.workspace_bytes == 6 * 3 * 2 * 5 * 5 * 2


def test_groups_are_a_batch_and_workspace_is_for_all_of_them() -> None:
    solution = solution_of(SOLVER, conv("fwd", 1, 6, (4, 9, 8), 12, (1, 3, 3), groups=3))
    assert words(solution) == ["im2col", "gemm"]
    assert shape(gemms(solution)[0]) == (4, 4 * 7 * 6, 2 * 9, 3)
    assert solution.workspace_bytes == 6 * 9 * 4 * 7 * 6 * 4


@pytest.mark.parametrize("is_channel_last", [False, True])
def test_point_output_is_one_product_without_workspace(is_channel_last: bool) -> None:
    for name, problem in point_outputs("fwd", "fp32", is_channel_last).items():
        if problem.in_spatial != problem.filter:
            continue
        solution = solution_of(SOLVER, problem)
        assert words(solution) == ["gemm"], name
        assert shape(gemms(solution)[0]) == (problem.n, problem.k, problem.w.elements // problem.k, 1), name
        assert gemms(solution)[0].beta == 0.0
        assert solution.workspace_bytes == 0, name


def test_point_output_needs_no_compiler() -> None:
    bare = dataclasses.replace(HOST, kernels=False)
    assert SOLVER.IsApplicable(bare, conv("fwd", 4, 3, (14, 14), 8, (14, 14), stride=14))
    assert str(SOLVER.IsApplicable(bare, conv("fwd", 4, 3, (14, 14), 8, (7, 7)))).startswith("no compiler")


@pytest.mark.parametrize(
    "more",
    [{"groups": 3}, {"pad": 1, "stride": 20}, {"pad": ((0, 1), (0, 0))}],
    ids=["groups", "padding", "padding at the end"],
)
def test_what_breaks_the_point_output_rule_takes_im2col(more: dict[str, object]) -> None:
    solution = solution_of(SOLVER, conv("fwd", 4, 3, (14, 14), 9, (14, 14), **more))
    assert words(solution) == ["4 x (im2col, gemm)"]


def test_an_image_larger_than_the_filter_takes_im2col() -> None:
    solution = solution_of(SOLVER, conv("fwd", 4, 3, (5, 5, 5), 9, (4, 4, 4), stride=4))
    assert words(solution) == ["4 x (im2col, gemm)"]


def test_refusals() -> None:
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 1))) == "SPECIALIZED"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 1), stride=2, layout="NHWC")) == "SPECIALIZED"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (3, 3), layout="NHWC")) == "LAYOUT"
    assert refusal(SOLVER, conv("wrw", 2, 4, (5, 5), 6, (3, 3))) == "DIRECTION"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (5, 5), layout=("NHWC", "NCHW", "NCHW"))) == "LAYOUT"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (5, 5), y_strides=(12, 1, 1, 1))) == "NOT_PACKED"


def test_strides_that_the_special_solvers_do_not_take_are_not_left_without_a_product() -> None:
    for stride in (3, (1, 2), (2, 1)):
        assert words(solution_of(SOLVER, conv("fwd", 1, 4, (5, 5), 6, (1, 1), stride=stride))) == ["im2col", "gemm"]
    assert SOLVER.IsApplicable(HOST, conv("fwd", 2, 4, (5, 5, 5), 6, (1, 1, 1), stride=2))
    assert SOLVER.IsApplicable(HOST, conv("fwd", 2, 4, (5, 5), 6, (1, 1), pad=1))
