from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hipfind.device.base import Device
from hipfind.problem import ConvProblem
from hipfind.solvers.gemm.bwd_rest import GemmBwdRest
from hipfind.solvers.igemm.bwd_v4r1_gemm import GemmBwdV4R1
from hipfind.target import Target, known
from tests.helpers.arrays import make_arrays
from tests.helpers.bounds import assert_inside
from tests.helpers.solving import check_all, solve
from tests.helpers.strategies import FLOATS, conv_problems
from tests.solvers.gemm.shapes import GPU, HOST, conv, gemms, refusal, shape, solution_of, words

SOLVER = GemmBwdV4R1()

made_up = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def strided(draw: st.DrawFn) -> ConvProblem:
    """Strides and dilations with and without common divisors, filters of all lengths beside them, uneven padding."""
    ndim, groups = draw(st.sampled_from((2, 2, 3))), draw(st.sampled_from((1, 1, 2, 3)))

    def axis() -> tuple[int, int, int, int, int, int]:
        taps, stride, dilation = draw(st.integers(1, 7)), draw(st.integers(1, 7)), draw(st.integers(1, 6))
        before, after, more = draw(st.integers(0, 4)), draw(st.integers(0, 4)), draw(st.integers(0, 9))
        if ndim == 3:
            taps, stride, dilation, more = min(taps, 3), min(stride, 3), min(dilation, 2), min(more, 3)
        pixels = max(1, (taps - 1) * dilation + 1 - before - after + more)
        return pixels, taps, stride, dilation, before, after

    image, taps, stride, dilation, before, after = zip(*(axis() for _ in range(ndim)), strict=True)
    c, k = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    names = {2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}[ndim]
    mixed = st.tuples(*[st.sampled_from(names)] * 3)
    return ConvProblem.create(
        "bwd", (draw(st.integers(1, 4)), c, *image), (k, c // groups, *taps), stride=stride, dilation=dilation,
        pad=tuple(zip(before, after, strict=True)), groups=groups, dtype=draw(st.sampled_from(FLOATS)),
        layout=draw(st.sampled_from(names) | mixed),
    )  # fmt: skip


@made_up
@given(
    problem=strided() | conv_problems(packed=True, empty=False, directions=("bwd",), modes=("convolution",)),
    seed=st.integers(0, 2**16),
)
def test_against_float64(problem: ConvProblem, seed: int, device: Device) -> None:
    for target in (device.target, GPU):
        if SOLVER.IsApplicable(target, problem):
            assert_inside(problem, SOLVER.GetSolution(target, problem))
            check_all(device, [SOLVER], problem, seed, target=target)


@made_up
@given(problem=strided(), seed=st.integers(0, 2**16))
def test_it_applies_to_every_strided_problem_that_no_other_product_covers(
    problem: ConvProblem, seed: int, device: Device
) -> None:
    answer = SOLVER.IsApplicable(device.target, problem)
    assert answer or (answer.reason is not None and answer.reason.name in ("SPECIALIZED", "STRIDE"))


def test_a_product_for_every_phase_and_one_scatter() -> None:
    solution = solution_of(SOLVER, conv("bwd", 3, 6, (8, 8), 10, (3, 3), stride=2, pad=1))
    copies, part = ["strided_copy"] * 4, ["v4r1_columns_first", "gemm"]
    assert words(solution) == [*copies, *part * 4, "copy_block"]
    assert [shape(gemm) for gemm in gemms(solution)] == [
        (6, 3 * 16, 10 * taps, 1) for taps in (1, 2, 2, 4)
    ]  # fmt: skip
    assert sum(gemm.flops for gemm in gemms(solution)) == conv("bwd", 3, 6, (8, 8), 10, (3, 3), stride=2, pad=1).flops


def test_a_stride_of_the_filter_is_one_product_with_w_as_it_lies() -> None:
    solution = solution_of(SOLVER, conv("bwd", 5, 4, (28, 28), 16, (7, 7), stride=7))
    assert words(solution) == ["v4r1_columns_first", "gemm", "copy_block"]
    assert [shape(gemm) for gemm in gemms(solution)] == [(4 * 49, 5 * 16, 16, 1)]


def test_channel_last_y_is_its_own_columns_where_each_pixel_has_one_tap() -> None:
    solution = solution_of(SOLVER, conv("bwd", 5, 4, (28, 28), 16, (7, 7), stride=7, layout="NHWC"))
    assert words(solution) == ["gemm", "strided_copy"]
    assert [shape(gemm) for gemm in gemms(solution)] == [(5 * 16, 4 * 49, 16, 1)]


def test_stride_1_writes_channel_last_dx_in_the_product() -> None:
    solution = solution_of(SOLVER, conv("bwd", 5, 4, (9, 9), 16, (3, 3), pad=1, layout="NHWC", groups=2))
    assert words(solution) == ["strided_copy", "v4r1_columns_last", "gemm"]
    assert [shape(gemm) for gemm in gemms(solution)] == [(5 * 81, 2, 8 * 9, 2)]


def test_large_images_are_multiplied_one_by_one_where_they_lie() -> None:
    solution = solution_of(SOLVER, conv("bwd", 5, 4, (60, 60), 16, (3, 3), pad=1))
    assert words(solution) == ["strided_copy", "5 x (v4r1_columns_first, gemm)"]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_images_are_multiplied_in_blocks_and_a_rest(layout: str, device: Device) -> None:
    problem = conv("bwd", 13, 4, (40, 40), 16, (3, 3), stride=2, pad=1, layout=layout)
    solution = solution_of(SOLVER, problem)
    loops = [word for word in words(solution) if " x " in word]
    assert [word.split()[0] for word in loops] == ["2"]
    flats = [gemm.m if layout == "NHWC" else gemm.n for gemm in gemms(solution)]
    assert flats == [5 * 400] * 4 + [3 * 400] * 4
    assert check_all(device, [SOLVER], problem)


def test_pixels_without_taps_are_cleared_and_no_others() -> None:
    assert words(solution_of(SOLVER, conv("bwd", 1, 4, (9, 9), 6, (2, 2), stride=3)))[0] == "clear"
    assert words(solution_of(SOLVER, conv("bwd", 1, 4, (9, 9), 6, (3, 3), stride=2, dilation=2)))[0] == "clear"
    assert "clear" not in words(solution_of(SOLVER, conv("bwd", 1, 4, (9, 9), 6, (2, 2), stride=2, pad=1)))


def test_one_output_needs_no_more_products_than_the_filter_has_taps() -> None:
    problem = conv("bwd", 8, 4, (5, 5), 32, (4, 4), stride=4, layout="NHWC")
    solution = solution_of(SOLVER, problem)
    assert sum(gemm.flops for gemm in gemms(solution)) == problem.flops
    assert words(solution) == ["clear", "gemm", "strided_copy"]


def test_what_others_do_better_is_left_to_them_and_so_are_hundreds_of_small_products() -> None:
    assert refusal(SOLVER, conv("bwd", 2, 4, (5, 5), 6, (1, 1))) == "SPECIALIZED"
    assert refusal(SOLVER, conv("bwd", 2, 4, (5, 5), 6, (1, 1), stride=2)) == "SPECIALIZED"
    assert refusal(SOLVER, conv("bwd", 2, 4, (5, 5), 6, (5, 5))) == "SPECIALIZED"
    assert refusal(SOLVER, conv("fwd", 2, 4, (5, 5), 6, (3, 3))) == "DIRECTION"
    many = conv("bwd", 2, 4, (500, 500), 6, (31, 31), stride=31, dilation=12)
    assert refusal(SOLVER, many) == "STRIDE"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("target", [HOST, GPU], ids=["host", "gpu"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "more", [{"stride": 2, "pad": 1}, {"stride": (3, 1), "dilation": (2, 3)}, {"stride": 4}], ids=str
)
def test_what_is_not_finite_reaches_its_own_pixels_only(
    more: dict[str, Any], layout: str, target: Target, bad: float, device: Device
) -> None:
    problem = conv("bwd", 3, 4, (13, 14), 6, (3, 3), layout=layout, groups=2, **more)
    arrays = make_arrays(problem, seed=4)
    before = solve(device, SOLVER, problem, arrays, target=target)
    n, k, h, w = 1, 4, problem.out_spatial[0] // 2, problem.out_spatial[1] - 1
    arrays["y"][n, k, h, w] = bad
    after = solve(device, SOLVER, problem, arrays, target=target)
    reached = np.zeros(problem.x.lengths, bool)
    for r in range(9):
        pixel = [
            output * problem.stride[axis] - problem.pad[axis] + tap * problem.dilation[axis]
            for axis, (output, tap) in enumerate(((h, r // 3), (w, r % 3)))
        ]
        if all(0 <= place < extent for place, extent in zip(pixel, problem.in_spatial, strict=True)):
            reached[n, 2:4, pixel[0], pixel[1]] = True
    assert reached.any()
    assert not np.isfinite(after[reached]).any()
    assert np.array_equal(after[~reached], before[~reached])


def test_16_bit_gradients_are_rounded_once(device: Device) -> None:
    problem = conv("bwd", 2, 16, (12, 12), 256, (5, 5), stride=2, pad=2, dtype="bf16")
    arrays = make_arrays(problem, seed=5)
    expected = problem.reference(arrays)
    out = solve(device, SOLVER, problem, arrays).astype(np.float64)
    assert np.abs(out - expected).max() <= 2.0**-8 * np.abs(expected).max()


def test_immediate_mode_prefers_it_where_images_have_few_outputs() -> None:
    """A product an image is thin there, and on a GPU a launch an image."""
    rest = GemmBwdRest()
    problem = conv("bwd", 64, 64, (28, 28), 128, (7, 7), stride=7)
    for target in (HOST, GPU, known("sm_90")):
        assert SOLVER.GetExpectedTime(target, problem) < rest.GetExpectedTime(target, problem)
        assert SOLVER.GetWti(target, problem) > rest.GetWti(target, problem)
