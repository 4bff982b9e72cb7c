"""Steps that run the portable kernels shared by several solvers: im2col, col2im, strided copy, cast."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hipfind.invokers.steps import KernelStep, Operand
from hipfind.kernels.spec import KernelSpec
from hipfind.problem.conv import ConvProblem
from hipfind.problem.dtypes import DType
from hipfind.solvers.geometry import sizes_of
from hipfind.target import Target

_HOST_BLOCK = 2048  # sums that a host thread keeps in its nearest cache
_BITS = {2: "uint16", 4: "uint32", 8: "int64"}


def im2col_step(target: Target, problem: ConvProblem, image: Operand, columns: Operand) -> KernelStep:
    """Columns [C * taps, output positions] of one channel-first image of x."""
    sizes = sizes_of(problem)
    segment, segments = _segments(target, sizes.output)
    return KernelStep(
        KernelSpec("im2col.hip", "im2col", (("ELEM", _BITS[sizes.itemsize]),)),
        (image, columns),
        (*_window(problem), segment, segments),
        items=sizes.c * sizes.taps * segments,
        flops=0,
        bytes=(sizes.x_image + sizes.columns) * sizes.itemsize,
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
    segment, segments = _segments(target, lengths[3])
    return KernelStep(
        KernelSpec("strided_copy.hip", "strided_copy", (("ELEM", _BITS[dtype.itemsize]),)),
        (source, to),
        (*lengths[1:], *source_strides, *to_strides, segment, segments),
        items=math.prod(lengths[:3]) * segments,
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


def _segments(target: Target, length: int) -> tuple[int, int]:
    """Elements that one work item takes of a line, and items a line: host threads take lines, GPU threads elements."""
    return (length, 1) if target.is_host else (1, length)


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
