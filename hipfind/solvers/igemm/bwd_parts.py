"""The parts of a backward-data convolution by v4r1, each a dense matrix product, and how its matrices are laid out.

A part takes a phase of every axis: Q pixels an image, T taps for each pixel, F repeats with the same outputs. For B
images and each group, where y is channel-first:
  rows [C*F, B*Q] = filter [K*T, C*F]^T columns [K*T, B*Q]
and where it is channel-last:
  rows [B*Q, F*C] = columns [B*Q, T*K] filter [T*K, F*C].
The columns hold the outputs that pixels and taps meet, 0 where there is none; the rows go to their places in dx, those
of a family of parts together, so that lines of dx are written whole. What already lies so in a tensor is not copied.
x and w may lie in any order.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hipfind.invokers.steps import KernelStep, Operand
from hipfind.kernels.spec import GemmSpec, KernelSpec
from hipfind.problem.conv import ConvProblem
from hipfind.problem.tensor import LAYOUTS
from hipfind.solvers.gemm.products import Stack, batched
from hipfind.solvers.geometry import sizes_of
from hipfind.solvers.igemm.v4r1 import Axis, Phase, axes_of
from hipfind.solvers.kernel_steps import BITS, CopyAxis, is_plain, joined, segments_of
from hipfind.target import Target

_FLAT = Axis(1, 1, 1, 1, 1, 0)

Side = Iterable[tuple[int, int]]
"""The axes of a matrix' rows or of its columns, outermost first: length, and distance in a tensor in elements."""


@dataclasses.dataclass(frozen=True)
class Part:
    """A phase of each of three axes; 2D has a depth of 1."""

    axes: tuple[Axis, ...]
    phases: tuple[Phase, ...]

    @functools.cached_property
    def pixels(self) -> int:
        """Q: pixels of an image that share their taps."""
        return math.prod(phase.pixels for phase in self.phases)

    @functools.cached_property
    def taps(self) -> int:
        """T: taps of each pixel."""
        return math.prod(phase.taps for phase in self.phases)

    @functools.cached_property
    def repeats(self) -> int:
        """F: sets of pixels and taps that meet the same outputs."""
        return math.prod(phase.repeats for phase in self.phases)

    @property
    def takes_all_outputs(self) -> bool:
        """True when pixel i meets output i and there are no others: y itself holds the columns."""
        return all(
            phase.taps == 1 and phase.first_output == 0 and phase.pixels == axis.outputs
            for axis, phase in zip(self.axes, self.phases, strict=True)
        )


@dataclasses.dataclass(frozen=True)
class Family:
    """Parts with as many pixels and repeats each: of every axis, phases whose first pixels are equally far apart."""

    axes: tuple[Axis, ...]
    phases: tuple[tuple[Phase, ...], ...]

    @functools.cached_property
    def parts(self) -> tuple[Part, ...]:
        return tuple(Part(self.axes, phases) for phases in itertools.product(*self.phases))

    @property
    def first(self) -> Part:
        """The part with the first pixel; in pixels and repeats it is like all others."""
        return self.parts[0]


def families_of(problem: ConvProblem) -> tuple[Family, ...]:
    """All parts. They write every pixel of dx at most once; pixels of no part have no taps."""
    axes = (*(_FLAT,) * (3 - problem.ndim), *(axis.without_steps() for axis in axes_of(problem)))
    alike = [_alike(axis.joined_phases()) for axis in axes]
    return tuple(Family(axes, phases) for phases in itertools.product(*alike))


def _alike(phases: Iterable[Phase]) -> list[tuple[Phase, ...]]:
    """The phases of an axis in sequences of equal form and distance."""
    result: list[tuple[Phase, ...]] = []
    for phase in sorted(phases, key=lambda phase: phase.first_pixel):
        last = result[-1] if result else ()
        distances = {b.first_pixel - a.first_pixel for a, b in itertools.pairwise((*last, phase))}
        if last and (last[0].pixels, last[0].repeats) == (phase.pixels, phase.repeats) and len(distances) == 1:
            result[-1] = (*last, phase)
        else:
            result.append((phase,))
    return result


def has_last_channels(problem: ConvProblem) -> bool:
    """True where y is channel-last, which decides the order of the matrices."""
    return problem.layouts[2] == LAYOUTS[problem.ndim][1]


class Copy(NamedTuple):
    """Between a matrix and a part's block of a tensor: joined axes, and the block's start in the tensor in elements."""

    axes: tuple[CopyAxis, ...]
    start: int

    @property
    def is_needed(self) -> bool:
        """False where the tensor itself holds the matrix."""
        return not is_plain(self.axes)


