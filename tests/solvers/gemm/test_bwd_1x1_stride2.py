from __future__ import annotations

from hipfind.invokers.steps import ClearStep, Operand
from hipfind.solvers.gemm.bwd_1x1_stride2 import GemmBwd1x1_stride2
from tests.solvers.gemm.shapes import conv, gemms, refusal, shape, solution_of, words

SOLVER = GemmBwd1x1_stride2()


def test_channel_first_clears_dx_and_scatters_one_product_into_it() -> None:
    problem = conv("bwd", 4, 16, (7, 6), 24, (1, 1), stride=2)
    solution = solution_of(SOLVER, problem)
    assert words(solution) == ["clear", "strided_copy", "gemm", "strided_copy"]
    assert solution.steps[0] == ClearStep(Operand("x"), problem.x.nbytes)
    assert shape(gemms(solution)[0]) == (16, 4 * 12, 24, 1)
    assert solution.workspace_bytes == 4 * 16 * 12 * 4 + problem.y.nbytes


def test_a_single_image_of_dy_is_read_in_place() -> None:
    solution = solution_of(SOLVER, conv("bwd", 1, 16, (7, 6), 24, (1, 1), stride=2))
    assert words(solution) == ["clear", "gemm", "strided_copy"]
    assert solution.workspace_bytes == 16 * 12 * 4


def test_channel_last_reads_dy_as_it_lies() -> None:
    solution = solution_of(SOLVER, conv("bwd", 4, 16, (7, 6), 24, (1, 1), stride=2, layout="NHWC"))
    assert words(solution) == ["clear", "gemm", "strided_copy"]
    assert shape(gemms(solution)[0]) == (4 * 12, 16, 24, 1)
    assert solution.workspace_bytes == 4 * 16 * 12 * 4


def test_nothing_is_cleared_where_every_pixel_is_used() -> None:
    for layout in ("NCHW", "NHWC"):
        solution = solution_of(SOLVER, conv("bwd", 4, 16, (1, 1), 24, (1, 1), stride=2, layout=layout))
        assert words(solution) == ["gemm", "strided_copy"]


def test_groups_are_one_batch() -> None:
    for layout, expected in (("NCHW", (4, 48, 6, 4)), ("NHWC", (48, 4, 6, 4))):
        solution = solution_of(SOLVER, conv("bwd", 4, 16, (7, 6), 24, (1, 1), stride=2, groups=4, layout=layout))
        assert shape(gemms(solution)[0]) == expected


def test_refusals() -> None:
    assert refusal(SOLVER, conv("bwd", 2, 4, (5, 5), 6, (1, 1))) == "STRIDE"
    assert refusal(SOLVER, conv("bwd", 2, 4, (5, 5, 5), 6, (1, 1, 1), stride=2)) == "NDIM"
    assert refusal(SOLVER, conv("bwd", 2, 4, (5, 5), 6, (1, 1), stride=2, pad=1)) == "PADDING"
    assert refusal(SOLVER, conv("bwd", 2, 4, (5, 5), 6, (1, 1), stride=2, layout=("NCHW", "NCHW", "NHWC"))) == "LAYOUT"
