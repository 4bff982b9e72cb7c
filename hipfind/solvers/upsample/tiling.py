"""How the block kernel cuts a problem into tiles of dx, and the tiles' windows into chunks and parts.

A group sums a tile's windows over rows of dy, then these sums over columns. Large tiles read little twice: a tile of
h x w pixels looks at the windows of (h + 1) x (w + 1). Small ones keep all of a device busy.
"""

from __future__ import annotations

import dataclasses

from hipfind.kernels.spec import BLOCK
from hipfind.problem.dtypes import DType
from hipfind.solvers.upsample.coordinates import Coordinates
from hipfind.solvers.upsample.planes import Planes
from hipfind.target import Target

DIVISIONS = tuple(sorted({1 << power for power in range(31)} | {3 << power for power in range(30)}))
"""Numbers of tiles in a row that are tried."""
LEAST_COLUMNS = 3
"""That a tile should have where a pixel's window is wide, so that it reads not too much twice."""
_GROUPS_PER_CORE = 16
_GROUPS_PER_UNIT = 2
_MANY_GROUPS_PER_UNIT = 16
_MOST_PLANES_PER_GROUP = 8
_MOST_PARTS = 32
_ROWS_PER_MEMBER = 4
"""A window's rows are not cut into parts or chunks of fewer."""


