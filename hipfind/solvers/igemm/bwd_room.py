"""How many images GemmBwdV4R1 multiplies at a time, and where their matrices lie in its workspace."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm.products import images_at_a_time
from hipfind.solvers.igemm.bwd_parts import Family, Part, families_of, filter_copy, has_last_channels, rows_copy
from hipfind.target import Target

_ALIGNMENT = 256
_ROW_BYTES = 16  # multiples that matrix cores load
_CACHE_BYTES = 1024  # addresses so far apart share few places of a CPU's nearest cache


class Room(NamedTuple):
    """Images at a time, and where things lie in the workspace, in bytes: each part's filter, the columns, the rows."""

    families: tuple[Family, ...]
    images: int
    filters: Mapping[Part, int]
    columns: int
    rows: int
    end: int


class Matrices(NamedTuple):
    """Of a part: rows and row distances of the columns and of the product's rows in elements, and which lie in y, x."""

    column_rows: int
    columns_pitch: int
    row_rows: int
    rows_pitch: int
    has_columns: bool
    has_rows: bool

    @property
    def columns(self) -> int:
        """Elements of the workspace for the columns."""
        return 0 if self.has_columns else self.column_rows * self.columns_pitch

    @property
    def rows(self) -> int:
        """Elements of the workspace for the product's rows."""
        return 0 if self.has_rows else self.row_rows * self.rows_pitch


@functools.lru_cache(maxsize=256)
def room_of(target: Target, problem: ConvProblem) -> Room:
    """The room that GemmBwdV4R1 works in. Kept: applicability, estimate and solution all ask for it."""
    families, size = families_of(problem), problem.dtype.itemsize
    images = _images_at_a_time(target, problem, families)
    filters: dict[Part, int] = {}
    end = 0
    for part in (part for family in families for part in family.parts):
        filters[part] = end
        if filter_copy(problem, part).is_needed:
            end += _aligned(problem.k * part.taps * problem.c // problem.groups * part.repeats * size)
    columns = rows = 0
    for family in families:
        matrices = [matrices_of(target, problem, family, part, images) for part in family.parts]
        columns = max(columns, *(_aligned(matrix.columns * size) for matrix in matrices))
        rows = max(rows, sum(matrix.rows for matrix in matrices) * size)
    return Room(families, images, filters, end, end + columns, end + columns + rows)


def _images_at_a_time(target: Target, problem: ConvProblem, families: tuple[Family, ...]) -> int:
    pixels = elements = 1
    for family in families:
        most = max(part.pixels * part.taps for part in family.parts)
        rows = family.first.pixels * family.first.repeats * len(family.parts)
        pixels = max(pixels, family.first.pixels)
        elements = max(elements, problem.k * most + problem.c * rows)
    return images_at_a_time(target, problem.n, pixels, elements * problem.dtype.itemsize)


def matrices_of(target: Target, problem: ConvProblem, family: Family, part: Part, images: int) -> Matrices:
    """Rows lie close together in x and y, at distances that suit the target in the workspace."""
    flat = images * part.pixels
    deep, across = problem.k * part.taps, problem.c * part.repeats
    columns, rows = (flat, deep), (flat, across)
    if not has_last_channels(problem):
        columns, rows = columns[::-1], rows[::-1]
    has_columns = part.takes_all_outputs and (has_last_channels(problem) or images == 1)
    has_rows = len(family.parts) == 1 and not rows_copy(problem, family, images, rows[1]).is_needed
    size = problem.dtype.itemsize
    return Matrices(
        columns[0], columns[1] if has_columns else _pitch(target, columns[1], size),
        rows[0], rows[1] if has_rows else _pitch(target, rows[1], size),
        has_columns, has_rows,
    )  # fmt: skip


def _pitch(target: Target, length: int, size: int) -> int:
    """Elements from row to row: whole 16 bytes on a GPU; on a CPU no multiple of what its caches tell apart."""
    unit = _ROW_BYTES // size
    if target.is_host:
        return length + (unit if length * size % _CACHE_BYTES == 0 else 0)
    return -(-length // unit) * unit


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