def filter_copy(problem: ConvProblem, part: Part) -> Copy:
    """The part's taps of w, to the filter matrix; its groups lie one behind the other."""
    sizes = sizes_of(problem)
    by_k, by_c, *others = problem.w.strides
    strides = _three(others)
    taps = [(phase.taps, axis.tap_step * by) for axis, phase, by in zip(part.axes, part.phases, strides, strict=True)]
    repeats = [(phase.repeats, by) for phase, by in zip(part.phases, strides, strict=True)]
    if has_last_channels(problem):
        rows = [(sizes.groups, sizes.k_group * by_k), *taps, (sizes.k_group, by_k)]
        columns = [*repeats, (sizes.c_group, by_c)]
    else:
        rows, columns = [(sizes.k, by_k), *taps], [(sizes.c_group, by_c), *repeats]
    start = sum(phase.first_tap * by for phase, by in zip(part.phases, strides, strict=True))
    return Copy(joined(CopyAxis(*axis) for axis in _matrix(rows, columns, sizes.c_group * part.repeats)), start)


def rows_copy(problem: ConvProblem, family: Family, images: int, pitch: int) -> Copy:
    """The rows of all products of a family, to the parts' pixels of so many images of x.

    A product's rows are ``pitch`` elements apart, those of the next part follow them.
    """
    sizes, part = sizes_of(problem), family.first
    by_image, by_c, *others = problem.x.strides
    strides = _three(others)
    pixels, repeats, parts = [], [], []
    for axis, phases, by in zip(part.axes, family.phases, strides, strict=True):
        pixels.append((phases[0].pixels, axis.stride * by))
        repeats.append((phases[0].repeats, axis.dilation * by))
        parts.append((len(phases), (phases[-1].first_pixel - phases[0].first_pixel) // max(len(phases) - 1, 1) * by))
    if has_last_channels(problem):
        rows = [*parts, (images, by_image), *pixels]
        columns = [(sizes.groups, sizes.c_group * by_c), *repeats, (sizes.c_group, by_c)]
    else:
        rows, columns = [*parts, (sizes.c, by_c), *repeats], [(images, by_image), *pixels]
    in_order = sorted(_matrix(rows, columns, pitch), key=lambda axis: -axis[1])
    start = sum(phase.first_pixel * by for phase, by in zip(part.phases, strides, strict=True))
    return Copy(joined(CopyAxis(length, in_matrix, in_x) for length, in_x, in_matrix in in_order), start)


def _matrix(rows: Side, columns: Side, pitch: int) -> list[tuple[int, int, int]]:
    """Axes of a matrix by row and column: length, distance in the tensor, distance in the matrix."""
    return [*_packed(rows, pitch), *_packed(columns, 1)]


def _packed(side: Side, step: int) -> list[tuple[int, int, int]]:
    result = []
    for length, distance in reversed(list(side)):
        result.append((length, distance, step))
        step *= length
    return result[::-1]


def _three(strides: Sequence[int]) -> tuple[int, ...]:
    return (*(0,) * (3 - len(strides)), *strides)


def columns_step(
    target: Target, problem: ConvProblem, part: Part, images: int, pitch: int, y: Operand, columns: Operand
) -> KernelStep:
    """The columns of so many images, their rows ``pitch`` elements apart."""
    sizes, is_last = sizes_of(problem), has_last_channels(problem)
    length = part.taps * sizes.k if is_last else part.pixels
    segment, segments = segments_of(target, length)
    phases = part.phases
    return KernelStep(
        KernelSpec(
            "v4r1_gather.hip", f"v4r1_columns_{'last' if is_last else 'first'}", (("ELEM", BITS[sizes.itemsize]),)
        ),
        (y, columns),
        (
            *(axis.outputs for axis in part.axes), *(phase.pixels for phase in phases),
            *(phase.taps for phase in phases), *(phase.first_output for phase in phases),
            *(axis.output_step for axis in part.axes), images, sizes.groups, sizes.k_group, pitch, segment, segments,
        ),
        items=images * (part.pixels if is_last else sizes.k * part.taps) * segments,
        flops=0,
        bytes=images * sizes.k * (sizes.output + part.pixels * part.taps) * sizes.itemsize,
    )  # fmt: skip


def product(problem: ConvProblem, part: Part, images: int, columns_pitch: int, rows_pitch: int) -> GemmSpec:
    """The part's product for so many images, a batch over groups."""
    sizes = sizes_of(problem)
    across, deep, flat = sizes.c_group * part.repeats, sizes.k_group * part.taps, images * part.pixels
    if has_last_channels(problem):
        gemm = GemmSpec(
            m=flat, n=across, k=deep, dtype=problem.dtype, dtype_c=problem.dtype,
            lda=columns_pitch, ldb=across, ldc=rows_pitch,
        )  # fmt: skip
        return batched(gemm, Stack(sizes.groups, a=deep, b=deep * across, c=across))
    gemm = GemmSpec(
        m=across, n=flat, k=deep, dtype=problem.dtype, dtype_c=problem.dtype,
        lda=across, ldb=columns_pitch, ldc=rows_pitch, trans_a=True,
    )  # fmt: skip
    return batched(gemm, Stack(sizes.groups, a=deep * across, b=deep * columns_pitch, c=across * rows_pitch))
