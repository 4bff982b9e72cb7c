"""The kernels of UpsampleBwdWhole: which one serves a problem, how it is cut for threads and groups."""

from __future__ import annotations

from typing import NamedTuple

from hipfind.invokers.steps import KernelStep, Operand
from hipfind.kernels.spec import BLOCK, KernelSpec
from hipfind.problem.dtypes import DType
from hipfind.problem.upsample import UpsampleProblem
from hipfind.solvers.upsample import rules
from hipfind.solvers.upsample.planes import Planes, has_neighbouring_channels, has_neighbouring_columns, planes_of
from hipfind.target import Target

_LINE_BYTES = 16
_THREADS_PER_UNIT = 1536
_ROWS = (16, 8, 4)
"""Pixel rows of a strip, in order of preference; one more is read than there are."""
_FEW_PIXELS_PER_UNIT = 128
"""Elements of dx: with fewer, threads would have too many rows of dy each."""
_TILES = (16, 8, 4, 2, 1)
"""Pixels of a group, in order of preference: the more, the fewer columns are read twice."""
_GROUPS_PER_UNIT = 1.5
_FEW_SINGLES = 32
"""Channels of a pixel that are a constant of the kernel where they are read one by one: more of the time is theirs."""
_FEW_CHANNELS = 4
"""That a thread takes of wide windows on RDNA, whose compiler reads all of them first, into too many registers else."""
_REGISTERS = (("HF_BLOCKS", "2"),)
"""More of them for a thread, where it keeps more than usual."""


def whole_step(target: Target, problem: UpsampleProblem, scale: int) -> KernelStep:
    """The launch for ``scale`` outputs a pixel on both axes: by groups where there are few pixels, else by strips."""
    tile = _tile(target, problem, scale)
    return _strip_step(target, problem, scale) if tile is None else _group_step(problem, scale, tile)


class _Form(NamedTuple):
    """How threads see the tensors: channels or columns that are neighbours, ``line`` of them at once."""

    planes: Planes
    is_last: bool
    line: int


def _form(problem: UpsampleProblem) -> _Form:
    line = _LINE_BYTES // problem.dtype.itemsize
    if has_neighbouring_channels(problem) and not has_neighbouring_columns(problem):
        return _Form(planes_of(problem, problem.c), True, rules.pack_of(problem.c, line))
    return _Form(planes_of(problem), False, line)


