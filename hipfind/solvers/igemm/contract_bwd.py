"""ConvTritonContractBwd: backward data where windows tile the image, as one matrix product into dx as it lies.

Point output, patches (stride == filter, nothing left over) and 1x1 filters with stride 1: every element of dx belongs
to one window, so it is one row of dy times one column of w, written once in place, in either layout, 2D and 3D, with
groups. No columns in a workspace, no scatter, nothing cleared.

Source: implicit GEMM as in CUTLASS (arXiv:1410.0759), with the filter's row as one index.
"""

from __future__ import annotations

from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import rules
from hipfind.solvers.igemm import base
from hipfind.solvers.igemm.contract import ContractSolver
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.target import Target


class ConvTritonContractBwd(ContractSolver):
    """Backward data where windows tile the image.

    Packed, any layouts; half precision, fp32 where matrix cores take it.
    """

    __slots__ = ()

    solver_id = "ConvTritonContractBwd"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        answer = base.common(target, problem, "bwd") and base.no_padding(problem) and _windows_tile(problem)
        return answer and rules.feasible(target, self.GetSolution(target, problem))


def _windows_tile(problem: ConvProblem) -> Applicability:
    """Every pixel of x is in exactly one window. A window that never moves may have any stride."""
    for image, taps, outputs, step in zip(
        problem.in_spatial, problem.filter, problem.out_spatial, problem.stride, strict=True
    ):
        if image != taps * outputs or (outputs > 1 and step != taps):
            return no(Reason.STRIDE, f"windows of {taps} in {image} pixels, {step} apart, do not tile them")
    if any(taps > 1 and step > 1 for taps, step in zip(problem.filter, problem.dilation, strict=True)):
        return no(Reason.DILATION, "x".join(map(str, problem.dilation)))
    return APPLICABLE
