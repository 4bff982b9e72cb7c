"""UpsampleFwdDirect: every element of y from the four pixels around its source, one element a thread.

The fallback of the forward pass: whatever the strides, also of tensors that lie differently. It reads each pixel as
often as outputs need it and divides for each element, so it wins nowhere that rows or channels are neighbours.

Source: torch's upsample_bilinear2d, with exact coordinates.
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
from hipfind.solvers.upsample.planes import has_neighbouring_channels, has_neighbouring_columns, planes_of
from hipfind.target import Target


class UpsampleFwdDirect(Solver[UpsampleProblem]):
    """Any strides."""

    __slots__ = ()

    solver_id = "UpsampleFwdDirect"
    algorithm = "Direct"
    operation = "upsample"

    def IsApplicable(self, target: Target, problem: UpsampleProblem) -> Applicability:
        return rules.common(target, problem, "fwd") and rules.feasible(target, self.GetSolution(target, problem))

    def GetSolution(self, target: Target, problem: UpsampleProblem, config: None = None) -> Solution:
        are_channels = has_neighbouring_channels(problem) and not has_neighbouring_columns(problem)
        planes = planes_of(problem, problem.c if are_channels else 1)
        h, w = (coordinates(axis) for axis in problem.axes)
        step = KernelStep(
            KernelSpec("upsample_fwd_direct.hip", "upsample_fwd_direct", (("ELEM", problem.dtype.value),)),
            (Operand("x"), Operand("y")),
            (*h, *w, *planes.x, *planes.y, planes.per_image, planes.inner),
            items=problem.y.elements,
            flops=problem.flops,
            bytes=problem.min_bytes,
            efficiency=0.006 if target.is_host else 0.04,
        )
        return self.solution(target, problem, (step,))
