"""The configs that are legal for a depthwise problem on a target, and which of them is the default."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import types
from collections.abc import Iterator, Mapping

from hipfind.solvers.depthwise.config import DepthwiseConfig
from hipfind.solvers.depthwise.estimate import cycles, registers
from hipfind.solvers.depthwise.shape import Axis, Shape, grid_of, most_parts, parts_of, weight_room
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.target import Target

_REGISTERS = {1: 208, 2: 122, 3: 78, 4: 60}
"""Registers that a thread may need, by thread blocks that a compute unit shall hold at once."""
_BLOCKS = sorted(_REGISTERS, reverse=True)
_WORTH = 128
"""Configs that are searched."""
_SIZES = (1, 2, 3, 4, 7, 8, 16)
"""Rows and columns of tiles that are tried; backward, so many times the stride."""
_CHANNELS = (1, 2, 4, 8)
_PIECES = (1, 2, 3, 4, 6, 8, 12, 16)
"""Pieces that a column of tiles is cut into."""
_SHARES = (1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 6, 8)
"""How many times fewer parts than the most the sums of weights are tried in."""
_MOST_PRODUCTS = 6400
"""Multiply-adds of a tile: each is an instruction, and caches for these are small."""
_MOST_DEPTH = 1 << 20
_MOST_MET = 32
"""Rows or columns of the source that a tile meets: the kernels keep a bit for each."""
_HOST_VECTOR = 16
"""Elements of a host thread's vectors: channels, or columns of a tile."""
_HOST_TILE = 4


def check(target: Target, shape: Shape, config: DepthwiseConfig) -> Applicability:
    """Whether a config is legal, with the rule that it breaks when not."""
    rows, columns, channels = config.rows, config.columns, config.channels
    if min(rows, columns, channels, config.blocks, config.depth) < 1 or config.depth > _MOST_DEPTH:
        return no(Reason.CONFIG, f"{config}: numbers are 1 and more, depth up to {_MOST_DEPTH}")
    if shape.channels % channels or (channels > 1 and not shape.is_last) or channels & (channels - 1):
        return no(
            Reason.CONFIG, f"{channels} channels at once: a power of two that divides {shape.channels}, channel-last"
        )
    if shape.h.is_backward and (rows % shape.h.stride or columns % shape.w.stride):
        return no(Reason.CONFIG, f"a tile of {rows}x{columns} is no multiple of the stride")
    if shape.is_weights and (rows > shape.h.results or columns > shape.w.results):
        return no(Reason.CONFIG, f"a tile of {rows}x{columns} is larger than y")
    if shape.is_weights and channels * shape.taps > weight_room(shape):
        return no(Reason.CONFIG, f"{channels} channels do not fit in shared memory")
    if target.is_host:
        return _check_host(shape, config) and _check_parts(target, shape, config)
    if channels * shape.dtype.itemsize > 16:
        return no(Reason.CONFIG, f"{channels} channels at once are more than 16 bytes")
    if rows * columns * channels * shape.taps > _MOST_PRODUCTS:
        return no(Reason.CONFIG, f"a tile of {rows}x{columns}x{channels} has more than {_MOST_PRODUCTS} products")
    if max(shape.h.met(rows), shape.w.met(columns)) > _MOST_MET:
        return no(
            Reason.CONFIG, f"a tile of {rows}x{columns} meets more than {_MOST_MET} rows or columns of the source"
        )
    most = _REGISTERS.get(config.blocks, 0)
    needed = registers(target, shape, config)
    if needed > most:
        return no(Reason.CONFIG, f"about {needed} registers, at most {most} with {config.blocks} blocks a compute unit")
    return _check_parts(target, shape, config)


def _check_parts(target: Target, shape: Shape, config: DepthwiseConfig) -> Applicability:
    if not shape.is_weights or parts_of(target, shape, config) <= most_parts(target, shape):
        return APPLICABLE
    return no(Reason.CONFIG, f"{config}: more than {most_parts(target, shape)} parts, take a larger depth")


