"""ConvTritonContractWrw: weight gradient without padding as one matrix product on x as it lies, by matrix cores.

dw[k, row] = sum over output pixels of dy[pixel, k] x[pixel, row], in either layout, 2D and 3D, with groups. The sum is
long and dw small, so it is cut into parts (split-K), which are added in fixed order: deterministic, in fp32.

Source: implicit GEMM as in CUTLASS (arXiv:1410.0759), with the filter's row as one index; split-K as in Stream-K
(arXiv:2301.03598), with parts of equal length.
"""

from __future__ import annotations

from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import rules
from hipfind.solvers.igemm import base
from hipfind.solvers.igemm.contract import ContractSolver
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target


class ConvTritonContractWrw(ContractSolver):
    """Weight gradient without padding; packed, any layouts; half precision, fp32 where matrix cores take it."""

    __slots__ = ()

    solver_id = "ConvTritonContractWrw"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        answer = base.common(target, problem, "wrw") and base.no_padding(problem)
        return answer and rules.feasible(target, self.GetSolution(target, problem))
