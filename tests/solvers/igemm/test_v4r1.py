"""The decomposition against every triple of pixel, tap and output of an axis, counted one by one."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipfind.problem import ConvProblem
from hipfind.solvers.igemm.v4r1 import Axis, Phase, axes_of

Triple = tuple[int, int, int]


@st.composite
def axes(draw: st.DrawFn) -> Axis:
    """Any axis of a legal convolution: its extent of dy follows from the others."""
    taps, stride, dilation = draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(st.integers(1, 9))
    before, after = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    spread = (taps - 1) * dilation + 1
    pixels = draw(st.integers(max(1, spread - before - after), spread + 40))
    return Axis(pixels, (pixels + before + after - spread) // stride + 1, taps, stride, dilation, before)


def convolution(axis: Axis) -> collections.Counter[Triple]:
    """Every (pixel, tap, output) that the convolution multiplies."""
    found: collections.Counter[Triple] = collections.Counter()
    for output, tap in itertools.product(range(axis.outputs), range(axis.filter)):
        pixel = output * axis.stride - axis.pad + tap * axis.dilation
        if 0 <= pixel < axis.pixels:
            found[pixel, tap, output] += 1
    return found


def covered(axis: Axis, phases: Iterable[Phase]) -> collections.Counter[Triple]:
    """Every (pixel, tap, output) of the phases whose output there is."""
    found: collections.Counter[Triple] = collections.Counter()
    for phase in phases:
        for f, i, j in itertools.product(range(phase.repeats), range(phase.pixels), range(phase.taps)):
            pixel = phase.first_pixel + f * axis.dilation + i * axis.stride
            tap = phase.first_tap + f + j * axis.tap_step
            output = phase.first_output + i - j * axis.output_step
            assert 0 <= pixel < axis.pixels and 0 <= tap < axis.filter
            if 0 <= output < axis.outputs:
                found[pixel, tap, output] += 1
    return found


@given(axis=axes())
def test_every_triple_is_covered_once(axis: Axis) -> None:
    expected = convolution(axis)
    assert covered(axis, axis.phases()) == expected
    assert covered(axis, axis.joined_phases()) == expected


@given(axis=axes())
def test_every_pixel_belongs_to_at_most_one_phase(axis: Axis) -> None:
    for phases in (tuple(axis.phases()), axis.joined_phases()):
        pixels = [
            phase.first_pixel + f * axis.dilation + i * axis.stride
            for phase in phases
            for f, i in itertools.product(range(phase.repeats), range(phase.pixels))
        ]
        assert len(set(pixels)) == len(pixels)
        assert {pixel for pixel, _, _ in convolution(axis)} <= set(pixels)
        assert axis.is_covered == (len(pixels) == axis.pixels)


@given(axis=axes())
def test_every_tap_of_a_phase_meets_an_output(axis: Axis) -> None:
    for phase in axis.phases():
        assert phase.taps > 0
        met = {tap for _, tap, _ in covered(axis, [phase])}
        assert met == {phase.first_tap + j * axis.tap_step for j in range(phase.taps)}


@given(axis=axes())
def test_the_first_tap_by_the_inverse(axis: Axis) -> None:
    triples = convolution(axis)
    for pixel in range(axis.pixels):
        taps = {tap for where, tap, _ in triples if where == pixel}
        first = axis.first_tap(pixel)
        assert (first is None) == bool((pixel + axis.pad) % axis.unit)
        assert taps <= (set() if first is None else set(range(first, axis.filter, axis.tap_step)))
    for phase in axis.phases():
        first = axis.first_tap(phase.first_pixel)
        assert first is not None and phase.first_tap % axis.tap_step == first


@given(axis=axes())
def test_an_axis_without_steps_is_the_same_convolution(axis: Axis) -> None:
    free = axis.without_steps()
    assert convolution(free) == convolution(axis)
    assert covered(free, free.joined_phases()) == convolution(axis)
    if axis.outputs == 1:
        assert all(phase.taps == 1 for phase in free.phases())
    else:
        assert free == axis


@pytest.mark.parametrize(
    ("axis", "phases", "is_covered"),
    [
        (Axis(28, 4, 7, 7, 1, 0), (Phase(0, 4, 0, 1, 0, repeats=7),), True),
        (Axis(14, 14, 3, 1, 1, 1), (Phase(0, 14, 0, 3, 1),), True),
        (Axis(14, 14, 1, 1, 1, 0), (Phase(0, 14, 0, 1, 0),), True),
        (Axis(56, 28, 3, 2, 1, 1), (Phase(1, 28, 0, 2, 1), Phase(0, 28, 1, 1, 0)), True),
        (Axis(56, 28, 1, 2, 1, 0), (Phase(0, 28, 0, 1, 0),), False),
        (Axis(28, 5, 7, 7, 1, 3), (Phase(4, 4, 0, 1, 1, repeats=3), Phase(0, 4, 3, 1, 0, repeats=4)), True),
        (Axis(10, 3, 3, 4, 2, 2), (Phase(2, 2, 0, 2, 1), Phase(0, 3, 1, 1, 0)), False),
        (Axis(15, 1, 14, 14, 1, 0).without_steps(), (Phase(0, 1, 0, 1, 0, repeats=14),), False),
    ],
    ids=[
        "stride is filter",
        "stride 1",
        "pointwise",
        "3x3 stride 2",
        "1x1 stride 2",
        "padded patches",
        "dilated",
        "one output",
    ],
)
def test_known_axes(axis: Axis, phases: tuple[Phase, ...], is_covered: bool) -> None:
    assert axis.joined_phases() == phases
    assert axis.is_covered == is_covered


def test_a_long_stride_costs_no_more_than_the_filter() -> None:
    assert len(Axis(2**40, 2**20, 3, 2**20, 1, 0).joined_phases()) == 1


def test_the_axes_of_a_problem() -> None:
    problem = ConvProblem.create(
        "bwd", (2, 4, 20, 30), (6, 4, 3, 2), stride=(2, 3), pad=((1, 0), (0, 2)), dilation=(1, 4)
    )
    assert axes_of(problem) == (Axis(20, 10, 3, 2, 1, 1), Axis(30, 10, 2, 3, 4, 0))
