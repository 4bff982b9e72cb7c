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

from hipfind.invokers.steps import WORKSPACE, ClearStep, GemmStep, Operand, PlainStep, Step
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import rules
from hipfind.solvers.gemm.base import GemmSolver
from hipfind.solvers.gemm.bwd_1x1_stride1 import GemmBwd1x1_stride1
from hipfind.solvers.gemm.bwd_1x1_stride2 import GemmBwd1x1_stride2
from hipfind.solvers.gemm.products import repeated
from hipfind.solvers.geometry import is_point_output, sizes_of
from hipfind.solvers.igemm.bwd_parts import (
    Part,
    columns_step,
    filter_copy,
    has_last_channels,
    product,
    rows_copy,
)
from hipfind.solvers.igemm.bwd_room import Matrices, Room, matrices_of, room_of
from hipfind.solvers.igemm.v4r1 import axes_of
from hipfind.solvers.kernel_steps import copy_block_step
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.target import Target

_MOST_PARTS = 128


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
        return room_of(target, problem).end

    def steps(self, target: Target, problem: ConvProblem) -> tuple[Step, ...]:
        room = room_of(target, problem)
        images = room.images
        whole, rest = divmod(problem.n, images)
        blocks = repeated(whole, *_block(target, problem, room, 0, images))
        last = _block(target, problem, room, whole * images, rest) if rest else ()
        return (*_clear(problem, room), *_gather_filters(target, problem, room), *blocks, *last)


def _few_parts(problem: ConvProblem) -> Applicability:
    count = math.prod(len(axis.without_steps().joined_phases()) for axis in axes_of(problem))
    return APPLICABLE if count <= _MOST_PARTS else no(Reason.STRIDE, f"{count} products")


def _clear(problem: ConvProblem, room: Room) -> tuple[Step, ...]:
    """Zeros where some pixels have no taps."""
    reached = sum(family.first.pixels * family.first.repeats * len(family.parts) for family in room.families)
    return (ClearStep(Operand("x"), problem.x.nbytes),) if reached < sizes_of(problem).image else ()


def _gather_filters(target: Target, problem: ConvProblem, room: Room) -> tuple[Step, ...]:
    steps = []
    for part, offset in room.filters.items():
        copy = filter_copy(problem, part)
        if copy.is_needed:
            source = Operand("w", copy.start * problem.dtype.itemsize)
            steps.append(copy_block_step(target, problem.dtype, copy.axes, source, Operand(WORKSPACE, offset)))
    return tuple(steps)


def _block(target: Target, problem: ConvProblem, room: Room, first: int, images: int) -> tuple[PlainStep, ...]:
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
            matrices = matrices_of(target, problem, family, part, images)
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
    room: Room,
    part: Part,
    images: int,
    matrices: Matrices,
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
