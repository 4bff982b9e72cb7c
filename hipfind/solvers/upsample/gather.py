"""UpsampleBwdGather: every pixel of dx sums the window of dy that reads it; no atomics, any strides.

A thread goes down a column of dx: it sums each row's window once, adds it to the two pixels that it belongs to, and
writes a pixel when it is complete. Where channels are neighbours a thread takes several, and its neighbours the next.
The fallback: whatever the strides, tensors that lie differently, or dy that is an expanded scalar.

Source: the gather of pytorch PR #164572, with exact windows and their row sums used twice.
"""

from __future__ import annotations

from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import KernelStep, Operand
from hipfind.kernels.spec import KernelSpec
from hipfind.problem.upsample import UpsampleProblem
from hipfind.solvers.base import Solver
from hipfind.solvers.reasons import Applicability
from hipfind.solvers.upsample import rules
from hipfind.solvers.upsample.coordinates import coordinates
from hipfind.solvers.upsample.planes import (
    Planes,
    has_neighbouring_channels,
    has_neighbouring_columns,
    planes_of,
)
from hipfind.solvers.upsample.tables import tables_of
from hipfind.target import Target

_LINE_BYTES = 16
_MOST_PIXELS = 16
"""Pixels of a column that a thread takes at most: what it reads twice is one pixel's share of dy."""
_THREADS_PER_UNIT = 1024
_CACHE_SPEED = 6
"""How many times faster than its memory a GPU's nearest caches are."""


class UpsampleBwdGather(Solver[UpsampleProblem]):
    """Any strides."""

    __slots__ = ()

    solver_id = "UpsampleBwdGather"
    algorithm = "Direct"
    operation = "upsample"

    def IsApplicable(self, target: Target, problem: UpsampleProblem) -> Applicability:
        return rules.common(target, problem) and rules.feasible(target, self.GetSolution(target, problem))

    def GetWorkspaceSize(self, target: Target, problem: UpsampleProblem) -> int:
        return tables_of(problem).nbytes

    def GetSolution(self, target: Target, problem: UpsampleProblem, config: None = None) -> Solution:
        return self.solution(target, problem, (tables_of(problem).step, _gather_step(target, problem)))


def _gather_step(target: Target, problem: UpsampleProblem) -> KernelStep:
    tables = tables_of(problem)
    h, w = (coordinates(axis) for axis in problem.axes)
    planes, pack = _planes(problem)
    packs = planes.inner // pack
    columns = planes.total * w.size * packs
    segment = _segment(target, h.size, columns)
    segments = -(-h.size // segment)
    defines = (("ELEM", problem.dtype.value), ("PACK", str(pack)), ("TAPS", str(rules.taps_of(w))))
    params = (
        h.size, w.size, h.out, *planes.y, *planes.x, planes.per_image, packs, segment, segments,
        int(planes.y.are_multiples(pack)), int(planes.x.are_multiples(pack)),
    )  # fmt: skip
    # Neighbouring threads of single columns are a scale apart: the nearest cache hands out a line for each of them.
    spread = 1.0 if target.is_host or planes.inner > 1 else max(2 * w.out / w.size / _CACHE_SPEED, 1.0)
    read = problem.y.nbytes * h.span(segment) * segments / h.out * spread
    return KernelStep(
        KernelSpec("upsample_gather.hip", "upsample_gather", defines),
        (Operand("dy"), Operand("dx"), tables.weights, tables.bounds),
        params,
        items=columns * segments,
        flops=8 * (problem.y.elements + problem.x.elements),
        bytes=int(read) + problem.x.nbytes,
        efficiency=0.025 if target.is_host else 0.1 if planes.inner > 1 else 0.06,
    )


def _planes(problem: UpsampleProblem) -> tuple[Planes, int]:
    """Planes, and the neighbouring elements that a thread takes."""
    if has_neighbouring_channels(problem) and not has_neighbouring_columns(problem):
        return planes_of(problem, problem.c), rules.pack_of(problem.c, _LINE_BYTES // problem.dtype.itemsize)
    return planes_of(problem), 1


def _segment(target: Target, height: int, columns: int) -> int:
    """Pixels of a column for one thread: few where there would be too few threads."""
    wanted = -(-target.compute_units * (1 if target.is_host else _THREADS_PER_UNIT) // columns)
    segment = min(max(height // wanted, 1), _MOST_PIXELS)
    return -(-height // -(-height // segment))
