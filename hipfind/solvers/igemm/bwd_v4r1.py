"""ConvTritonIgemmBwdV4R1: backward data by the v4r1 decomposition, static: all sizes are compiled in.

The pixels of dx that are a stride apart share their taps (see v4r1.py): a phase. Each phase is a product of its
pixels by input channels, summed over its taps and the output channels; all phases run in one launch, which writes
every element of dx once, zeros included. Channel-first dy is copied to channel-last first, w as well (it is small).
Padding, dilation, stride, groups, 2D and 3D.

Source: MIOpen's ConvHipImplicitGemmBwdDataV4R1, with its phases in one launch.
"""

from __future__ import annotations

from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import rules
from hipfind.solvers.igemm import base
from hipfind.solvers.igemm.contract_bwd import ConvTritonContractBwd
from hipfind.solvers.igemm.gather import GatherSolver
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target


class ConvTritonIgemmBwdV4R1(GatherSolver):
    """Any data gradient of packed tensors; half precision, fp32 where matrix cores take it."""

    __slots__ = ()

    solver_id = "ConvTritonIgemmBwdV4R1"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        answer = base.common(target, problem, "bwd")
        if problem.c // problem.groups < base.VECTOR:
            answer = answer and base.left_over(target, problem, ConvTritonContractBwd())
        return answer and rules.feasible(target, self.GetSolution(target, problem))
