"""UpsampleBwdSeparable: two passes, over rows of dy into a workspace of fp32 sums, then over their columns.

The first pass reads dy in whole lines, and each row once for the two pixel rows that it belongs to; what it writes is
smaller than dy by the scale of the height. Wins where that is large; no atomics, always in one order.

Source: the separable form of the adjoint.
"""

from __future__ import annotations

from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import WORKSPACE, KernelStep, Operand
from hipfind.kernels.spec import KernelSpec
from hipfind.problem.upsample import UpsampleProblem
from hipfind.solvers.base import Solver
from hipfind.solvers.reasons import Applicability, Reason, no
from hipfind.solvers.upsample import rules
from hipfind.solvers.upsample.coordinates import coordinates
from hipfind.solvers.upsample.planes import (
    Planes,
    has_neighbouring_channels,
    has_neighbouring_columns,
    planes_of,
)
from hipfind.solvers.upsample.sums import sum_bytes
from hipfind.solvers.upsample.tables import tables_of
from hipfind.target import Target

_LINE_BYTES = 16
_HOST_LINE = 16
_MOST_ROWS = 8
"""Rows of dx that a thread takes at most: what it reads twice is one row's share of dy."""
_THREADS_PER_UNIT = 1024


class UpsampleBwdSeparable(Solver[UpsampleProblem]):
    """Rows of dy whose elements are neighbours; any strides of dx, but for neighbouring channels where dy has them."""

    __slots__ = ()

    solver_id = "UpsampleBwdSeparable"
    algorithm = "Direct"
    operation = "upsample"

    def IsApplicable(self, target: Target, problem: UpsampleProblem) -> Applicability:
        answer = rules.common(target, problem)
        if answer and _planes(problem) is None:
            return no(Reason.LAYOUT, f"rows of dy are not contiguous: strides {problem.y.strides}")
        return answer and rules.feasible(target, self.GetSolution(target, problem))

    def GetWorkspaceSize(self, target: Target, problem: UpsampleProblem) -> int:
        planes = _planes(problem) or planes_of(problem)
        rows = planes.total * problem.x.lengths[2]
        return tables_of(problem).nbytes + rows * _pitch(target, problem, planes) * sum_bytes(problem.dtype)

    def GetSolution(self, target: Target, problem: UpsampleProblem, config: None = None) -> Solution:
        planes = _planes(problem) or planes_of(problem)
        steps = (
            tables_of(problem).step,
            _row_step(target, problem, planes),
            _column_step(target, problem, planes),
        )
        return self.solution(target, problem, steps)


def _planes(problem: UpsampleProblem) -> Planes | None:
    """Planes with contiguous rows of dy, None where it has none."""
    if has_neighbouring_columns(problem):
        return planes_of(problem)
    planes = planes_of(problem, problem.c) if has_neighbouring_channels(problem) else None
    return planes if planes is not None and planes.is_flat else None


def _line(target: Target, problem: UpsampleProblem) -> int:
    return _HOST_LINE if target.is_host else _LINE_BYTES // problem.dtype.itemsize


def _pitch(target: Target, problem: UpsampleProblem, planes: Planes) -> int:
    """Elements of a row of sums, in whole lines."""
    line = _line(target, problem)
    return -(-problem.y.lengths[3] * planes.inner // line) * line


def _row_step(target: Target, problem: UpsampleProblem, planes: Planes) -> KernelStep:
    tables, line, pitch = tables_of(problem), _line(target, problem), _pitch(target, problem, planes)
    h, _ = (coordinates(axis) for axis in problem.axes)
    lines = pitch // line
    wanted = -(-target.compute_units * (1 if target.is_host else _THREADS_PER_UNIT) // (planes.total * lines))
    segment = min(max(h.size // wanted, 1), _MOST_ROWS)
    segments = -(-h.size // segment)
    wide = planes.y._replace(pixel=0).are_multiples(line)
    params = (
        h.size, problem.y.lengths[3] * planes.inner, *planes.y, planes.per_image, pitch, lines, segment, segments,
        int(wide),
    )  # fmt: skip
    sums = planes.total * h.size * pitch * sum_bytes(problem.dtype)
    return KernelStep(
        KernelSpec("upsample_separable.hip", "upsample_rows", _defines(target, problem, planes)),
        (Operand("dy"), Operand(WORKSPACE, tables.nbytes), tables.weights, tables.bounds),
        params,
        items=planes.total * segments * lines,
        flops=4 * problem.y.elements,
        bytes=int(problem.y.nbytes * h.span(segment) * segments / h.out) + sums,
        efficiency=0.025 if target.is_host else 0.1,
    )


def _column_step(target: Target, problem: UpsampleProblem, planes: Planes) -> KernelStep:
    tables, pitch, pack = tables_of(problem), _pitch(target, problem, planes), _pack(problem, planes)
    height, width = problem.x.lengths[2:]
    packs = planes.inner // pack
    params = (
        height, width, problem.y.lengths[2], *planes.x, planes.per_image, planes.inner, packs, pitch,
        int(planes.x.are_multiples(pack)),
    )  # fmt: skip
    sums = planes.total * height * pitch
    return KernelStep(
        KernelSpec("upsample_separable.hip", "upsample_columns", _defines(target, problem, planes)),
        (Operand(WORKSPACE, tables.nbytes), Operand("dx"), tables.weights, tables.bounds),
        params,
        items=planes.total * height * width * packs,
        flops=4 * sums + 8 * problem.x.elements,
        bytes=sums * sum_bytes(problem.dtype) + problem.x.nbytes,
        efficiency=0.025 if target.is_host else 0.02,
    )


def _pack(problem: UpsampleProblem, planes: Planes) -> int:
    return rules.pack_of(planes.inner, _LINE_BYTES // problem.dtype.itemsize)


def _defines(target: Target, problem: UpsampleProblem, planes: Planes) -> tuple[tuple[str, str], ...]:
    """The same for both passes, so that they are compiled together."""
    return (
        ("ELEM", problem.dtype.value),
        ("LINE", str(_line(target, problem))),
        ("PACK", str(_pack(problem, planes))),
    )
