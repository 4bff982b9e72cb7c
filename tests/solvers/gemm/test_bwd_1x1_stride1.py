from __future__ import annotations

import pytest

from hipfind.solvers.gemm.bwd_1x1_stride1 import GemmBwd1x1_stride1
from tests.solvers.gemm.shapes import conv, gemms, refusal, shape, solution_of, words

SOLVER = GemmBwd1x1_stride1()


@pytest.mark.parametrize(("image", "layout"), [((6, 7), "NHWC"), ((2, 6, 7), "NDHWC")])
def test_channel_last_is_one_product_without_a_batch(image: tuple[int, ...], layout: str) -> None:
    problem = conv("bwd", 8, 16, image, 24, (1,) * len(image), layout=layout)
    solution = solution_of(SOLVER, problem)
    assert words(solution) == ["gemm"]
    assert shape(gemms(solution)[0]) == (problem.x.elements // 16, 16, 24, 1)
    assert solution.workspace_bytes == 0


def test_channel_first_is_one_product_with_a_batch_of_images() -> None:
    solution = solution_of(SOLVER, conv("bwd", 8, 16, (6, 7), 24, (1, 1)))
    assert words(solution) == ["gemm"]
    assert shape(gemms(solution)[0]) == (16, 42, 24, 8)
    assert solution.workspace_bytes == 0


def test_groups_loop_over_the_shorter_of_images_and_groups() -> None:
    for n, groups, loop, batch in ((8, 2, 2, 8), (2, 4, 2, 4)):
        solution = solution_of(SOLVER, conv("bwd", n, 8, (5, 5), 12, (1, 1), groups=groups))
        assert words(solution) == [f"{loop} x (gemm)"]
        assert shape(gemms(solution)[0]) == (8 // groups, 25, 12 // groups, batch)


def test_channel_last_groups_are_one_batch() -> None:
    solution = solution_of(SOLVER, conv("bwd", 8, 8, (5, 5), 12, (1, 1), groups=4, layout="NHWC"))
    assert words(solution) == ["gemm"]
    assert shape(gemms(solution)[0]) == (200, 2, 3, 4)


def test_refusals() -> None:
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 1))) == "DIRECTION"
    assert refusal(SOLVER, conv("bwd", 2, 4, (5, 5), 6, (1, 1), stride=2)) == "STRIDE"
    assert refusal(SOLVER, conv("bwd", 2, 4, (5, 5), 6, (1, 1), pad=1)) == "PADDING"
    assert refusal(SOLVER, conv("bwd", 2, 4, (5, 5), 6, (3, 1))) == "FILTER"
    assert refusal(SOLVER, conv("bwd", 2, 4, (5, 5), 6, (1, 1), layout=("NCHW", "NCHW", "NHWC"))) == "LAYOUT"
    assert refusal(SOLVER, conv("bwd", 2, 4, (5, 5), 6, (1, 1), y_strides=(300, 25, 5, 1))) == "NOT_PACKED"
