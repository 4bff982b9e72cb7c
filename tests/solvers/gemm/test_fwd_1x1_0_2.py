from __future__ import annotations

from hipfind.solvers.gemm.fwd_1x1_0_2 import GemmFwd1x1_0_2
from tests.solvers.gemm.shapes import conv, gemms, refusal, shape, solution_of, words

SOLVER = GemmFwd1x1_0_2()


def test_channel_first_copies_there_and_back_around_one_product() -> None:
    problem = conv("fwd", 4, 16, (7, 6), 24, (1, 1), stride=2)
    solution = solution_of(SOLVER, problem)
    assert words(solution) == ["strided_copy", "gemm", "strided_copy"]
    assert shape(gemms(solution)[0]) == (24, 4 * 12, 16, 1)
    assert solution.workspace_bytes == 4 * 16 * 12 * 4 + problem.y.nbytes


def test_a_single_image_is_written_in_place() -> None:
    solution = solution_of(SOLVER, conv("fwd", 1, 16, (7, 6), 24, (1, 1), stride=2, dtype="bf16"))
    assert words(solution) == ["strided_copy", "gemm"]
    assert solution.workspace_bytes == 16 * 12 * 2


def test_channel_last_needs_no_copy_back() -> None:
    solution = solution_of(SOLVER, conv("fwd", 4, 16, (7, 6), 24, (1, 1), stride=2, layout="NHWC"))
    assert words(solution) == ["strided_copy", "gemm"]
    assert shape(gemms(solution)[0]) == (4 * 12, 24, 16, 1)
    assert solution.workspace_bytes == 4 * 16 * 12 * 4


def test_groups_are_one_batch() -> None:
    for layout, expected in (("NCHW", (6, 48, 4, 4)), ("NHWC", (48, 6, 4, 4))):
        solution = solution_of(SOLVER, conv("fwd", 4, 16, (7, 6), 24, (1, 1), stride=2, groups=4, layout=layout))
        assert shape(gemms(solution)[0]) == expected


def test_refusals() -> None:
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 1))) == "STRIDE"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 1), stride=(2, 1))) == "STRIDE"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5, 5), 6, (1, 1, 1), stride=2)) == "NDIM"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 1), stride=2, pad=1)) == "PADDING"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (3, 3), stride=2)) == "FILTER"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 1), stride=2, layout=("NHWC", "NCHW", "NCHW"))) == "LAYOUT"
