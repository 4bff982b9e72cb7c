"""Coordinates of a resized axis as exact whole numbers: source(o) = (step * o + shift) / unit.

With sizes alone, torch's rule is a fraction as it stands. With a scale factor the step is the double 1 / scale, taken
as a simple fraction that rounds to it where there is one, else as the nearest fraction that keeps all products within
62 bits: its error is at most size / 2^61, and the source of output o has o times that.
"""

from __future__ import annotations

import fractions
import math
from typing import NamedTuple

from hipfind.problem.upsample import Axis

_SIMPLE = 2**15
_LARGEST = 2**60


class Coordinates(NamedTuple):
    """The numbers of one axis in the order of the kernels' struct Axis: extents of x and y, then the coordinates."""

    size: int
    out: int
    step: int
    shift: int
    unit: int

    def span(self, pixels: int) -> int:
        """How many neighbouring outputs ``pixels`` neighbouring pixels look at, at most."""
        if self.step == 0:
            return self.out
        return min(self.out, -(-(pixels + 1) * self.unit // self.step))

    def pixels(self, outputs: int) -> int:
        """How many neighbouring pixels look at no more than ``outputs`` neighbouring outputs; at least 1."""
        if self.out <= outputs:
            return self.size
        return min(max(outputs * self.step // self.unit - 1, 1), self.size)


def coordinates(axis: Axis) -> Coordinates:
    """Coordinates of an axis. Exact but for scale factors, see above."""
    if axis.align_corners:
        if axis.out == 1 or axis.size == 1:
            return Coordinates(axis.size, axis.out, 0, 0, 1)
        return _reduced(axis, axis.size - 1, 0, axis.out - 1)
    ratio = fractions.Fraction(axis.size, axis.out) if axis.scale is None else _fraction(axis.step, axis.size)
    return _reduced(axis, 2 * ratio.numerator, ratio.numerator - ratio.denominator, 2 * ratio.denominator)


def is_scaled(axis: Axis, out: int, size: int) -> bool:
    """The axis goes from ``size`` to ``out``, with the coordinates that follow from these sizes."""
    plain = Axis(size, out, None, align_corners=False)
    return (axis.size, axis.out) == (size, out) and coordinates(axis) == coordinates(plain)


def _reduced(axis: Axis, step: int, shift: int, unit: int) -> Coordinates:
    common = math.gcd(step, shift, unit)  # small numbers are divided faster
    return Coordinates(axis.size, axis.out, step // common, shift // common, unit // common)


def _fraction(step: float, size: int) -> fractions.Fraction:
    exact = fractions.Fraction(step)
    simple = exact.limit_denominator(_SIMPLE)
    return simple if float(simple) == step else exact.limit_denominator(_LARGEST // size)
