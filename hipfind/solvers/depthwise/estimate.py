"""What a depthwise config needs of a GPU: registers, instructions, memory, and from these a rough time."""

from __future__ import annotations

import math

from hipfind.kernels.spec import BLOCK
from hipfind.solvers.depthwise.config import DepthwiseConfig
from hipfind.solvers.depthwise.shape import Grid, Shape, grid_of, loads, parts_of, strips_of
from hipfind.target import Target

_SCHEDULERS = 4
"""Of a compute unit; each issues an instruction of a wave a cycle."""
_LATENCY_S = 0.7e-6
"""Of memory, under load."""
_LINE = 128
"""Bytes of a cache line; a compute unit reads one a cycle."""
_ROWS_AHEAD = 1.5
"""Rows that a thread has asked for while it waits for one."""
_ENDS = 0.3
"""Groups' time in which a unit is filled at the start and runs empty at the end."""
_OVERLAP = 0.8
"""Share of the shorter one of instructions and memory that the longer one hides."""


def registers(target: Target, shape: Shape, config: DepthwiseConfig) -> int:
    """32-bit registers of a thread, about: filter, tile, one row of the source as numbers and one as it is read."""
    words, channels = shape.sum_bytes // 4, config.channels
    row = shape.w.met(config.columns)
    raw = row * max(channels * shape.dtype.itemsize // 4, 1)
    pack = grid_of(target, shape, config).pack
    if not shape.is_last:
        raw = loads(shape, config.columns, pack) * max(pack * shape.dtype.itemsize // 4, 1)
    rest = 24  # and what compilers were seen to keep besides
    if shape.is_weights:
        rest += (5 + row // 4 if shape.is_last else 0) + (12 if config.blocks > 2 and pack == 1 else 0)
    return words * channels * (shape.taps + config.rows * config.columns + row) + raw + rest


def cycles(target: Target, shape: Shape, config: DepthwiseConfig) -> float:
    """Time of a config in cycles: to issue instructions, to read caches or to read memory, whichever takes longest."""
    grid = grid_of(target, shape, config)
    used = grid.lanes * grid.slots / grid.members
    waves = config.blocks * BLOCK * used / target.wave_size
    per_unit = _groups(target, shape, config, grid) / target.compute_units
    rounds = (math.ceil(per_unit) + _ENDS) / config.blocks  # of the unit that has most to do
    issue = rounds * waves / _SCHEDULERS * _instructions(shape, config, grid)
    cache = rounds * waves * config.depth * shape.h.met(config.rows) * _lines(target, shape, config, grid)
    in_flight = min(per_unit, config.blocks) * BLOCK * used * _ROWS_AHEAD * _row_bytes(shape, config)
    reach = min(1.0, in_flight * target.compute_units / (target.bandwidth_gbs * 1e9 * _LATENCY_S))
    read, written = _bytes(shape, config)
    memory = (read / reach + written) / (target.bandwidth_gbs * 1e9) * target.clock_mhz * 1e6
    memory *= (1 + math.ceil(per_unit) / per_unit) / 2  # it is shared: the last ones have more of it
    longest = max(issue, cache, memory)
    hidden = 1.0 - math.pow(0.5, waves / _SCHEDULERS)  # each wave of a scheduler hides half of what the others leave
    return (_OVERLAP * longest + (1 - _OVERLAP) * (issue + cache + memory)) / hidden


def _lines(target: Target, shape: Shape, config: DepthwiseConfig, grid: Grid) -> float:
    """Cache lines that a wave touches to read a row of its tiles, each load's apart."""
    side_by_side = target.wave_size / grid.lanes
    if shape.is_last:
        pixel = grid.lanes * config.channels * shape.dtype.itemsize
        return shape.w.met(config.columns) * side_by_side * max(1.0, pixel / _LINE)
    span = side_by_side * shape.w.moved(config.columns) * shape.dtype.itemsize / _LINE
    return loads(shape, config.columns, grid.pack) * min(span + side_by_side / grid.columns, target.wave_size)


def _row_bytes(shape: Shape, config: DepthwiseConfig) -> int:
    return shape.w.met(config.columns) * config.channels * shape.dtype.itemsize


def _bytes(shape: Shape, config: DepthwiseConfig) -> tuple[float, float]:
    """Read from memory and written to it. Half of the rows that two strips meet are found in a cache."""
    source, results = (
        shape.images * shape.channels * shape.h[axis] * shape.w[axis] * shape.dtype.itemsize for axis in (0, 1)
    )
    if shape.is_weights:
        return source + results, 0.0
    met, moved = shape.h.met(config.rows), shape.h.moved(config.rows)
    return source * (1 + max(met - moved, 0) / (2 * config.depth * moved)), results


def _groups(target: Target, shape: Shape, config: DepthwiseConfig, grid: Grid) -> int:
    if shape.is_weights:
        return grid.chunks * parts_of(target, shape, config)
    tiles = strips_of(config, grid) * grid.columns * shape.images * (1 if shape.is_last else shape.channels)
    return grid.chunks * -(-tiles // grid.slots)


def _instructions(shape: Shape, config: DepthwiseConfig, grid: Grid) -> float:
    """Of a thread, for all of its tiles."""
    channels, elements = config.channels, config.rows * config.columns * config.channels
    products = elements * shape.taps
    if shape.h.is_backward:
        products //= shape.h.stride * shape.w.stride
    met = shape.w.met(config.columns)
    converted = met * channels if shape.dtype.is_half else 0
    read = met * 1.3 if shape.is_last else loads(shape, config.columns, grid.pack) * 2
    written = elements * (1 / channels + 0.5 if shape.is_last else 1 / grid.pack_out + 0.5)
    tile = products + shape.h.met(config.rows) * (converted + read + 8) + written + (150 if shape.is_weights else 60)
    once = 250 + (10 if shape.is_weights else 3) * shape.taps * channels
    return once + config.depth * tile
