"""Steps that run the portable kernels shared by several solvers: im2col, col2im, strided copy, cast."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hipfind.invokers.steps import KernelStep, Operand
from hipfind.kernels.spec import KernelSpec
from hipfind.problem.conv import ConvProblem
from hipfind.problem.dtypes import DType
from hipfind.solvers.geometry import sizes_of
from hipfind.target import Target

VECTOR_BYTES = 16
"""Most that a GPU's thread moves at once."""
_HOST_BLOCK = 2048  # sums that a host thread keeps in its nearest cache
BITS = {2: "uint16", 4: "uint32", 8: "int64"}
"""Type by which a kernel moves elements of so many bytes."""
_MOST_AXES = 12  # of copy_block


def im2col_step(target: Target, problem: ConvProblem, image: Operand, columns: Operand) -> KernelStep:
    """Columns [C * taps, output positions] of one channel-first image of x."""
    sizes = sizes_of(problem)
    segment, segments = segments_of(target, sizes.output)
    return KernelStep(
        KernelSpec("im2col.hip", "im2col", (("ELEM", BITS[sizes.itemsize]),)),
        (image, columns),
        (*_window(problem), segment, segments),
        items=sizes.c * sizes.taps * segments,
        flops=0,
        bytes=(sizes.x_image + sizes.columns) * sizes.itemsize,
    )


def im2col_last_step(
    target: Target, problem: ConvProblem, images: int, pitch: int, source: Operand, columns: Operand
) -> KernelStep:
    """Columns [images * output positions, C * taps] of channel-last images of x; rows are ``pitch`` elements apart."""
    sizes = sizes_of(problem)
    row = sizes.c * sizes.taps
    unit = 1 if target.is_host else VECTOR_BYTES // sizes.itemsize
    segment, segments = segments_of(target, row, unit)
    return KernelStep(
        KernelSpec("im2col_last.hip", "im2col_last", (("ELEM", BITS[sizes.itemsize]), ("UNIT", str(unit)))),
        (source, columns),
        (*_window(problem), sizes.groups, sizes.c_group, pitch, segment, segments),
        items=images * sizes.output * segments,
        flops=0,
        bytes=images * (sizes.x_image + sizes.columns) * sizes.itemsize,
    )


