"""What the three naive direct solvers share: their rule, and the launch of naive_conv.hip.

The kernel computes a tile of output channels x points an item and takes all sizes and strides at run time. A GPU thread
takes a tile of one output; a host thread one that fills vectors along channels, or along points where there are few
channels. 2D is 3D with a depth of 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from hipfind.invokers.steps import KernelStep, Operand
from hipfind.kernels.spec import KernelSpec
from hipfind.problem.conv import ConvProblem
from hipfind.problem.dtypes import DType
from hipfind.solvers.direct.empty_batch import ConvEmptyBatch
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.target import Target

_DTYPES = (DType.FP32, DType.FP16, DType.BF16, DType.FP64)
_GPU_EFFICIENCY = 0.01  # MIOpen's figure for its naive kernels


class Tile(NamedTuple):
    """Outputs of one work item, and the fraction of the plain rate that such an item is expected to reach."""

    channels: int
    points: int
    efficiency: float


_GPU_TILE = Tile(1, 1, _GPU_EFFICIENCY)
_HOST_TILES = (Tile(16, 32, 0.1), Tile(4, 64, 0.06), Tile(1, 128, 0.02))
"""Host tiles, for many, some and single output channels in a group.

Large problems reach three times these fractions; small ones do not, and an estimate must not pass over a product.
"""


def naive_applicability(target: Target, problem: ConvProblem, direction: str) -> Applicability:
    """One direction, any float dtype, a compiler; an empty problem only where ConvEmptyBatch does not do it."""
    if problem.operation != "conv":
        return no(Reason.OPERATION, problem.operation)
    if problem.direction != direction:
        return no(Reason.DIRECTION, problem.direction)
    if problem.dtype not in _DTYPES:
        return no(Reason.DTYPE, problem.dtype.value)
    if problem.is_empty and ConvEmptyBatch().IsApplicable(target, problem):
        return no(Reason.EMPTY)
    return APPLICABLE if target.kernels else no(Reason.NO_COMPILER)


def naive_step(target: Target, problem: ConvProblem) -> KernelStep:
    """The launch for a problem in convolution mode."""
    out_channels = (problem.c if problem.direction == "bwd" else problem.k) // problem.groups
    tile = _tile(target, out_channels)
    blocks = problem.groups * -(-out_channels // tile.channels)
    geometry, tiles = _point_tiles(problem, tile)
    defines = (
        ("ELEM", problem.dtype.value),
        ("TILE_CHANNELS", str(tile.channels)),
        ("TILE_POINTS", str(tile.points)),
    )
    rate = 0.5 if problem.dtype is DType.FP64 else 1.0
    return KernelStep(
        KernelSpec("naive_conv.hip", f"naive_conv_{problem.direction}", defines),
        tuple(Operand(role) for role in (*problem.inputs, problem.output)),
        (
            *_sizes(problem),
            *geometry,
            int(_has_channels_innermost(target, problem, tile)),
            problem.alpha,
            problem.beta,
        ),
        items=blocks * tiles,
        flops=_flops(problem),
        bytes=problem.min_bytes,
        efficiency=tile.efficiency * rate,
    )


def _tile(target: Target, out_channels: int) -> Tile:
    if not target.is_host:
        return _GPU_TILE
    many, some, single = _HOST_TILES
    return single if out_channels == 1 else some if out_channels < many.channels // 2 else many


def _sizes(problem: ConvProblem) -> tuple[int, ...]:
    """The kernel's first parameters: counts, extents by axis, strides by tensor."""
    axes = (
        (problem.in_spatial, 1),
        (problem.out_spatial, 1),
        (problem.filter, 1),
        (problem.stride, 1),
        (problem.dilation, 1),
        (problem.pad, 0),
    )
    extents = [number for values, fill in axes for number in _three(values, fill)]
    strides: list[int] = []
    for tensor in (problem.x, problem.w, problem.y):
        strides += (*tensor.strides[:2], *_three(tensor.strides[2:], 0))
    groups = problem.groups
    return (problem.n, groups, problem.c // groups, problem.k // groups, *extents, *strides)


def _point_tiles(problem: ConvProblem, tile: Tile) -> tuple[tuple[int, int, int, int], int]:
    """How output points are cut into tiles: (width, segments, units a tile, tiles), and the number of tiles.

    Forward and data: a unit is ``width`` neighbouring points of a row, in as many segments as the row needs; short rows
    share a tile, images first. Backward, neighbours are a stride apart, so that all of a unit has the same taps.
    Weights: a point is an input channel of a group and a tap.
    """
    if problem.direction == "wrw":
        points = problem.c // problem.groups * math.prod(problem.filter)
        tiles = -(-points // tile.points)
        return (tile.points, 1, 1, tiles), tiles
    out = problem.y if problem.direction == "fwd" else problem.x
    row = out.lengths[-1]
    phases = 1 if problem.direction == "fwd" else min(problem.stride[-1], row)
    length = -(-row // phases)
    width = min(length, tile.points)
    segments = -(-length // width)
    units = segments * phases * problem.n * math.prod(out.lengths[2:-1])
    units_per_tile = 1 if segments > 1 else min(tile.points // width, units)
    tiles = -(-units // units_per_tile)
    return (width, segments, units_per_tile, tiles), tiles


def _has_channels_innermost(target: Target, problem: ConvProblem, tile: Tile) -> bool:
    """Neighbouring items take neighbouring channels where these lie together in memory and a tile has few of them."""
    out = problem.tensor(problem.output)
    return out.strides[1] < out.strides[-1] and tile.channels < _HOST_TILES[0].channels


def _flops(problem: ConvProblem) -> int:
    """Operations on elements of the image: what falls on padding is not computed."""
    pairs = 1
    for axis in range(problem.ndim):
        stride, pad, size = problem.stride[axis], problem.pad[axis], problem.in_spatial[axis]
        inside = 0
        for tap in range(problem.filter[axis]):
            shift = tap * problem.dilation[axis] - pad
            first = max(0, -(shift // stride))
            last = min(problem.out_spatial[axis] - 1, (size - 1 - shift) // stride)
            inside += max(0, last - first + 1)
        pairs *= inside
    return 2 * problem.n * problem.k * (problem.c // problem.groups) * pairs


def _three(values: Sequence[int], fill: int) -> tuple[int, ...]:
    return (*(fill,) * (3 - len(values)), *values)
