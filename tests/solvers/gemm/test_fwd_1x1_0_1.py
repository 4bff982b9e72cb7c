from __future__ import annotations

import pytest

from hipfind.solvers.gemm.fwd_1x1_0_1 import GemmFwd1x1_0_1
from tests.solvers.gemm.shapes import conv, gemms, refusal, shape, solution_of, words

SOLVER = GemmFwd1x1_0_1()


@pytest.mark.parametrize(("image", "layout"), [((6, 7), "NHWC"), ((2, 6, 7), "NDHWC")])
def test_channel_last_is_one_product_without_a_batch(image: tuple[int, ...], layout: str) -> None:
    problem = conv("fwd", 8, 16, image, 24, (1,) * len(image), layout=layout)
    solution = solution_of(SOLVER, problem)
    assert words(solution) == ["gemm"]
    assert shape(gemms(solution)[0]) == (problem.y.elements // 24, 24, 16, 1)
    assert solution.workspace_bytes == 0


def test_channel_first_is_one_product_with_a_batch_of_images() -> None:
    solution = solution_of(SOLVER, conv("fwd", 8, 16, (6, 7), 24, (1, 1)))
    assert words(solution) == ["gemm"]
    assert shape(gemms(solution)[0]) == (24, 42, 16, 8)
    assert solution.workspace_bytes == 0


def test_a_one_pixel_image_is_one_product_in_the_default_layout_too() -> None:
    solution = solution_of(SOLVER, conv("fwd", 8, 16, (1, 1), 24, (1, 1), layout="NCHW"))
    assert shape(gemms(solution)[0]) == (8, 24, 16, 1)


@pytest.mark.parametrize(
    ("n", "groups", "loop", "batch"), [(8, 2, 2, 8), (2, 4, 2, 4), (1, 4, 1, 4)], ids=["images", "groups", "one image"]
)
def test_groups_loop_over_the_shorter_of_images_and_groups(n: int, groups: int, loop: int, batch: int) -> None:
    solution = solution_of(SOLVER, conv("fwd", n, 8, (5, 5), 12, (1, 1), groups=groups))
    assert words(solution) == ([f"{loop} x (gemm)"] if loop > 1 else ["gemm"])
    assert shape(gemms(solution)[0]) == (12 // groups, 25, 8 // groups, batch)


def test_channel_last_groups_are_one_batch() -> None:
    solution = solution_of(SOLVER, conv("fwd", 8, 8, (5, 5), 12, (1, 1), groups=4, layout="NHWC"))
    assert words(solution) == ["gemm"]
    assert shape(gemms(solution)[0]) == (200, 3, 2, 4)


def test_dilation_of_a_1x1_filter_does_not_matter() -> None:
    plain = solution_of(SOLVER, conv("fwd", 2, 16, (7, 7), 8, (1, 1)))
    for dilation in ((2, 2), (3, 1)):
        dilated = solution_of(SOLVER, conv("fwd", 2, 16, (7, 7), 8, (1, 1), dilation=dilation))
        assert dilated.steps == plain.steps


def test_refusals() -> None:
    assert refusal(SOLVER, conv("bwd", 2, 4, (5, 5), 6, (1, 1))) == "DIRECTION"
    assert refusal(SOLVER, conv("fwd", 0, 4, (5, 5), 6, (1, 1))) == "EMPTY"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 1), dtype="int8")) == "DTYPE"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 1), alpha=2.0)) == "SCALING"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 1), beta=1.0)) == "SCALING"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 1), x_strides=(200, 25, 5, 1))) == "NOT_PACKED"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 3))) == "FILTER"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 1), pad=1)) == "PADDING"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 1), pad=((0, 1), (0, 0)))) == "PADDING"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 1), stride=(1, 2))) == "STRIDE"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (1, 1), layout=("NCHW", "NCHW", "NHWC"))) == "LAYOUT"
