"""What a depthwise config needs of a GPU: registers, instructions, memory, and from these a rough time."""

from __future__ import annotations

import math

from hipfind.kernels.spec import BLOCK
from hipfind.solvers.depthwise.config import DepthwiseConfig
from hipfind.solvers.depthwise.shape import Grid, Shape, grid_of, parts_of, strips_of
from hipfind.target import Target

_SCHEDULERS = 4
"""Of a compute unit; each issues an instruction of a wave a cycle."""
_LATENCY_S = 0.7e-6
"""Of memory, under load."""
_OVERLAP = 0.8
"""Share of the shorter one of instructions and memory that the longer one hides."""


def registers(target: Target, shape: Shape, config: DepthwiseConfig) -> int:
    """32-bit registers of a thread, about: filter, tile, one row of the source as numbers and one as it is read."""
    words, channels = shape.sum_bytes // 4, config.channels
    row = shape.w.met(config.columns)
    raw = row * max(channels * shape.dtype.itemsize // 4, 1)
    if not shape.is_last:
        pack = grid_of(target, shape, config).pack
        first, last = shape.w.window(config.columns)
        raw = (last // pack - first // pack + 1) * max(pack * shape.dtype.itemsize // 4, 1)
    return words * channels * (shape.taps + config.rows * config.columns + row) + raw + 24


def cycles(target: Target, shape: Shape, config: DepthwiseConfig) -> float:
    """Time of a config in cycles: to issue its instructions, or to move its bytes, whichever takes longer."""
    grid = grid_of(target, shape, config)
    used = grid.lanes * grid.slots / grid.members
    waves_per_scheduler = config.blocks * BLOCK * used / target.wave_size / _SCHEDULERS
    rounds = _groups(target, shape, config, grid) / (target.compute_units * config.blocks)
    issue = (rounds + math.ceil(rounds)) / 2 * waves_per_scheduler * _instructions(shape, config, grid)
    issue /= 1.0 - math.pow(0.5, waves_per_scheduler)  # each wave hides half of what the others leave
    met, moved = shape.h.met(config.rows), shape.h.moved(config.rows)
    again = 1.0 if shape.is_weights else 1 + (met - moved) / (config.depth * moved)
    source, results = (shape.images * shape.channels * shape.h[axis] * shape.w[axis] for axis in (0, 1))
    seconds = (source * (1 + again) / 2 + results) * shape.dtype.itemsize / (target.bandwidth_gbs * 1e9)
    in_flight = (
        min(rounds, 1.0)
        * config.blocks
        * BLOCK
        * used
        * shape.w.met(config.columns)
        * config.channels
        * shape.dtype.itemsize
    )
    reach = min(1.0, in_flight * target.compute_units / (target.bandwidth_gbs * 1e9 * _LATENCY_S))
    memory = seconds * target.clock_mhz * 1e6 / reach
    return max(issue, memory) + (1 - _OVERLAP) * min(issue, memory)


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
    read = met * 1.3 if shape.is_last else met / grid.pack * 2
    written = elements * (1 / channels + 0.5 if shape.is_last else 1 / grid.pack_out + 0.5)
    tile = products + shape.h.met(config.rows) * (converted + read + 8) + written + 60
    once = 250 + (10 if shape.is_weights else 3) * shape.taps * channels
    return once + config.depth * tile
