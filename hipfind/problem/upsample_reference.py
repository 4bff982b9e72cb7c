"""The right gradient of bilinear 2D resizing in float64, in plain numpy: what every solver is measured against.

The forward pass is linear in each axis: y = U_h x U_w^T, where row o of an axis' matrix U holds the weights of output
o: 1 - f for the pixel before source(o), f for the one behind it. The gradient is the adjoint: dx = U_h^T dy U_w.

``upsample_reference`` distributes dy row by row and column by column, as the forward pass reads; pixels of weight 0
get nothing, so NaN and infinity stay where they belong. ``upsample_reference_at`` gathers the window of single pixels
and shares nothing with it but the coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hipfind.errors import ArrayError
from hipfind.problem.base import Float64Array
from hipfind.problem.upsample import Axis, UpsampleProblem

Array: TypeAlias = npt.NDArray[Any]
Indices: TypeAlias = npt.NDArray[np.int64]

_BLOCK = 8 * 2**20
"""Elements of dy that are converted at once: 64 MB of float64."""


def taps(axis: Axis) -> tuple[Indices, Float64Array]:
    """Pixel before each output's source, and the weight of the one behind: exact coordinates, each weight rounded once.

    The source is the fraction ``(step * o + shift) / unit`` of whole numbers, limited to the first and last pixel. The
    last pixel has nothing behind it and never a weight for that.
    """
    if axis.align_corners:
        step, shift, unit = (axis.size - 1, 0, axis.out - 1) if axis.out > 1 else (0, 0, 1)
    else:
        over, under = (axis.size, axis.out) if axis.scale is None else axis.step.as_integer_ratio()
        step, shift, unit = 2 * over, over - under, 2 * under
    most = (axis.size - 1) * unit
    positions = [divmod(min(max(step * output + shift, 0), most), unit) for output in range(axis.out)]
    before, behind = zip(*positions, strict=True)
    return np.array(before, np.int64), np.array([rest / unit for rest in behind])


def interpolate(problem: UpsampleProblem, x: Array) -> Float64Array:
    """The forward pass y = U_h x U_w^T in float64, which the gradient is the adjoint of."""
    values = x.astype(np.float64)
    for dimension, axis in enumerate(problem.axes, start=2):
        before, fraction = taps(axis)
        behind = np.minimum(before + 1, axis.size - 1)
        weight = fraction.reshape([-1 if other == dimension else 1 for other in range(4)])
        values = np.take(values, before, dimension) * (1.0 - weight) + np.take(values, behind, dimension) * weight
    return values


def upsample_reference(problem: UpsampleProblem, arrays: Mapping[str, Array]) -> Float64Array:
    """The whole gradient, in logical shape. Raises ArrayError for a missing dy or another shape."""
    dy = _checked(problem, arrays)
    height, width = problem.axes
    images = dy.reshape(-1, *dy.shape[2:])
    result = np.zeros((len(images), *problem.dx.lengths[2:]), np.float64)
    step = max(_BLOCK // (height.out * width.out), 1)
    for start in range(0, len(images), step):
        some = slice(start, start + step)
        rows = _distribute(height, images[some].astype(np.float64))
        result[some] = _distribute(width, rows.swapaxes(1, 2)).swapaxes(1, 2)
    return result.reshape(problem.dx.lengths)


def upsample_reference_at(problem: UpsampleProblem, arrays: Mapping[str, Array], indices: Indices) -> Float64Array:
    """The gradient of some pixels: ``indices`` is [points, 4], the answer [points]. ArrayError also outside of dx."""
    dy = _checked(problem, arrays)
    points = np.asarray(indices, np.int64)
    if points.ndim != 2 or points.shape[1] != 4:
        raise ArrayError("indices must have the shape [points, 4]", got=f"{points.shape}")
    if ((points < 0) | (points >= np.array(problem.dx.lengths))).any():
        raise ArrayError(
            f"indices must lie within the output {problem.dx.lengths}", got=f"{points.min(0)} to {points.max(0)}"
        )
    rows, columns = (taps(axis) for axis in problem.axes)
    result = np.zeros(len(points), np.float64)
    for number, (n, c, i, j) in enumerate(points.tolist()):
        where_rows, row_weights = _window(*rows, i)
        where_columns, column_weights = _window(*columns, j)
        window = dy[n, c][np.ix_(where_rows, where_columns)].astype(np.float64)
        result[number] = (row_weights[:, None] * window * column_weights).sum()
    return result


def most_terms(problem: UpsampleProblem) -> int:
    """How many elements of dy reach one pixel of dx at most."""
    counts = []
    for axis in problem.axes:
        before, fraction = taps(axis)
        reached = np.bincount(before, minlength=axis.size)
        reached += np.bincount(before[fraction > 0.0] + 1, minlength=axis.size)
        counts.append(int(reached.max()))
    return math.prod(counts)


def usual_size(problem: UpsampleProblem, arrays: Mapping[str, Array]) -> float:
    """Root mean square of the gradient's elements if the signs of their terms were random."""
    dy = _checked(problem, arrays)
    # converts a few thousand elements at a time
    total = float(np.einsum("nchw,nchw->", dy, dy, dtype=np.float64, casting="unsafe"))
    mean_square = total / max(dy.size, 1)
    squares = 1.0  # of the weights in one pixel, on average
    for axis in problem.axes:
        _, fraction = taps(axis)
        squares *= float(np.square(fraction).sum() + np.square(1.0 - fraction).sum()) / axis.size
    return math.sqrt(mean_square * squares)


def _checked(problem: UpsampleProblem, arrays: Mapping[str, Array]) -> Array:
    if "dy" not in arrays:
        raise ArrayError("the reference needs dy", got=f"{sorted(arrays)}")
    if arrays["dy"].shape != problem.dy.lengths:
        raise ArrayError(f"dy must have the shape {problem.dy.lengths}", got=f"{arrays['dy'].shape}")
    return arrays["dy"]


def _distribute(axis: Axis, values: Float64Array) -> Float64Array:
    """U^T applied to the second of three dimensions."""
    result = np.zeros((values.shape[0], axis.size, values.shape[2]), np.float64)
    for output, (pixel, fraction) in enumerate(zip(*(part.tolist() for part in taps(axis)), strict=True)):
        result[:, pixel] += (1.0 - fraction) * values[:, output]
        if fraction > 0.0:
            result[:, pixel + 1] += fraction * values[:, output]
    return result


def _window(before: Indices, fraction: Float64Array, pixel: int) -> tuple[Indices, Float64Array]:
    """The outputs that a pixel has a weight in, and these weights."""
    is_before = before == pixel
    outputs = np.flatnonzero(is_before | ((before == pixel - 1) & (fraction > 0.0)))
    return outputs, np.where(is_before, 1.0 - fraction, fraction)[outputs]
