"""The right result of a convolution in float64, by definition, in plain numpy: what every solver is measured against.

The definition, with x 0 outside the image, c in the group of k, and o, f one number a spatial axis::

    y[n, k, o] = sum over c, f of x[n, c, o * stride - pad + f * dilation] * w[k, c, f]

Backward data and backward weights collect the same products at x and at w. ``conv_reference`` computes a whole result,
block by block: the pixels that a block of output positions looks at become a matrix (im2col) for float64 BLAS.
``conv_reference_at`` sums single outputs from gathered elements and shares nothing with it but the definition.
Temporaries stay within about 256 MB, whatever the problem.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hipfind.errors import ArrayError
from hipfind.problem.base import Float64Array
from hipfind.problem.conv import ConvProblem

Array: TypeAlias = npt.NDArray[Any]
Indices: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Block: TypeAlias = tuple[slice, ...]

_BLOCK = 16 * 2**20
"""Elements that the temporaries of one block may have together: 128 MB of float64; the weights have as much."""


def conv_reference(problem: ConvProblem, arrays: Mapping[str, Array]) -> Float64Array:
    """The whole result, in logical shape.

    ``arrays``: role -> array in logical shape, of any real dtype and any strides: the inputs, and the output's former
    contents where beta is not 0 (elsewhere they are not looked at). Raises ArrayError for a missing array or another
    shape.
    """
    p, tensors = _canonical(problem, arrays)
    result = np.zeros(p.tensor(p.output).lengths, np.float64)
    add_products = {"fwd": _forward, "bwd": _backward_data, "wrw": _backward_weights}[p.direction]
    for (channels,) in _blocks((p.k // p.groups,), p.groups * math.prod(p.w.lengths[1:])):
        add_products(p, tensors, result, channels)
    return _scaled(p, result, tensors.get(p.output))


def conv_reference_at(problem: ConvProblem, arrays: Mapping[str, Array], indices: Indices) -> Float64Array:
    """The result at some output positions: ``indices`` is [points, output rank], the answer [points].

    Costs up to ``points * problem.reduction_length`` gathered products. ``arrays`` and errors are those of
    ``conv_reference``; ArrayError also for indices outside the output.
    """
    p, tensors = _canonical(problem, arrays)
    lengths = p.tensor(p.output).lengths
    points = np.asarray(indices, np.int64)
    if points.ndim != 2 or points.shape[1] != len(lengths):
        raise ArrayError(f"indices must have the shape [points, {len(lengths)}]", got=f"{points.shape}")
    if ((points < 0) | (points >= np.array(lengths))).any():
        raise ArrayError(f"indices must lie within the output {lengths}", got=f"{points.min(0)} to {points.max(0)}")
    result = np.zeros(len(points), np.float64)
    # 4: both factors, their product, and the mask with its broadcast parts
    for some, *terms in _blocks((len(points), *_reduction(p)), 4):
        result[some] += _sum_at(p, tensors, points[some], tuple(terms))
    former = tensors.get(p.output)
    return _scaled(p, result, None if former is None else former[tuple(points.T)])


def conv_usual_size(problem: ConvProblem, arrays: Mapping[str, Array]) -> float:
    """``Problem.usual_size``: from the root mean squares of the inputs and the number of products an element."""
    elements = problem.tensor(problem.output).elements
    if elements == 0:
        return 0.0
    size = abs(problem.alpha) * math.sqrt(problem.flops / 2 / elements)
    size *= math.prod(_root_mean_square(arrays[role]) for role in problem.inputs)
    return math.hypot(size, problem.beta * _root_mean_square(arrays[problem.output])) if problem.reads_output else size


def _root_mean_square(values: Array) -> float:
    parts = np.array_split(values, values.size // _BLOCK + 1)
    total = sum(float(np.square(part.astype(np.float64)).sum()) for part in parts)
    return math.sqrt(total / max(values.size, 1))


def _canonical(problem: ConvProblem, arrays: Mapping[str, Array]) -> tuple[ConvProblem, dict[str, Array]]:
    """The problem in convolution mode and its checked arrays by its roles; the output only where it is read."""
    tensors = {}
    for role, canonical_role in problem.canonical_roles().items():
        if role == problem.output and not problem.reads_output:
            continue
        if role not in arrays:
            raise ArrayError(f"the reference needs {role} for direction {problem.direction}", got=f"{sorted(arrays)}")
        if arrays[role].shape != problem.tensor(role).lengths:
            raise ArrayError(f"{role} must have the shape {problem.tensor(role).lengths}", got=f"{arrays[role].shape}")
        tensors[canonical_role] = arrays[role]
    return problem.canonical(), tensors


def _scaled(p: ConvProblem, result: Float64Array, former: Array | None) -> Float64Array:
    if p.alpha != 1.0:
        result *= p.alpha
    if former is not None:
        result += p.beta * former.astype(np.float64)
    return result


def _blocks(extents: Sequence[int], unit: int) -> Iterator[Block]:
    """Slices that tile ``extents`` so that one has at most _BLOCK elements, ``unit`` of them at each position.

    The last axes stay whole as long as they fit: blocks are as contiguous as can be.
    """
    room = max(_BLOCK // max(unit, 1), 1)
    ranges: list[list[slice]] = []
    for extent in reversed(extents):
        step = max(min(extent, room), 1)
        room = max(room // step, 1)
        ranges.insert(0, [slice(start, min(start + step, extent)) for start in range(0, extent, step)])
    return itertools.product(*ranges)


# a whole result -------------------------------------------------------------------------------------------------------
#
# Matrices are [groups, channels, positions]; ``channels`` are channels of y within each group, a block is a slice of
# the batch and one of each output axis, its positions in that order.


def _forward(p: ConvProblem, tensors: Mapping[str, Array], result: Float64Array, channels: slice) -> None:
    weights = _weights(p, tensors["w"], channels)
    for block in _position_blocks(p, channels):
        target = np.moveaxis(_of_y(p, result, channels, block), 0, 2)
        target[...] = (weights @ _columns(p, tensors["x"], block)).reshape(target.shape)


def _backward_data(p: ConvProblem, tensors: Mapping[str, Array], result: Float64Array, channels: slice) -> None:
    weights = _weights(p, tensors["w"], channels).swapaxes(1, 2)
    for block in _position_blocks(p, channels):
        columns = (weights @ _gradients(p, tensors["y"], channels, block)).reshape(_columns_shape(p, block))
        target = _of_x(p, result, block[0])
        for source, pixels in _taps(p, block):
            target[pixels] += columns[source]


def _backward_weights(p: ConvProblem, tensors: Mapping[str, Array], result: Float64Array, channels: slice) -> None:
    target = result.reshape(p.groups, p.k // p.groups, -1)[:, channels]
    for block in _position_blocks(p, channels):
        gradients = _gradients(p, tensors["y"], channels, block).swapaxes(1, 2)
        # in this order, as BLAS is slow where the first factor has few rows and a long sum
        target += (_columns(p, tensors["x"], block) @ gradients).swapaxes(1, 2)


def _position_blocks(p: ConvProblem, channels: slice) -> Iterator[Block]:
    unit = p.c * math.prod(p.filter) + p.groups * (channels.stop - channels.start)
    return _blocks((p.n, *p.out_spatial), unit)


def _of_y(p: ConvProblem, y: Array, channels: slice, block: Block) -> Array:
    """View [batch, groups, channels, *out] of y or of a result in its place."""
    by_group = y.reshape(p.n, p.groups, p.k // p.groups, *p.out_spatial)
    place = (block[0], slice(None), channels, *block[1:])
    return by_group[place]


def _of_x(p: ConvProblem, x: Array, batch: slice) -> Array:
    """View [groups, channels, batch, *in] of x or of a result in its place."""
    by_group = x.reshape(p.n, p.groups, p.c // p.groups, *p.in_spatial)
    return np.moveaxis(by_group[batch], 0, 2)


def _weights(p: ConvProblem, w: Array, channels: slice) -> Float64Array:
    """[groups, channels of y, channels of x * taps]"""
    by_group = w.reshape(p.groups, p.k // p.groups, *p.w.lengths[1:])[:, channels]
    return by_group.astype(np.float64).reshape(*by_group.shape[:2], -1)


def _gradients(p: ConvProblem, y: Array, channels: slice, block: Block) -> Float64Array:
    """[groups, channels of y, positions]"""
    view = np.moveaxis(_of_y(p, y, channels, block), 0, 2)
    return view.astype(np.float64).reshape(*view.shape[:2], -1)


def _columns_shape(p: ConvProblem, block: Block) -> tuple[int, ...]:
    """Groups, channels, taps of each axis, then positions."""
    return (p.groups, p.c // p.groups, *p.filter, *(part.stop - part.start for part in block))


def _columns(p: ConvProblem, x: Array, block: Block) -> Float64Array:
    """The pixels that each position looks at, 0 outside the image: [groups, channels of x * taps, positions]."""
    columns = np.zeros(_columns_shape(p, block), np.float64)
    source = _of_x(p, x, block[0])
    for target, pixels in _taps(p, block):
        columns[target] = source[pixels]
    return columns.reshape(p.groups, math.prod(columns.shape[1 : 2 + p.ndim]), -1)


def _taps(p: ConvProblem, block: Block) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """For each tap: where its pixels stand in the columns, and which they are in ``_of_x``. None outside the image."""
    axes = [_axis_taps(p, axis, positions) for axis, positions in enumerate(block[1:])]
    for taps in itertools.product(*axes):
        numbers, positions, pixels = zip(*taps, strict=True)
        yield (..., *numbers, slice(None), *positions), (..., *pixels)


def _axis_taps(p: ConvProblem, axis: int, outputs: slice) -> list[tuple[int, slice, slice]]:
    """(tap, positions within ``outputs``, pixels) on one axis, for every tap that meets the image there."""
    step, image = p.stride[axis], p.in_spatial[axis]
    taps = []
    for tap in range(p.filter[axis]):
        offset = tap * p.dilation[axis] - p.pad[axis]  # the pixel of output 0
        first = max(outputs.start, -(offset // step))  # -(a // b) is ceil(-a / b)
        last = min(outputs.stop - 1, (image - 1 - offset) // step)
        if first <= last:
            positions = slice(first - outputs.start, last + 1 - outputs.start)
            taps.append((tap, positions, slice(first * step + offset, last * step + offset + 1, step)))
    return taps


# single outputs -------------------------------------------------------------------------------------------------------
#
# One axis for the points, then those of the reduction: channels or batch, and one a spatial axis.


def _reduction(p: ConvProblem) -> tuple[int, ...]:
    """Extents of the sum behind one output element. Backward data has only the taps that can meet a pixel."""
    if p.direction == "fwd":
        return (p.c // p.groups, *p.filter)
    if p.direction == "bwd":
        return (p.k // p.groups, *(-(-taps // _tap_step(p, axis)) for axis, taps in enumerate(p.filter)))
    return (p.n, *p.out_spatial)


def _sum_at(p: ConvProblem, tensors: Mapping[str, Array], points: Indices, terms: Block) -> Float64Array:
    """Sum over the block ``terms`` of the reduction, for each point."""

    def spread(values: Indices, axis: int) -> Indices:
        return values.reshape([-1 if axis == other else 1 for other in range(p.ndim + 2)])

    first, second, *place = (spread(column, 0) for column in points.T)
    lead, *inner = (spread(np.arange(term.start, term.stop), 1 + axis) for axis, term in enumerate(terms))
    x_group, y_group = p.c // p.groups, p.k // p.groups
    places: dict[str, tuple[Indices, ...]]
    if p.direction == "fwd":  # points n, k, o; terms c, f
        pixels, inside = _pixels(p, place, inner)
        places = {"x": (first, second // y_group * x_group + lead, *pixels), "w": (second, lead, *inner)}
    elif p.direction == "bwd":  # points n, c, pixel; terms k, f
        outputs, taps, inside = _outputs_and_taps(p, place, inner)
        k = second // x_group * y_group + lead
        places = {"y": (first, k, *outputs), "w": (k, second % x_group, *taps)}
    else:  # points k, c, f; terms n, o
        pixels, inside = _pixels(p, inner, place)
        places = {"x": (lead, first // y_group * x_group + second, *pixels), "y": (lead, first, *inner)}
    a, b = (tensors[role][where].astype(np.float64) for role, where in places.items())
    total: Float64Array = np.where(inside, a * b, 0.0).sum(axis=tuple(range(1, p.ndim + 2)))
    return total


def _pixels(p: ConvProblem, outputs: Sequence[Indices], taps: Sequence[Indices]) -> tuple[list[Indices], Mask]:
    """The pixel that each tap of each output looks at, an array an axis, and which of them are in the image."""
    pixels, masks = [], []
    for axis, (output, tap) in enumerate(zip(outputs, taps, strict=True)):
        pixel = output * p.stride[axis] - p.pad[axis] + tap * p.dilation[axis]
        masks.append((pixel >= 0) & (pixel < p.in_spatial[axis]))
        pixels.append(pixel.clip(0, p.in_spatial[axis] - 1))
    return pixels, functools.reduce(np.logical_and, masks)


def _outputs_and_taps(
    p: ConvProblem, pixels: Sequence[Indices], ordinals: Sequence[Indices]
) -> tuple[list[Indices], list[Indices], Mask]:
    """Output and tap of each product that meets a pixel, an array an axis, and which of them exist.

    A tap f meets the pixel i where i + pad - f * dilation is a multiple of the stride: the first such f follows from
    the inverse of the dilation modulo the stride, the others from it in steps.
    """
    outputs, taps, masks = [], [], []
    for axis, (pixel, ordinal) in enumerate(zip(pixels, ordinals, strict=True)):
        stride, dilation = p.stride[axis], p.dilation[axis]
        common, step = math.gcd(stride, dilation), _tap_step(p, axis)
        reach = pixel + p.pad[axis]
        tap = reach // common * pow(dilation // common, -1, step) % step + ordinal * step
        output = (reach - tap * dilation) // stride
        exists = (reach % common == 0) & (tap < p.filter[axis]) & (output >= 0) & (output < p.out_spatial[axis])
        masks.append(exists)
        outputs.append(output.clip(0, p.out_spatial[axis] - 1))
        taps.append(tap.clip(0, p.filter[axis] - 1))
    return outputs, taps, functools.reduce(np.logical_and, masks)


def _tap_step(p: ConvProblem, axis: int) -> int:
    """Every how many taps one meets the same pixel."""
    return p.stride[axis] // math.gcd(p.stride[axis], p.dilation[axis])
