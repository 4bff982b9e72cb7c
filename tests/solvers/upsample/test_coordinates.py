"""Whole-number coordinates against exact fractions, and windows that follow from them."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from hipfind.problem.upsample import Axis
from hipfind.problem.upsample_reference import taps
from hipfind.solvers.upsample.coordinates import coordinates

SIZES = st.integers(1, 3000)


def exact_source(axis: Axis, output: int) -> Fraction:
    """source(output) before it is limited, by torch's rule."""
    if axis.align_corners:
        return Fraction(output * (axis.size - 1), max(axis.out - 1, 1)) if axis.out > 1 else Fraction(0)
    step = Fraction(axis.size, axis.out) if axis.scale is None else Fraction(1.0 / axis.scale)
    return (output + Fraction(1, 2)) * step - Fraction(1, 2)


@given(size=SIZES, out=SIZES, align_corners=st.booleans(), output=st.integers(0, 2999))
@example(size=1, out=7, align_corners=True, output=3)
@example(size=7, out=1, align_corners=True, output=0)
@example(size=1, out=1, align_corners=False, output=0)
def test_sizes_give_exact_coordinates(size: int, out: int, align_corners: bool, output: int) -> None:
    axis, output = Axis(size, out, None, align_corners), output % out
    numbers = coordinates(axis)
    assert numbers[:2] == (size, out)
    source = Fraction(numbers.step * output + numbers.shift, numbers.unit)
    if size > 1:
        assert source == exact_source(axis, output)
    else:
        assert source <= 0 or not align_corners  # one pixel: everything is limited to it
    assert numbers.step >= 0 and numbers.unit > 0


@given(size=st.integers(1, 2**28), scale=st.floats(1e-3, 1e3), share=st.floats(0.0, 1.0))
@example(size=10, scale=1.7, share=1.0)
@example(size=2**28, scale=1 / 3, share=1.0)
@example(size=40, scale=1 / (0.5 + 2**-35), share=1.0)
def test_scales_give_coordinates_to_the_last_bits(size: int, scale: float, share: float) -> None:
    out = max(int(size * scale), 1)
    axis, output = Axis(size, out, scale, False), int(share * (out - 1))
    numbers = coordinates(axis)
    largest = max(numbers.step * out + abs(numbers.shift), numbers.unit * size + numbers.step)
    assert largest < 2**63, "kernels count in 64 bits"
    source = Fraction(numbers.step * output + numbers.shift, numbers.unit)
    # the nearest fraction that fits, or a simple one that the step is rounded from
    error = Fraction(size, 2**61) + Fraction(axis.step) / 2**53
    assert abs(source - exact_source(axis, output)) <= (output + 1) * error


def test_simple_scales_give_small_numbers() -> None:
    assert coordinates(Axis(10, 17, 1.7, False))[2:] == (20, -7, 34)
    assert coordinates(Axis(64, 128, None, False))[2:] == (2, -1, 4)
    assert coordinates(Axis(128, 256, None, True))[2:] == (127, 0, 255)


@given(size=st.integers(1, 60), out=st.integers(1, 200), align_corners=st.booleans(), pixels=st.integers(1, 60))
def test_spans_hold_every_window(size: int, out: int, align_corners: bool, pixels: int) -> None:
    """No run of pixels looks at more outputs than its span says; what pixels() gives is not wider than asked."""
    axis = Axis(size, out, None, align_corners)
    numbers, (before, fraction) = coordinates(axis), taps(axis)
    for first in range(size):
        last = min(first + pixels, size) - 1
        seen = [o for o in range(out) if first <= before[o] <= last or (before[o] == first - 1 and fraction[o] > 0)]
        assert len(seen) <= numbers.span(pixels)
    fitting = numbers.pixels(out)
    assert 1 <= fitting <= size
    for outputs in range(1, out + 1):
        fitting = numbers.pixels(outputs)
        assert fitting == 1 or numbers.span(fitting) <= outputs
