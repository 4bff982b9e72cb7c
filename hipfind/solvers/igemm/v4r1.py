"""Backward data without wasted products: the v4r1 decomposition of a convolution's axis, in whole numbers.

Pixel h of dx, tap r of the filter and output o of dy meet where h + pad = o * stride + r * dilation. With
g = gcd(stride, dilation) only pixels with (h + pad) % g == 0 have taps, and those are
r = first, first + stride/g, ... with first = (h + pad)/g * inverse mod stride/g, where ``inverse`` is that of
dilation/g modulo stride/g. So the pixels that are a stride apart share their taps: a *phase*. Its pixel i
(h = first_pixel + i * stride) and its tap j (r = first_tap + j * stride/g) meet output
o = first_output + i - j * dilation/g. Each phase of all axes together is a dense matrix product, and none of them
multiplies by the zeros that a strided gradient holds.

A convolution of more axes takes one phase of each: the product over its axes.

Source: MIOpen, src/solver/conv/conv_asm_implicit_gemm_bwd_v4r1_dynamic.cpp and conv_hip_implicit_gemm_bwd_v4r1.cpp.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from hipfind.problem.conv import ConvProblem


@dataclasses.dataclass(frozen=True)
class Phase:
    """Pixels of one axis that are a stride apart and so share their taps, cut to taps that meet an output.

    ``repeats`` phases of the same form side by side: one step to the next is ``dilation`` pixels and one tap, with the
    same outputs. For f < repeats, i < pixels, j < taps: pixel first_pixel + f * dilation + i * stride and tap
    first_tap + f + j * tap_step meet output first_output + i - j * output_step, or no output where that is not
    in [0, extent of dy).
    """

    first_pixel: int
    pixels: int
    first_tap: int
    taps: int
    first_output: int
    repeats: int = 1

    def is_followed_by(self, other: Phase, dilation: int) -> bool:
        """True when ``other`` is the next repeat of this phase."""
        return other == dataclasses.replace(
            self,
            first_pixel=self.first_pixel + self.repeats * dilation,
            first_tap=self.first_tap + self.repeats,
            repeats=1,
        )


@dataclasses.dataclass(frozen=True)
class Axis:
    """One spatial axis of a convolution: extents of dx and dy, then filter, stride, dilation, padding before dx."""

    pixels: int
    outputs: int
    filter: int
    stride: int
    dilation: int
    pad: int

    @property
    def unit(self) -> int:
        """g: only pixels whose distance from the padded image's start is a multiple of it have taps."""
        return math.gcd(self.stride, self.dilation)

    @property
    def tap_step(self) -> int:
        """stride/g: distance of a pixel's taps, and the number of sub-filters."""
        return self.stride // self.unit

    @property
    def output_step(self) -> int:
        """dilation/g: from a tap to the next one the output moves back so far."""
        return self.dilation // self.unit

    @property
    def inverse(self) -> int:
        """Inverse of ``output_step`` modulo ``tap_step``; 0 where that is 1."""
        return pow(self.output_step, -1, self.tap_step)

    def first_tap(self, pixel: int) -> int | None:
        """The pixel's first tap, None where it has none. It may lie behind the filter, and its output outside dy."""
        quotient, rest = divmod(pixel + self.pad, self.unit)
        return None if rest else quotient * self.inverse % self.tap_step

    def phases(self) -> Iterator[Phase]:
        """Every phase that meets an output, one by one, in the order of their first taps; at most ``tap_step``."""
        for tap in range(min(self.filter, self.tap_step)):
            shift = tap * self.dilation - self.pad
            pixel = shift % self.stride
            count = len(range(pixel, self.pixels, self.stride))
            first_output = (pixel - shift) // self.stride
            taps = len(range(tap, self.filter, self.tap_step))
            step = self.output_step
            skipped = max(0, -(-(first_output - self.outputs + 1) // step))
            taps = min(taps, (first_output + count - 1) // step + 1) - skipped
            if count and taps > 0:
                yield Phase(pixel, count, tap + skipped * self.tap_step, taps, first_output - skipped * step)

    def joined_phases(self) -> tuple[Phase, ...]:
        """The phases with neighbours of the same form joined: a filter of one stride's length is a single one."""
        joined: list[Phase] = []
        for phase in self.phases():
            if joined and joined[-1].is_followed_by(phase, self.dilation):
                joined[-1] = dataclasses.replace(joined[-1], repeats=joined[-1].repeats + 1)
            else:
                joined.append(phase)
        return tuple(joined)

    @property
    def is_covered(self) -> bool:
        """True when every pixel belongs to a phase; the others have no taps, so their gradient is zero."""
        return sum(phase.pixels for phase in self.phases()) == self.pixels

    def without_steps(self) -> Axis:
        """For a single output, an equal axis whose stride is so long that no pixel has more than one tap.

        The stride of one output never takes a step; with this one no product multiplies by an output that is not there.
        """
        longest = max(self.filter, (self.pixels + self.pad - 1) // self.dilation + 1)
        return dataclasses.replace(self, stride=longest * self.dilation) if self.outputs == 1 else self


def axes_of(problem: ConvProblem) -> tuple[Axis, ...]:
    """The spatial axes of a problem in convolution mode, as the problem states them."""
    return tuple(
        Axis(*numbers)
        for numbers in zip(
            problem.in_spatial, problem.out_spatial, problem.filter, problem.stride, problem.dilation, problem.pad,
            strict=True,
        )
    )  # fmt: skip
