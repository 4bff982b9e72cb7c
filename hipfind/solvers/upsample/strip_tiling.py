"""How the strip kernel cuts a problem into strips of dx, and what a group's members share.

A strip of h x w pixels looks at the windows of (h + 1) x (w + 1): large ones read little twice, small ones make groups
for all of a device. The choice is the least of a rough estimate over a few shapes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import NamedTuple

from hipfind.kernels.spec import BLOCK
from hipfind.solvers.upsample.coordinates import Coordinates
from hipfind.solvers.upsample.tiling import DIVISIONS

ROWS = 512
"""Rows of dy that a strip looks at, at most."""
TILE_W = 256
"""Pixels of a strip's row, at most."""
_GROUPS_PER_UNIT = 3
"""That a compute unit works on at once, by the registers of their members."""
_SETUP_ROWS = 6.0
"""What making tables and filling the pipeline costs, in rows read."""
_LATENCY = 0.85
"""A row's share of a trip to memory, in the time in which full groups take a row from it."""
_PUT_ROWS = 0.3
"""What completing a pixel row costs, in rows read."""
_LEAST_ROWS = 4
_MOST_PARTS_W = 32


class StripTiling(NamedTuple):
    """Pixels of a strip; lines of its rows; planes of a group; members that share a pixel row's rows, and a window's
    columns; groups of the launch; rows and columns of dy that are read, over those that there are."""

    tile_h: int
    tile_w: int
    lines: int
    at_once: int
    parts: int
    parts_w: int
    groups: int
    read: float


@functools.lru_cache(maxsize=1024)
def strip_tiling(
    units: int, h: Coordinates, w: Coordinates, planes: int, inner: int, line: int, pack: int, alignment: int
) -> StripTiling | None:
    """The tiling of ``planes`` planes with ``inner`` elements in a pixel, None where no strip fits a group.

    ``line``: elements that a member reads at once, ``pack``: elements of a result, ``alignment``: of a strip's first
    column of dy, which may lie so far before its window.
    """
    best, least = None, math.inf
    for tile_w, columns in _widths(w, BLOCK * line // inner, alignment):
        lines = -(-columns * inner // line)
        strips = -(-w.size // tile_w) * -(-planes // min(BLOCK // lines, planes))
        for tile_h in _heights(h, max(units * _GROUPS_PER_UNIT // strips, 1)):
            tiling = _tiling(units, h, w, planes, inner, line, pack, tile_h, tile_w, columns)
            time = _time(units, h, tiling)
            if time < least:
                best, least = tiling, time
    return best


def _widths(w: Coordinates, most: int, alignment: int) -> Iterator[tuple[int, int]]:
    """Widths of a strip to try, with the columns of dy that it looks at."""
    fewest = -(-w.size // w.pixels(max(most - alignment + 1, 1)))
    for strips in sorted({fewest, *(number for number in DIVISIONS if number <= w.size)}):
        tile_w = -(-w.size // strips)
        columns = w.out if strips == 1 else min(w.span(tile_w) + alignment - 1, w.out)
        if columns <= most and tile_w <= TILE_W:
            yield tile_w, columns


def _heights(h: Coordinates, wanted: int) -> Iterator[int]:
    """Heights of a strip to try; ``wanted``: segments that make one wave of groups."""
    numbers = {min(wanted, h.size), h.size, *(number for number in DIVISIONS if number <= h.size)}
    for segments in sorted(numbers):
        tile_h = -(-h.size // segments)
        if h.span(tile_h) <= ROWS:
            yield tile_h


def _tiling(
    units: int, h: Coordinates, w: Coordinates, planes: int, inner: int, line: int, pack: int,
    tile_h: int, tile_w: int, columns: int,
) -> StripTiling:  # fmt: skip
    lines = -(-columns * inner // line)
    lanes = BLOCK // lines
    tiles = -(-h.size // tile_h) * -(-w.size // tile_w)
    rows = h.span(tile_h)
    parts = 1
    if tile_h == 1 and tiles * -(-planes // lanes) < units * _GROUPS_PER_UNIT:
        parts = max(min(lanes, rows // _LEAST_ROWS), 1)
    at_once = min(lanes // parts, planes)
    results = at_once * tile_w * (inner // pack)
    parts_w = max(min(_MOST_PARTS_W, BLOCK // results, w.span(1) // _LEAST_ROWS), 1) if results <= BLOCK else 1
    return StripTiling(
        tile_h,
        tile_w,
        lines,
        at_once,
        parts,
        parts_w=1 << parts_w.bit_length() - 1,
        groups=tiles * -(-planes // at_once),
        read=rows * -(-h.size // tile_h) / h.out * min(columns, w.out) * -(-w.size // tile_w) / w.out,
    )


def _time(units: int, h: Coordinates, tiling: StripTiling) -> float:
    """Rough time, in rows of full groups from memory with all of the device at work."""
    slots = units * _GROUPS_PER_UNIT
    waves = tiling.groups / slots
    rows = h.span(tiling.tile_h) / tiling.parts
    busy = tiling.lines * tiling.at_once * tiling.parts / BLOCK * min(waves, 1.0)
    # The windows' own columns: what strips read twice comes out of a cache, what lines hold besides does not matter.
    group = rows * max(busy, _LATENCY) + _SETUP_ROWS * max(busy, _LATENCY) + tiling.tile_h * _PUT_ROWS
    return group * max(math.ceil(waves) if waves < 4 else waves + 0.5, 1)
