"""A depthwise problem as its kernels see it, and what a tile of it needs."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from hipfind.kernels.spec import BLOCK
from hipfind.problem.conv import ConvProblem
from hipfind.problem.dtypes import DType
from hipfind.solvers.depthwise.config import DepthwiseConfig
from hipfind.target import Target

_WIDEST = 16
"""Bytes that a GPU thread reads or writes at once."""
LANES = 32
"""Threads that take neighbouring channels: their loads make whole cache lines."""
_FEWEST_LANES = 8
_WEIGHT_BYTES = 40 << 10
"""Shared memory for the filters of a group's channels."""
_GROUPS_PER_UNIT = 8
"""Groups a compute unit for which the workspace has room for their sums of weights."""
_LEAST_PART = 64
"""Results that are worth a part."""


class Axis(NamedTuple):
    """One axis of a problem."""

    source: int
    results: int
    taps: int
    stride: int
    dilation: int
    pad: int
    is_backward: bool

    def window(self, tile: int) -> tuple[int, int]:
        """First and last source position that ``tile`` results meet, counted from the tile's base."""
        reach = (self.taps - 1) * self.dilation
        if self.is_backward:
            return (self.pad - reach) // self.stride, (tile - 1 + self.pad) // self.stride
        return -self.pad, (tile - 1) * self.stride + reach - self.pad

    def met(self, tile: int) -> int:
        """Source positions between the two."""
        first, last = self.window(tile)
        return last - first + 1

    def moved(self, tile: int) -> int:
        """Source positions between the bases of neighbouring tiles."""
        return tile // self.stride if self.is_backward else tile * self.stride


class Shape(NamedTuple):
    """What the kernels depend on. ``results``: y, or dx in the data gradient; ``source``: the other image."""

    images: int
    channels: int
    h: Axis
    w: Axis
    is_last: bool
    dtype: DType
    is_weights: bool

    @property
    def taps(self) -> int:
        return self.h.taps * self.w.taps

    @property
    def sum_bytes(self) -> int:
        return 8 if self.dtype is DType.FP64 else 4


@functools.lru_cache(maxsize=1024)
def shape_of(problem: ConvProblem) -> Shape:
    """The shape of a packed 2D depthwise problem."""
    is_backward = problem.direction == "bwd"
    source, results = (problem.y, problem.x) if is_backward else (problem.x, problem.y)
    h, w = (
        Axis(
            source.lengths[2 + axis], results.lengths[2 + axis], problem.filter[axis], problem.stride[axis],
            problem.dilation[axis], problem.pad[axis], is_backward,
        )
        for axis in range(2)
    )  # fmt: skip
    return Shape(problem.n, problem.c, h, w, problem.is_channel_last, problem.dtype, problem.direction == "wrw")


class Grid(NamedTuple):
    """How a config cuts a problem: packs of elements, lanes of channels, tiles of rows and columns."""

    pack: int
    pack_out: int
    lanes: int
    chunks: int
    slots: int
    columns: int
    rows: int
    members: int


def grid_of(target: Target, shape: Shape, config: DepthwiseConfig) -> Grid:
    """The grid of a valid config."""
    members = 1 if target.is_host else BLOCK
    packs = shape.channels // config.channels if shape.is_last else 1
    most = 1 if target.is_host or not shape.is_last else min(LANES, _room(shape) // (config.channels * shape.taps))
    lanes = _lanes(packs, most)
    pieces = -(-packs // lanes)
    chunks = pieces if shape.is_last else shape.channels if shape.is_weights else 1
    slots = members // lanes
    if shape.is_weights:
        slots = min(slots, weight_room(shape) // (lanes * config.channels * shape.taps))
    return Grid(
        *_packs(target, shape, config), lanes, chunks, slots,
        -(-shape.w.results // config.columns), -(-shape.h.results // config.rows), members,
    )  # fmt: skip


def strips_of(config: DepthwiseConfig, grid: Grid) -> int:
    """Strips that an image is cut into from top to bottom."""
    return -(-grid.rows // config.depth)


def most_parts(target: Target, shape: Shape) -> int:
    """Parts of a channel's tiles that make enough groups for the device; by sizes alone, whatever the config."""
    results = shape.images * shape.h.results * shape.w.results
    side_by_side = -(-shape.channels // (LANES if shape.is_last else 1))
    wanted = -(-target.compute_units * _GROUPS_PER_UNIT // side_by_side)
    return max(min(wanted, results // _LEAST_PART), 1)


def parts_of(target: Target, shape: Shape, config: DepthwiseConfig) -> int:
    """Parts that a config makes of a channel's tiles."""
    grid = grid_of(target, shape, config)
    return -(-shape.images * grid.rows * grid.columns // (grid.slots * config.depth))


def _lanes(packs: int, most: int) -> int:
    """Threads side by side: so many that waves hold whole tiles, if that leaves no thread idle."""
    whole = math.gcd(packs, LANES)
    return whole if _FEWEST_LANES <= whole <= most else -(-packs // -(-packs // most))


def weight_room(shape: Shape) -> int:
    """Sums that a group's shared memory holds: as in depthwise_wrw.hip."""
    return (47 << 10) // shape.sum_bytes - 1024


def _room(shape: Shape) -> int:
    return weight_room(shape) if shape.is_weights else _WEIGHT_BYTES // shape.sum_bytes


def _packs(target: Target, shape: Shape, config: DepthwiseConfig) -> tuple[int, int]:
    """Columns that are read of the source at once, and of the results."""
    if target.is_host or shape.is_last:
        return 1, 1
    w, columns = shape.w, config.columns
    steps = [w.source, w.moved(columns)]
    if shape.is_weights and w.results % columns:  # the last tile of a row is moved back
        steps.append(w.moved(w.results - columns))
    most = _WIDEST // shape.dtype.itemsize
    pack = _common(most, steps)
    packs = [pack >> shift for shift in range(pack.bit_length())]
    return min(packs, key=lambda pack: _effort(shape, columns, pack)), _common(most, [w.results, columns])


def loads(shape: Shape, columns: int, pack: int) -> int:
    """Packs of a row of the source that a tile meets."""
    first, last = shape.w.window(columns)
    return last // pack - first // pack + 1


def _effort(shape: Shape, columns: int, pack: int) -> int:
    """Of reading a row in such packs: instructions, and registers that hold what is read."""
    number = loads(shape, columns, pack)
    return 2 * number + number * max(pack * shape.dtype.itemsize // 4, 1)


def _common(most: int, numbers: list[int]) -> int:
    """The largest power of two up to ``most`` that divides all numbers."""
    pack = most
    while any(number % pack for number in numbers):
        pack //= 2
    return pack