def _check_host(shape: Shape, config: DepthwiseConfig) -> Applicability:
    if config.rows > 2 * _HOST_TILE * shape.h.stride or config.columns * config.channels > 256 or config.blocks != 1:
        return no(Reason.CONFIG, f"{config}: more than a host thread's nearest cache holds")
    return APPLICABLE


def search(target: Target, shape: Shape) -> Iterator[DepthwiseConfig]:
    """The legal configs that are worth trying: those with the best estimates, the best one first."""
    if target.is_host:
        yield host_config(target, shape)
        return
    estimates = _estimates(target, shape)
    yield from sorted(estimates, key=estimates.__getitem__)[:_WORTH]


@functools.lru_cache(maxsize=64)
def _estimates(target: Target, shape: Shape) -> Mapping[DepthwiseConfig, float]:
    """Cycles of tiles that fit the image, with the two largest numbers of blocks that registers allow."""
    found: dict[DepthwiseConfig, float] = {}
    for rows, columns, channels in itertools.product(_tiles(shape.h), _tiles(shape.w), _CHANNELS):
        by_blocks = (DepthwiseConfig(rows, columns, channels, blocks, _MOST_DEPTH) for blocks in _BLOCKS)
        for config in itertools.islice((config for config in by_blocks if check(target, shape, config)), 2):
            for depth in _depths(target, shape, config):
                deep = dataclasses.replace(config, depth=depth)
                found[deep] = cycles(target, shape, deep)
    return types.MappingProxyType(found)


def _tiles(axis: Axis) -> list[int]:
    """Extents of tiles along an axis, up to the first that covers it."""
    sizes = [size * axis.stride if axis.is_backward else size for size in _SIZES]
    covering = next((size for size in sizes if size >= axis.results), sizes[-1])
    return [size for size in sizes if size <= covering]


def _depths(target: Target, shape: Shape, config: DepthwiseConfig) -> list[int]:
    """Tiles that a thread takes one after the other: many threads, or few that load the filter seldom."""
    grid = grid_of(target, shape, config)
    if shape.is_weights:
        most = most_parts(target, shape)
        tiles = -(-shape.images * grid.rows * grid.columns // grid.slots)
        return sorted({max(math.ceil(tiles * share / most), 1) for share in _SHARES})
    return sorted({-(-grid.rows // pieces) for pieces in _PIECES if pieces <= grid.rows})


def default(target: Target, shape: Shape) -> DepthwiseConfig | None:
    """The legal config with the best estimate, None where no tile is legal."""
    if target.is_host:
        return host_config(target, shape)
    estimates = _estimates(target, shape)
    return min(estimates, key=estimates.__getitem__, default=None)


def host_config(target: Target, shape: Shape) -> DepthwiseConfig:
    """Vectors of channels, or of columns."""
    rows, columns, channels = _HOST_TILE, _host_columns(shape), 1
    if shape.is_last:
        channels = math.gcd(_HOST_VECTOR, shape.channels)
        columns = _HOST_TILE if channels > 1 else 1
    if shape.h.is_backward:
        rows, columns = (-(-size // axis.stride) * axis.stride for size, axis in ((rows, shape.h), (columns, shape.w)))
    if shape.is_weights:
        rows, columns = min(rows, shape.h.results), min(columns, shape.w.results)
    config = DepthwiseConfig(rows, columns, channels, 1, 1)
    if shape.is_weights:
        tiles = parts_of(target, shape, config)
        return dataclasses.replace(config, depth=-(-tiles // most_parts(target, shape)))
    return dataclasses.replace(config, depth=grid_of(target, shape, config).rows)


def _host_columns(shape: Shape) -> int:
    """Columns of a tile: few tiles that do not reach far beyond the row; those of weights must not at all."""
    results = shape.w.results
    if shape.is_weights and results < _HOST_VECTOR:
        return next(columns for columns in (8, 4, 2, 1) if columns <= results)
    sizes = range(_HOST_VECTOR, 4 * _HOST_VECTOR + 1, _HOST_VECTOR)
    legal = [columns for columns in sizes if columns <= results or not shape.is_weights]
    return min(legal, key=lambda columns: -(-results // columns) * (columns + _HOST_VECTOR // 2))
