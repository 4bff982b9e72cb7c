"""ConvTritonIgemmFwd: forward as an implicit matrix product over a channel-last x, by matrix cores.

Rows are output pixels, columns output channels, the sum runs over taps and channels; a step takes channels of one tap,
or both as one index where channels are few. Channel-first x is copied to channel-last first, w as well (it is small),
and y is written in its own layout. Padding,
dilation, stride, groups, 2D and 3D. Sizes are compiled in. Wins for windows that overlap.

Source: implicit GEMM as in cuDNN (arXiv:1410.0759).
"""

from __future__ import annotations

from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import rules
from hipfind.solvers.igemm import base
from hipfind.solvers.igemm.contract_fwd import ConvTritonContractFwd
from hipfind.solvers.igemm.gather import GatherSolver
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target


class ConvTritonIgemmFwd(GatherSolver):
    """Any forward convolution of packed tensors; half precision, fp32 where matrix cores take it."""

    __slots__ = ()

    solver_id = "ConvTritonIgemmFwd"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        answer = base.common(target, problem, "fwd") and base.left_over(target, problem, ConvTritonContractFwd())
        return answer and rules.feasible(target, self.GetSolution(target, problem))