@dataclasses.dataclass(frozen=True)
class Room:
    """Sizes of the kernel's arrays in elements. Fixed for all problems of a dtype: one binary serves all."""

    sums: int
    scratch: int
    rows: int
    columns: int
    tile_h: int
    tile_w: int
    line: int
    """Neighbouring elements that a member takes at once; 0: the whole row, for a group of one."""
    row_length: int
    """Elements of a row of dy that a tile should look at: enough for long runs, few enough for several rows."""

    @property
    def defines(self) -> tuple[tuple[str, str], ...]:
        """As the kernel wants them."""
        names = ("SUMS", "SCRATCH", "ROWS", "COLUMNS", "TILE_H", "TILE_W", "LINE")
        return tuple((name, str(getattr(self, name.lower()))) for name in names)

    def pitch(self, columns: int, inner: int, alignment: int) -> int:
        """Elements of a row of sums over so many columns, at most."""
        elements = (columns + alignment - 1) * inner
        return -(-elements // self.line) * self.line if self.line else elements


def room_of(target: Target, dtype: DType) -> Room:
    """A GPU's shared memory for several groups a compute unit, or a host core's nearest caches."""
    if target.is_host:
        return Room(
            sums=65536, scratch=1, rows=4096, columns=8192, tile_h=512, tile_w=512, line=0, row_length=32768
        )  # fmt: skip
    share = 2 if dtype is DType.FP64 else 1
    return Room(
        sums=4096 // share, scratch=2048 // share, rows=384, columns=512, tile_h=32, tile_w=256,
        line=16 // dtype.itemsize, row_length=256 // share,
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Tiling:
    """Tiles in pixels; chunks of their windows for different groups, parts of windows for different members.

    ``row_groups``: members that share the rows of a pixel column where windows are narrow. ``groups``: of the launch.
    """

    tile_h: int
    tile_w: int
    groups: int
    chunks_h: int = 1
    chunks_w: int = 1
    parts_h: int = 1
    parts_w: int = 1
    row_groups: int = 1
    planes_per_group: int = 1

    @property
    def chunks(self) -> int:
        return self.chunks_h * self.chunks_w


def tiling_of(
    target: Target, room: Room, h: Coordinates, w: Coordinates, planes: Planes, pack: int, alignment: int
) -> Tiling:
    """A tiling that fits the room. ``alignment``: of a tile's first column of dy, ``pack``: elements of one result."""
    slots = 2 if target.is_host else 1  # rows of sums, at least
    most_columns = min(room.columns, room.sums // slots // planes.inner) - alignment
    tile_h, tile_w = (
        _long_tile(room, h, w, planes.inner, most_columns)
        if target.is_host
        else _square_tile(room, h, w, planes.inner, most_columns, alignment)
    )
    chunks_w = -(-w.span(tile_w) // most_columns)

    def groups(tile_h: int, tile_w: int) -> int:
        return planes.total * -(-h.size // tile_h) * -(-w.size // tile_w)

    wanted = target.compute_units * (_GROUPS_PER_CORE if target.is_host else _GROUPS_PER_UNIT)
    while groups(tile_h, tile_w) < wanted and tile_h > 1:
        tile_h = -(-tile_h // 2)
    while groups(tile_h, tile_w) < wanted and tile_w > 1:
        tile_w = -(-tile_w // 2)

    rows = h.span(tile_h)
    missing = wanted // (groups(tile_h, tile_w) * chunks_w)
    chunks_h = max(-(-rows // room.rows), min(missing, rows // _ROWS_PER_MEMBER), 1)
    all_groups = groups(tile_h, tile_w) * chunks_h * chunks_w
    together = min(max(all_groups // (target.compute_units * _MANY_GROUPS_PER_UNIT), 1), _MOST_PLANES_PER_GROUP)
    tiling = Tiling(
        tile_h,
        tile_w,
        groups=all_groups // planes.total * -(-planes.total // together),
        chunks_h=chunks_h,
        chunks_w=chunks_w,
        planes_per_group=together,
    )
    return tiling if target.is_host else _for_members(tiling, room, h, w, planes.inner, pack, alignment)


def _long_tile(room: Room, h: Coordinates, w: Coordinates, inner: int, most_columns: int) -> tuple[int, int]:
    """Height and width of a tile with long rows; a thread goes down them, so that height costs nothing."""
    columns = max(room.row_length // inner, w.span(LEAST_COLUMNS))
    tile_w = min(room.tile_w, w.pixels(min(columns, most_columns)))
    return _even(h.size, min(room.tile_h, h.pixels(room.rows))), _even(w.size, tile_w)


def _square_tile(
    room: Room, h: Coordinates, w: Coordinates, inner: int, most_columns: int, alignment: int
) -> tuple[int, int]:
    """Height and width of the tile that reads least twice; where a pixel is one element its rows are not short."""
    best, least = (1, 1), 0
    for tiles in DIVISIONS:
        tile_w = -(-w.size // tiles)
        columns = w.span(tile_w)
        if tile_w > room.tile_w or (columns > most_columns and tile_w > 1):
            continue
        if least and inner == 1 and columns < room.row_length // 2:
            break
        slots = room.sums // room.pitch(min(columns, most_columns), inner, alignment)
        tile_h = _even(h.size, min(room.tile_h, slots, h.pixels(room.rows)))
        read = -(-w.size // tile_w) * columns * -(-h.size // tile_h) * h.span(tile_h)
        if not least or read < least:
            best, least = (tile_h, tile_w), read
        if tile_w == 1:
            break
    return best


def _for_members(
    tiling: Tiling, room: Room, h: Coordinates, w: Coordinates, inner: int, pack: int, alignment: int
) -> Tiling:
    """The tiling with work for all members of a group."""
    pitch = room.pitch(-(-w.span(tiling.tile_w) // tiling.chunks_w), inner, alignment)
    slots = min(BLOCK * room.line, room.sums) // (tiling.tile_h * pitch)
    window = -(-h.span(1) // tiling.chunks_h)
    results = tiling.tile_w * inner // pack
    parts_w = min(_MOST_PARTS, w.span(1), room.scratch // (tiling.tile_h * results * pack))
    return dataclasses.replace(
        tiling,
        parts_h=max(min(slots, window // _ROWS_PER_MEMBER), 1),
        parts_w=1 << max(parts_w, 1).bit_length() - 1,
        row_groups=min(max(BLOCK // results, 1), tiling.tile_h),
    )


def _even(size: int, most: int) -> int:
    """The largest tile of at most ``most`` pixels that leaves no odd small one at the end."""
    tiles = -(-size // max(most, 1))
    return -(-size // tiles)
