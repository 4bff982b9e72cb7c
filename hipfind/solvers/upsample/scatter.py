"""UpsampleBwdScatter: every element of dy is added to the four pixels that it reads, atomically on GPUs.

What torch does, as the baseline that the gain of the others is measured against; 16-bit types are summed in fp32. On
the host a thread scatters whole planes, so there its sums have one order.

Source: torch's upsample_bilinear2d_backward.
"""

from __future__ import annotations

from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import WORKSPACE, ClearStep, KernelStep, Operand, Step
from hipfind.kernels.spec import KernelSpec
from hipfind.problem.upsample import UpsampleProblem
from hipfind.solvers.base import Solver
from hipfind.solvers.reasons import Applicability, Reason, no
from hipfind.solvers.upsample import rules
from hipfind.solvers.upsample.coordinates import coordinates
from hipfind.solvers.upsample.planes import Planes, has_neighbouring_channels, has_neighbouring_columns, planes_of
from hipfind.solvers.upsample.sums import steps_of_sums, sum_bytes, sum_step
from hipfind.target import Target

_ATOMIC_BYTES = 8
"""Memory traffic that an atomic addition is worth, alone at its address; neighbours at one address take turns."""


class UpsampleBwdScatter(Solver[UpsampleProblem]):
    """Any strides; not where a GPU has to be deterministic."""

    __slots__ = ()

    solver_id = "UpsampleBwdScatter"
    algorithm = "Direct"
    operation = "upsample"

    def IsApplicable(self, target: Target, problem: UpsampleProblem) -> Applicability:
        answer = rules.common(target, problem)
        if answer and problem.deterministic and not target.is_host:
            return no(Reason.DETERMINISTIC, "atomic additions have no fixed order")
        return answer and rules.feasible(target, self.GetSolution(target, problem))

    def GetWorkspaceSize(self, target: Target, problem: UpsampleProblem) -> int:
        return 0 if _is_direct(problem) else problem.x.elements * sum_bytes(problem.dtype)

    def GetSolution(self, target: Target, problem: UpsampleProblem, config: None = None) -> Solution:
        planes = _planes(target, problem)
        steps: tuple[Step, ...]
        if _is_direct(problem):
            sums = Operand("dx")
            steps = (ClearStep(sums, problem.x.nbytes), _scatter_step(target, problem, planes, sums))
        else:
            sums = Operand(WORKSPACE)
            steps = (
                ClearStep(sums, self.GetWorkspaceSize(target, problem)),
                _scatter_step(target, problem, planes, sums),
                sum_step(problem, planes, sums),
            )
        return self.solution(target, problem, steps)


def _is_direct(problem: UpsampleProblem) -> bool:
    """Sums can be kept in dx: it has their type, and no gaps that must not be cleared."""
    return sum_bytes(problem.dtype) == problem.dtype.itemsize and bool(problem.x.layouts())


def _planes(target: Target, problem: UpsampleProblem) -> Planes:
    """As dy lies, so that neighbouring threads read neighbouring elements."""
    by_pixel = has_neighbouring_channels(problem) and not has_neighbouring_columns(problem)
    return planes_of(problem, problem.c if by_pixel else 1)


def _scatter_step(target: Target, problem: UpsampleProblem, planes: Planes, sums: Operand) -> KernelStep:
    h, w = (coordinates(axis) for axis in problem.axes)
    steps = planes.x if _is_direct(problem) else steps_of_sums(problem, planes)
    params = (*h, *w, *planes.y, *steps, planes.per_image, planes.inner, int(target.is_host))
    turns = 1 if target.is_host or planes.inner > 1 else min(max(w.out // w.size, 1), target.wave_size)
    return KernelStep(
        KernelSpec("upsample_scatter.hip", "upsample_scatter", (("ELEM", problem.dtype.value),)),
        (Operand("dy"), sums),
        params,
        items=planes.total * planes.inner * (1 if target.is_host else h.out * w.out),
        flops=problem.flops,
        bytes=problem.y.nbytes + 4 * problem.y.elements * _ATOMIC_BYTES * turns,
        efficiency=0.02 if target.is_host else 0.5,
    )