def col2im_step(target: Target, problem: ConvProblem, columns: Operand, image: Operand, images: int = 1) -> KernelStep:
    """Sum of ``images`` stacked columns [C * taps, output positions] into as many channel-first images of dx.

    The columns have the type ``column_dtype``.
    """
    sizes = sizes_of(problem)
    height, width = problem.in_spatial[-2:]
    block = _HOST_BLOCK if target.is_host else 1
    columns_wide = min(width, block)
    lines_high = min(height, block // columns_wide)
    blocks = -(-height // lines_high) * -(-width // columns_wide)
    return KernelStep(
        KernelSpec("col2im.hip", "col2im", (("ELEM", problem.dtype.value), ("BLOCK", str(block)))),
        (columns, image),
        (*_window(problem), lines_high, columns_wide),
        items=images * sizes.x_image // (height * width) * blocks,
        flops=images * sizes.columns,
        bytes=images * (sizes.x_image * sizes.itemsize + sizes.columns * column_dtype(problem.dtype).itemsize),
    )


def column_dtype(dtype: DType) -> DType:
    """Type of the columns that col2im sums up: fp32 for 16-bit types, so that a gradient is rounded only once."""
    return DType.FP32 if dtype.is_half else dtype


def copy_step(
    target: Target,
    dtype: DType,
    lengths: Sequence[int],
    source: Operand,
    source_strides: Sequence[int],
    to: Operand,
    to_strides: Sequence[int],
) -> KernelStep:
    """Copy of a block of four ``lengths`` from one arrangement to another; strides in elements, last axis innermost."""
    segment, segments = segments_of(target, lengths[3])
    return KernelStep(
        KernelSpec("strided_copy.hip", "strided_copy", (("ELEM", BITS[dtype.itemsize]),)),
        (source, to),
        (*lengths[1:], *source_strides, *to_strides, segment, segments),
        items=math.prod(lengths[:3]) * segments,
        flops=0,
        bytes=2 * math.prod(lengths) * dtype.itemsize,
    )


class CopyAxis(NamedTuple):
    """One axis of a block that is copied: its length, and the distances of neighbours on both sides, in elements."""

    length: int
    source: int
    to: int


def joined(axes: Iterable[CopyAxis]) -> tuple[CopyAxis, ...]:
    """The same block, outermost axis first, with as few axes as possible; no axis for a single element."""
    result: list[CopyAxis] = []
    for axis in axes:
        outer = result[-1] if result else None
        if outer is not None and outer[1:] == (axis.length * axis.source, axis.length * axis.to):
            result[-1] = CopyAxis(outer.length * axis.length, axis.source, axis.to)
        elif axis.length > 1:
            result.append(axis)
    return tuple(result)


def is_plain(axes: Sequence[CopyAxis]) -> bool:
    """True where a joined block lies in the same order, without gaps, on both sides: nothing has to be copied."""
    return not axes or (len(axes) == 1 and axes[0][1:] == (1, 1))


def copy_block_step(target: Target, dtype: DType, axes: Sequence[CopyAxis], source: Operand, to: Operand) -> KernelStep:
    """Copy of a block of up to 12 joined axes; short ones are left to ``copy_step``."""
    if len(axes) <= 4:
        lengths, from_strides, to_strides = _padded(axes, 4)
        return copy_step(target, dtype, lengths, source, from_strides, to, to_strides)
    if target.is_host and axes[-1].length < axes[-2].length:  # longer inner loops; both axes stay in the nearest cache
        axes = (*axes[:-2], axes[-1], axes[-2])
    lengths, from_strides, to_strides = _padded(axes, _MOST_AXES)
    parts = [1] * 3 if target.is_host else lengths[-3:]
    return KernelStep(
        KernelSpec("copy_block.hip", "copy_block", (("ELEM", BITS[dtype.itemsize]),)),
        (source, to),
        (*lengths, *from_strides, *to_strides, *parts),
        items=math.prod((*lengths[:-3], *parts)),
        flops=0,
        bytes=2 * math.prod(lengths) * dtype.itemsize,
    )


def cast_step(dtype: DType, sums: Operand, to: Operand, elements: int) -> KernelStep:
    """Packed fp32 sums rounded to ``dtype``."""
    return KernelStep(
        KernelSpec("cast.hip", "cast_from_fp32", (("ELEM", dtype.value),)),
        (sums, to),
        (),
        items=elements,
        flops=0,
        bytes=elements * (DType.FP32.itemsize + dtype.itemsize),
    )


def segments_of(target: Target, length: int, unit: int = 1) -> tuple[int, int]:
    """Elements that a work item takes of a line, and items a line: host threads take lines, GPU threads ``unit``."""
    return (length, 1) if target.is_host else (unit, -(-length // unit))


def _window(problem: ConvProblem) -> tuple[int, ...]:
    """Image, filter, output, stride, padding and dilation as depth, height, width each."""
    groups = (
        (problem.in_spatial, 1),
        (problem.filter, 1),
        (problem.out_spatial, 1),
        (problem.stride, 1),
        (problem.pad, 0),
        (problem.dilation, 1),
    )
    return tuple(number for values, fill in groups for number in (*(fill,) * (3 - len(values)), *values))


def _padded(axes: Sequence[CopyAxis], count: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Lengths, strides of the source and of the target of ``count`` axes, those in front of a single element."""
    lengths, source, to = zip(*(*[CopyAxis(1, 0, 0)] * (count - len(axes)), *axes), strict=True)
    return lengths, source, to
