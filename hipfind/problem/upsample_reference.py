"""Bilinear 2D resizing and its gradient in float64, in plain numpy: what every solver is measured against.

The forward pass is linear in each axis: y = U_h x U_w^T, where row o of an axis' matrix U holds the weights of output
o: 1 - f for the pixel before source(o), f for the one behind it. The gradient is the adjoint: dx = U_h^T dy U_w.

What has weight 0 does not count, so NaN and infinity stay where they belong. ``upsample_reference`` takes whole axes;
backward it distributes dy row by row and column by column, as the forward pass reads. ``upsample_reference_at`` sums
the windows of single elements and shares nothing with it but the coordinates.
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
"""Elements of y that are worked on at once: 64 MB of float64."""


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


def upsample_reference(problem: UpsampleProblem, arrays: Mapping[str, Array]) -> Float64Array:
    """The whole output, in logical shape. Raises ArrayError for a missing input or another shape."""
    given = _checked(problem, arrays)
    height, width = problem.axes
    apply = _interpolate if problem.direction == "fwd" else _distribute
    images = given.reshape(-1, *given.shape[2:])
    lengths = problem.tensor(problem.output).lengths
    result = np.zeros((len(images), *lengths[2:]), np.float64)
    step = max(_BLOCK // (height.out * width.out), 1)
    for start in range(0, len(images), step):
        some = slice(start, start + step)
        rows = apply(height, images[some].astype(np.float64))
        result[some] = apply(width, rows.swapaxes(1, 2)).swapaxes(1, 2)
    return result.reshape(lengths)


def upsample_reference_at(problem: UpsampleProblem, arrays: Mapping[str, Array], indices: Indices) -> Float64Array:
    """Some elements of the output: ``indices`` is [points, 4], the answer [points]. ArrayError also outside of it."""
    given, lengths = _checked(problem, arrays), problem.tensor(problem.output).lengths
    points = np.asarray(indices, np.int64)
    if points.ndim != 2 or points.shape[1] != 4:
        raise ArrayError("indices must have the shape [points, 4]", got=f"{points.shape}")
    if ((points < 0) | (points >= np.array(lengths))).any():
        raise ArrayError(f"indices must lie within the output {lengths}", got=f"{points.min(0)} to {points.max(0)}")
    window = _sources if problem.direction == "fwd" else _window
    rows, columns = (taps(axis) for axis in problem.axes)
    result = np.zeros(len(points), np.float64)
    for number, (n, c, i, j) in enumerate(points.tolist()):
        where_rows, row_weights = window(*rows, i)
        where_columns, column_weights = window(*columns, j)
        read = given[n, c][np.ix_(where_rows, where_columns)].astype(np.float64)
        result[number] = (row_weights[:, None] * read * column_weights).sum()
    return result


def most_terms(problem: UpsampleProblem) -> int:
    """How many elements of the input reach one of the output at most."""
    counts = []
    for axis in problem.axes:
        before, fraction = taps(axis)
        if problem.direction == "fwd":
            counts.append(1 + int((fraction > 0.0).any()))
            continue
        reached = np.bincount(before, minlength=axis.size)
        reached += np.bincount(before[fraction > 0.0] + 1, minlength=axis.size)
        counts.append(int(reached.max()))
    return math.prod(counts)


def usual_size(problem: UpsampleProblem, arrays: Mapping[str, Array]) -> float:
    """Root mean square of the output's elements if the signs of their terms were random."""
    given = _checked(problem, arrays)
    squares = [_squared_weights(problem.direction, axis) for axis in problem.axes]
    for dimension, weights in enumerate(squares, start=2):
        if not weights.all():
            given = given.compress(weights > 0.0, dimension)
    # converts a few thousand elements at a time
    planes = np.einsum("nchw,nchw,w->h", given, given, squares[1][squares[1] > 0.0], dtype=np.float64, casting="unsafe")
    total = float(planes @ squares[0][squares[0] > 0.0])
    return math.sqrt(total / max(problem.tensor(problem.output).elements, 1))


def _squared_weights(direction: str, axis: Axis) -> Float64Array:
    """Sum of the squares of the weights that each input position of an axis has in all of the output."""
    before, fraction = taps(axis)
    if direction == "bwd":
        return np.square(fraction) + np.square(1.0 - fraction)
    sums = np.zeros(axis.size + 1)
    np.add.at(sums, before, np.square(1.0 - fraction))
    np.add.at(sums, before + 1, np.square(fraction))
    return sums[:-1]


def _checked(problem: UpsampleProblem, arrays: Mapping[str, Array]) -> Array:
    (role,) = problem.inputs
    if role not in arrays:
        raise ArrayError(f"the reference needs {role}", got=f"{sorted(arrays)}")
    lengths = problem.tensor(role).lengths
    if arrays[role].shape != lengths:
        raise ArrayError(f"{role} must have the shape {lengths}", got=f"{arrays[role].shape}")
    return arrays[role]


def _interpolate(axis: Axis, values: Float64Array) -> Float64Array:
    """U applied to the second of three dimensions."""
    before, fraction = taps(axis)
    result = values[:, before] * (1.0 - fraction)[:, None]
    between = np.flatnonzero(fraction > 0.0)
    result[:, between] += values[:, before[between] + 1] * fraction[between, None]
    return result


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


def _sources(before: Indices, fraction: Float64Array, output: int) -> tuple[Indices, Float64Array]:
    """The pixels that an output reads, and their weights."""
    pixel, behind = int(before[output]), float(fraction[output])
    if behind == 0.0:
        return np.array([pixel], np.int64), np.ones(1)
    return np.array([pixel, pixel + 1], np.int64), np.array([1.0 - behind, behind])
