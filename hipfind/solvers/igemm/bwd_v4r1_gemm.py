"""GemmBwdV4R1: data gradient by the v4r1 decomposition, each of its dense parts one product of vendor BLAS.

For every part: the outputs that its pixels and taps meet are gathered, its taps of w, one product that sums over all of
them, and the result goes to the part's pixels of dx; see bwd_parts. So each element of dx is written and rounded once,
nothing is multiplied by the zeros between strided outputs, and small images are multiplied many at a time. Pixels
without taps are cleared. Wins over im2col's mirror (GemmBwdRest) where the stride is large, since a part has
stride^ndim times fewer columns than the filter has taps, and where an image has few outputs. Any order of x and w.

Source: MIOpen, src/solver/conv/conv_hip_implicit_gemm_bwd_v4r1.cpp, which has kernels of its own for the products.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from hipfind.invokers.steps import WORKSPACE, ClearStep, GemmStep, Operand, PlainStep, Step
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import rules
from hipfind.solvers.gemm.base import GemmSolver
from hipfind.solvers.gemm.bwd_1x1_stride1 import GemmBwd1x1_stride1
from hipfind.solvers.gemm.bwd_1x1_stride2 import GemmBwd1x1_stride2
from hipfind.solvers.gemm.products import repeated
from hipfind.solvers.geometry import is_point_output, sizes_of
from hipfind.solvers.igemm.bwd_parts import (
    Family,
    Part,
    columns_step,
    families_of,
    filter_copy,
    has_last_channels,
    product,
    rows_copy,
)
from hipfind.solvers.igemm.v4r1 import axes_of
from hipfind.solvers.kernel_steps import copy_block_step
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.target import Target

_MOST_PARTS = 128
_HOST_COLUMNS, _GPU_COLUMNS = 2048, 1 << 16
"""Columns, pixels of all images together, that a product should have."""
_HOST_ROOM, _GPU_ROOM = 64 << 20, 1 << 30
"""Bytes for the columns and rows of the images that are multiplied at a time."""
_ALIGNMENT = 256
_ROW_BYTES = 16  # multiples that matrix cores load
_CACHE_BYTES = 1024  # addresses so far apart share few places of a CPU's nearest cache


class GemmBwdV4R1(GemmSolver):
    """Data gradient, any filter, stride, dilation and padding; 2D and 3D, groups, either layout of each tensor."""

    __slots__ = ()

    solver_id = "GemmBwdV4R1"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        answer = rules.common(target, problem, "bwd")
        if answer and is_point_output(problem):
            answer = no(Reason.SPECIALIZED, "GemmBwdRest")
        return (
            answer
            and rules.left_over(target, problem, GemmBwd1x1_stride1(), GemmBwd1x1_stride2())
            and _few_parts(problem)
            and rules.feasible(target, self.GetSolution(target, problem))
        )

    def GetWorkspaceSize(self, target: Target, problem: ConvProblem) -> int:
        return _room(target, problem).end

    def steps(self, target: Target, problem: ConvProblem) -> tuple[Step, ...]:
        room = _room(target, problem)
        images = room.images
        whole, rest = divmod(problem.n, images)
        blocks = repeated(whole, *_block(target, problem, room, 0, images))
        last = _block(target, problem, room, whole * images, rest) if rest else ()
        return (*_clear(problem, room), *_gather_filters(target, problem, room), *blocks, *last)


def _few_parts(problem: ConvProblem) -> Applicability:
    count = math.prod(len(axis.without_steps().joined_phases()) for axis in axes_of(problem))
    return APPLICABLE if count <= _MOST_PARTS else no(Reason.STRIDE, f"{count} products")


class _Room(NamedTuple):
    """Images at a time, and where things lie in the workspace, in bytes: each part's filter, the columns, the rows."""

    families: tuple[Family, ...]
    images: int
    filters: dict[Part, int]
    columns: int
    rows: int
    end: int


class _Matrices(NamedTuple):
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