def _strip_step(target: Target, problem: UpsampleProblem, scale: int) -> KernelStep:
    planes, is_last, line = _form(problem)
    height, width = problem.x.lengths[2:]
    defines = [("ELEM", problem.dtype.value), ("SH", str(scale)), ("SW", str(scale))]
    if is_last:
        if target.vendor == "amd" and target.wave_size == 32 and scale >= 16:
            line = min(line, _FEW_CHANNELS)
        columns = rules.pack_of(width, 2 if line > 1 and scale < 8 else 4 if line == 1 and scale <= 8 else 1)
        packs, source, rows_at_once = problem.c // line, "upsample_whole_last", 1
        pixel = problem.c if line == 1 and planes.is_flat and problem.c <= _FEW_SINGLES else 0
        defines += [("PACK", str(line)), ("PIXEL", str(pixel))]
        wide_dx = planes.x.are_multiples(line)
    else:
        columns = rules.pack_of(width, max(line // scale, 1))
        packs, source, rows_at_once = 1, "upsample_whole_first", 1 if scale % 2 else 2
        line = _power_of_two(scale * columns, line)
        defines += [("LINE", str(line)), ("SIDE", str(_power_of_two(scale // 2, line)))]
        wide_dx = planes.x.pixel == 1 and planes.x._replace(pixel=0).are_multiples(columns)
    defines += [("COLUMNS", str(columns)), ("ROWS", str(rows_at_once)), ("CORNERS", str(int(problem.align_corners)))]
    if scale >= 16 or problem.dtype is DType.FP64 or (is_last and columns * line >= 16):
        defines += _REGISTERS
    wide_dy = (planes.y if is_last else planes.y._replace(pixel=0)).are_multiples(line)
    items = planes.total * (width // columns) * packs
    rows = _strip(target, height, items)
    strips = -(-height // rows)
    return KernelStep(
        KernelSpec(f"{source}.hip", source, tuple(defines)),
        (Operand("dy"), Operand("dx")),
        (
            height, width, *planes.y, *planes.x, planes.per_image, packs, rows, strips, int(wide_dy), int(wide_dx)
        ),
        items=items * strips,
        flops=4 * problem.y.elements,
        bytes=problem.min_bytes,  # two strips read the rows that both look at at nearly the same time: once from memory
        efficiency=0.025 if target.is_host else 0.2,
    )  # fmt: skip


class _Tile(NamedTuple):
    """Pixels of a group; members that share a line's rows, and a window's columns; groups of the launch."""

    planes: Planes
    columns: int
    parts: int
    parts_w: int
    groups: int


def _tile(target: Target, problem: UpsampleProblem, scale: int) -> _Tile | None:
    """Tiles for groups that share windows: where there are few pixels, and windows of whole lines. None elsewhere."""
    line = _LINE_BYTES // problem.dtype.itemsize
    height, width = problem.x.lengths[2:]
    planes = planes_of(problem, 1 if has_neighbouring_columns(problem) else problem.c)
    is_fit = not (target.is_host or problem.align_corners) and scale >= 2 * line and planes.is_flat
    if not is_fit or problem.x.elements > target.compute_units * _FEW_PIXELS_PER_UNIT:
        return None
    for columns in _TILES:
        lines, groups = (columns + 1) * scale * planes.inner // line, planes.total * height * -(-width // columns)
        outputs = columns * planes.inner
        if (columns <= width and lines <= BLOCK and outputs <= BLOCK) and (
            groups >= target.compute_units * _GROUPS_PER_UNIT or columns == 1
        ):
            parts_w = 1 << min(BLOCK // outputs, scale).bit_length() - 1
            return _Tile(planes, columns, BLOCK // lines, parts_w, groups)
    return None


def _group_step(problem: UpsampleProblem, scale: int, tile: _Tile) -> KernelStep:
    line = _LINE_BYTES // problem.dtype.itemsize
    planes, columns, parts, parts_w, groups = tile
    wide = planes.y._replace(pixel=0).are_multiples(line)
    defines = (
        ("ELEM", problem.dtype.value), ("SH", str(scale)), ("LINE", str(line)), ("HF_GROUP", str(BLOCK))
    )  # fmt: skip
    return KernelStep(
        KernelSpec("upsample_whole_group.hip", "upsample_whole_group", defines),
        (Operand("dy"), Operand("dx")),
        (
            *problem.x.lengths[2:], *planes.y, *planes.x, planes.per_image, planes.inner, columns, parts, parts_w,
            int(wide),
        ),
        items=groups * BLOCK,
        flops=4 * problem.y.elements,
        bytes=int(problem.y.nbytes * (1 + 1 / columns)) + problem.x.nbytes,
        efficiency=0.2,
    )  # fmt: skip


def half_step(target: Target, problem: UpsampleProblem) -> KernelStep:
    """The launch for half the pixels of both axes."""
    planes, is_last, line = _form(problem)
    height, width = problem.y.lengths[2:]
    if is_last:
        out_line, packs, lines = line, problem.c // line, width * problem.c // line
        wide_dy, wide_dx = planes.y.are_multiples(line), planes.x.are_multiples(line)
    else:
        is_packed = planes.x.pixel == 1
        line = rules.pack_of(width, line // 2) if is_packed else 1
        out_line, packs, lines = 2 * line if is_packed else 1, 1, width // line
        wide_dy = planes.y._replace(pixel=0).are_multiples(line)
        wide_dx = planes.x._replace(pixel=0).are_multiples(out_line)
    defines = (("ELEM", problem.dtype.value), ("LINE", str(line)), ("OUT_LINE", str(out_line)))
    items = planes.total * height * lines
    return KernelStep(
        KernelSpec("upsample_half.hip", "upsample_half", defines),
        (Operand("dy"), Operand("dx")),
        (height, lines, *planes.y, *planes.x, planes.per_image, packs, int(wide_dy), int(wide_dx)),
        items=items,
        flops=problem.y.elements,
        bytes=problem.min_bytes,
        efficiency=0.025 if target.is_host else 0.2,
    )


def _power_of_two(number: int, most: int) -> int:
    """The largest one up to ``most`` that divides a number; 1 for 0."""
    return min(number & -number, most) if number else 1


def _strip(target: Target, height: int, items: int) -> int:
    """Pixel rows of a strip, with which there are threads enough for all of the device."""
    wanted = target.compute_units * (1 if target.is_host else _THREADS_PER_UNIT)
    return next((rows for rows in _ROWS if items * -(-height // rows) >= wanted), _ROWS[-1])
