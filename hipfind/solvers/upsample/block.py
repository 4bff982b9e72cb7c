"""UpsampleBwdBlock: tiles of dx by groups of threads that share sums.

Each group sums the windows of a tile of dx over rows of dy, whole lines of neighbouring elements at a time, then these
sums over columns: every element of dy is loaded in long runs, nearly once, and multiplied by two weights instead of
four. Tables of weights are made once a tile and serve all planes of the group. Where dx has few pixels, their windows
are cut into chunks for more groups, and a second kernel adds up the partial sums. No atomics, always in one order.

Source: the separable form of the adjoint; made for memory speed on GPUs, and the same source is quick on a CPU.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import WORKSPACE, KernelStep, Operand, Step
from hipfind.kernels.spec import BLOCK, KernelSpec
from hipfind.problem.upsample import UpsampleProblem
from hipfind.solvers.base import Solver
from hipfind.solvers.reasons import Applicability, Reason, no
from hipfind.solvers.upsample import rules
from hipfind.solvers.upsample.coordinates import Coordinates, coordinates
from hipfind.solvers.upsample.planes import Planes, has_neighbouring_channels, has_neighbouring_columns, planes_of
from hipfind.solvers.upsample.sums import sum_bytes, sum_step
from hipfind.solvers.upsample.tiling import LEAST_COLUMNS, Room, Tiling, room_of, tiling_of
from hipfind.target import Target

_PIXEL_BYTES = 64
"""Neighbouring channels that a plane takes: what memory hands out at once, or less where windows are so wide that a
tile would have few rows."""
_LEAST_ROWS = 4


class UpsampleBwdBlock(Solver[UpsampleProblem]):
    """Rows of pixels or channels that are neighbours in memory; any strides between rows, planes and images."""

    __slots__ = ()

    solver_id = "UpsampleBwdBlock"
    algorithm = "Direct"
    operation = "upsample"

    def IsApplicable(self, target: Target, problem: UpsampleProblem) -> Applicability:
        answer = rules.common(target, problem)
        if not answer:
            return answer
        inner = _inner(target, problem)
        if inner == 0:
            return rules.no_neighbours(problem)
        room = room_of(target, problem.dtype)
        if inner * (_alignment(target, room, inner) + 1) > room.sums:
            return no(Reason.TOO_LARGE, f"{inner} channels of a pixel do not fit shared memory")
        return rules.feasible(target, self.GetSolution(target, problem))

    def GetWorkspaceSize(self, target: Target, problem: UpsampleProblem) -> int:
        chunks = _layout(target, problem).tiling.chunks
        return 0 if chunks == 1 else chunks * problem.x.elements * sum_bytes(problem.dtype)

    def GetSolution(self, target: Target, problem: UpsampleProblem, config: None = None) -> Solution:
        layout = _layout(target, problem)
        if layout.tiling.chunks == 1:
            return self.solution(target, problem, (_block_step(target, problem, layout, Operand("dx")),))
        partials = Operand(WORKSPACE)
        steps: tuple[Step, ...] = (
            _block_step(target, problem, layout, partials),
            sum_step(problem, layout.planes, partials, layout.tiling.chunks),
        )
        return self.solution(target, problem, steps)


class _Layout(NamedTuple):
    """All that decides what the kernel does."""

    room: Room
    h: Coordinates
    w: Coordinates
    planes: Planes
    pack: int
    alignment: int
    tiling: Tiling


def _layout(target: Target, problem: UpsampleProblem) -> _Layout:
    room = room_of(target, problem.dtype)
    h, w = (coordinates(axis) for axis in problem.axes)
    planes = planes_of(problem, _inner(target, problem))
    alignment = _alignment(target, room, planes.inner)
    pack = 1 if target.is_host else rules.pack_of(planes.inner, room.line)
    return _Layout(room, h, w, planes, pack, alignment, tiling_of(target, room, h, w, planes, pack, alignment))


def _inner(target: Target, problem: UpsampleProblem) -> int:
    """Channels in a pixel of a plane: 1 where rows of pixels are contiguous, 0 where neither these nor channels are."""
    if has_neighbouring_columns(problem):
        return 1
    if not has_neighbouring_channels(problem):
        return 0
    is_flat = planes_of(problem, problem.c).is_flat
    if target.is_host:
        return problem.c
    room = room_of(target, problem.dtype)
    few_rows = room.sums // (_LEAST_ROWS * coordinates(problem.axes[1]).span(LEAST_COLUMNS))
    most = max(min(_PIXEL_BYTES // problem.dtype.itemsize, few_rows), room.line)
    shares = [share for share in range(room.line, most + 1, room.line) if problem.c % share == 0]
    return shares[-1] if shares else problem.c if is_flat else 0


def _alignment(target: Target, room: Room, inner: int) -> int:
    """Of a tile's first column of dy, so that a GPU can load its lines at once."""
    return room.line // math.gcd(room.line, inner) if room.line else 1


def _is_wide(target: Target, planes: Planes, line: int) -> bool:
    """Whether all lines of dy are aligned if dy is: a tile's first column is chosen so."""
    steps = planes.y._replace(pixel=0) if planes.is_flat else planes.y
    return target.is_host or steps.are_multiples(line)


def _block_step(target: Target, problem: UpsampleProblem, layout: _Layout, sums: Operand) -> KernelStep:
    room, h, w, planes, pack, alignment, tiling = layout
    taps = rules.taps_of(w)
    members = 1 if target.is_host else BLOCK
    defines = (
        ("ELEM", problem.dtype.value), ("TAPS", str(taps)), ("PACK", str(pack)), *room.defines,
        ("HF_GROUP", str(members)),
    )  # fmt: skip
    params = (
        *h, *w, *planes.y, *planes.x, planes.per_image, planes.inner, planes.total, tiling.planes_per_group,
        tiling.tile_h, tiling.tile_w, tiling.chunks_h, tiling.chunks_w, tiling.parts_h, tiling.parts_w,
        tiling.row_groups, alignment, int(_is_wide(target, planes, room.line)), int(planes.x.are_multiples(pack)),
    )  # fmt: skip
    again = (1 + 1 / tiling.tile_h) * (1 + 1 / tiling.tile_w)
    size = sum_bytes(problem.dtype) * tiling.chunks if tiling.chunks > 1 else problem.dtype.itemsize
    return KernelStep(
        KernelSpec("upsample_block.hip", "upsample_block", defines),
        (Operand("dy"), Operand("dx"), sums),
        params,
        items=tiling.groups * members,
        flops=4 * problem.y.elements + 8 * problem.x.elements,
        bytes=int(problem.y.nbytes * again) + problem.x.elements * size,
        efficiency=0.1 if target.is_host else 0.06 if taps == 0 and planes.inner == 1 else 0.025,
    )