def _room(target: Target, problem: ConvProblem) -> _Room:
    families, size = families_of(problem), problem.dtype.itemsize
    images = _images_at_a_time(target, problem, families)
    filters, end = {}, 0
    for part in (part for family in families for part in family.parts):
        filters[part] = end
        if filter_copy(problem, part).is_needed:
            end += _aligned(problem.k * part.taps * problem.c // problem.groups * part.repeats * size)
    columns = rows = 0
    for family in families:
        matrices = [_matrices(target, problem, family, part, images) for part in family.parts]
        columns = max(columns, *(_aligned(matrix.columns * size) for matrix in matrices))
        rows = max(rows, sum(matrix.rows for matrix in matrices) * size)
    return _Room(families, images, filters, end, end + columns, end + columns + rows)


def _images_at_a_time(target: Target, problem: ConvProblem, families: tuple[Family, ...]) -> int:
    """As many as make wide products within the room; divided evenly."""
    wanted, room = (_HOST_COLUMNS, _HOST_ROOM) if target.is_host else (_GPU_COLUMNS, _GPU_ROOM)
    pixels = elements = 1
    for family in families:
        most = max(part.pixels * part.taps for part in family.parts)
        rows = family.first.pixels * family.first.repeats * len(family.parts)
        pixels = max(pixels, family.first.pixels)
        elements = max(elements, problem.k * most + problem.c * rows)
    most = max(1, min(problem.n, -(-wanted // pixels), room // (elements * problem.dtype.itemsize)))
    return -(-problem.n // -(-problem.n // most))


def _matrices(target: Target, problem: ConvProblem, family: Family, part: Part, images: int) -> _Matrices:
    """Rows lie close together in x and y, at distances that suit the target in the workspace."""
    flat = images * part.pixels
    deep, across = problem.k * part.taps, problem.c * part.repeats
    columns, rows = (flat, deep), (flat, across)
    if not has_last_channels(problem):
        columns, rows = columns[::-1], rows[::-1]
    has_columns = part.takes_all_outputs and (has_last_channels(problem) or images == 1)
    has_rows = len(family.parts) == 1 and not rows_copy(problem, family, images, rows[1]).is_needed
    size = problem.dtype.itemsize
    return _Matrices(
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


def _clear(problem: ConvProblem, room: _Room) -> tuple[Step, ...]:
    """Zeros where some pixels have no taps."""
    reached = sum(family.first.pixels * family.first.repeats * len(family.parts) for family in room.families)
    return (ClearStep(Operand("x"), problem.x.nbytes),) if reached < sizes_of(problem).image else ()


def _gather_filters(target: Target, problem: ConvProblem, room: _Room) -> tuple[Step, ...]:
    steps = []
    for part, offset in room.filters.items():
        copy = filter_copy(problem, part)
        if copy.is_needed:
            source = Operand("w", copy.start * problem.dtype.itemsize)
            steps.append(copy_block_step(target, problem.dtype, copy.axes, source, Operand(WORKSPACE, offset)))
    return tuple(steps)


def _block(target: Target, problem: ConvProblem, room: _Room, first: int, images: int) -> tuple[PlainStep, ...]:
    """So many images from image ``first`` on; a loop around these steps moves on by a block's images."""
    sizes, size = sizes_of(problem), problem.dtype.itemsize
    x_bytes, y_bytes = sizes.x_image * size, sizes.y_image * size
    y = Operand("y", first * y_bytes, room.images * y_bytes)
    steps: list[PlainStep] = []
    for family in room.families:
        rows, pitch = room.rows, 0
        x_start = rows_copy(problem, family, 1, 1).start
        x = Operand("x", first * x_bytes + x_start * size, room.images * x_bytes)
        for part in family.parts:
            matrices = _matrices(target, problem, family, part, images)
            to = x if matrices.has_rows else Operand(WORKSPACE, rows)
            steps += _multiplied(target, problem, room, part, images, matrices, y, to)
            rows, pitch = rows + matrices.rows * size, matrices.rows_pitch
        if rows > room.rows:
            copy = rows_copy(problem, family, images, pitch)
            steps.append(copy_block_step(target, problem.dtype, copy.axes, Operand(WORKSPACE, room.rows), x))
    return tuple(steps)


def _multiplied(
    target: Target,
    problem: ConvProblem,
    room: _Room,
    part: Part,
    images: int,
    matrices: _Matrices,
    y: Operand,
    to: Operand,
) -> tuple[PlainStep, ...]:
    """A part's columns and its product."""
    taps = filter_copy(problem, part)
    w = Operand(WORKSPACE, room.filters[part]) if taps.is_needed else Operand("w", taps.start * problem.dtype.itemsize)
    columns = y if matrices.has_columns else Operand(WORKSPACE, room.columns)
    gather = columns_step(target, problem, part, images, matrices.columns_pitch, y, columns)
    a, b = (columns, w) if has_last_channels(problem) else (w, columns)
    gemm = product(problem, part, images, matrices.columns_pitch, matrices.rows_pitch)
    return (*(() if matrices.has_columns else (gather,)), GemmStep(gemm, a, b, to))
