"""UpsampleBwdWhole: scales that are one of a few whole numbers, or 1/2, with weights as constants of the kernel.

Where an axis has S outputs for each pixel, all windows are alike. A thread keeps sums of a few pixels of two rows in
registers and goes over the rows of dy that a strip looks at; it needs no tables, no shared memory and few instructions
for each element, so that memory is the limit. Where there are few pixels, groups of threads share the rows of large
windows. Halves are a copy. With align_corners for twice the size only: there the windows are the same, but not weights.

Source: the separable form of the adjoint, with the border as a mirror.
"""

from __future__ import annotations

from hipfind.invokers.solution import Solution
from hipfind.problem.upsample import UpsampleProblem
from hipfind.solvers.base import Solver
from hipfind.solvers.reasons import Applicability, Reason, no
from hipfind.solvers.upsample import rules
from hipfind.solvers.upsample.coordinates import is_scaled
from hipfind.solvers.upsample.planes import has_neighbouring_channels, has_neighbouring_columns
from hipfind.solvers.upsample.whole_steps import half_step, whole_step
from hipfind.target import Target

_SCALES = (2, 3, 4, 8, 16, 32)
_MOST_BYTES = 2**32 - 1
"""From a row to the next."""


class UpsampleBwdWhole(Solver[UpsampleProblem]):
    """Rows of pixels or channels that are neighbours in memory; any strides between rows, planes and images."""

    __slots__ = ()

    solver_id = "UpsampleBwdWhole"
    algorithm = "Direct"
    operation = "upsample"

    def IsApplicable(self, target: Target, problem: UpsampleProblem) -> Applicability:
        answer = rules.common(target, problem)
        if not answer:
            return answer
        if not _is_half(problem) and _scale(problem) == 0:
            h, w = (f"{axis.size} to {axis.out}" for axis in problem.axes)
            return no(Reason.SCALE, f"only scales of 1/2, {_SCALES} on both axes: {h} and {w}")
        if not (has_neighbouring_columns(problem) or has_neighbouring_channels(problem)):
            return rules.no_neighbours(problem)
        step = max(problem.y.strides[2], problem.x.strides[2]) * problem.dtype.itemsize
        if step > _MOST_BYTES:
            return no(Reason.TOO_LARGE, f"rows are {step} bytes apart")
        return rules.feasible(target, self.GetSolution(target, problem))

    def GetSolution(self, target: Target, problem: UpsampleProblem, config: None = None) -> Solution:
        scale = _scale(problem)
        step = whole_step(target, problem, scale) if scale else half_step(target, problem)
        return self.solution(target, problem, (step,))


def _is_half(problem: UpsampleProblem) -> bool:
    return all(is_scaled(axis, axis.out, 2 * axis.out) for axis in problem.axes)


def _scale(problem: UpsampleProblem) -> int:
    """Outputs for each pixel of both axes, 0 where there is no such number with a kernel."""
    scale = problem.axes[0].out // problem.axes[0].size
    if problem.align_corners:
        return 2 if all(axis.out == 2 * axis.size and axis.size > 1 for axis in problem.axes) else 0
    is_whole = all(is_scaled(axis, axis.size * scale, axis.size) for axis in problem.axes)
    return scale if is_whole and scale in _SCALES else 0
