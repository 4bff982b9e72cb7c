"""ConvTritonContractFwd: forward without padding as one matrix product on x as it lies, by matrix cores.

Point output, patches (stride == filter), 1x1 filters with any stride, and any other window without padding: rows are
output pixels, the sum runs over a filter's row in the order of w's memory, in either layout, 2D and 3D, with groups.
Extents and strides are compiled in, so runs of neighbours are loaded as wide as their true alignment allows (588 values
of bf16 a row: 8 bytes), where vendor BLAS falls back to single elements. Wins where vendor BLAS needs a copy.

Source: implicit GEMM as in CUTLASS (arXiv:1410.0759), with the filter's row as one index.
"""

from __future__ import annotations

from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import rules
from hipfind.solvers.igemm import base
from hipfind.solvers.igemm.contract import ContractSolver
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target


class ConvTritonContractFwd(ContractSolver):
    """Forward without padding; packed tensors of any layouts; half precision, fp32 where matrix cores take it."""

    __slots__ = ()

    solver_id = "ConvTritonContractFwd"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        answer = base.common(target, problem, "fwd") and base.no_padding(problem)
        return answer and rules.feasible(target, self.GetSolution(target, problem))
