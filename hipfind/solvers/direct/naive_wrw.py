"""ConvDirectNaiveConvWrw: weight gradient by its definition, for everything that no other solver takes.

dw[k, c, t] = sum over n and o of dy[n, k, o] * x[n, c, o * stride + t * dilation - pad]. The sum may have millions
of terms; it keeps its rounding errors apart, so that fp32 is enough for it.

It wins for depthwise and other thin groups, for tensors with gaps, and where there is no memory for a workspace.
Source: MIOpen, src/solver/conv/conv_direct_naive_conv_wrw.cpp (the rule and the id; the kernel is our own).
"""

from __future__ import annotations

from hipfind.invokers.solution import Solution
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.base import Solver
from hipfind.solvers.direct.naive import naive_applicability, naive_step
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target


class ConvDirectNaiveConvWrw(Solver[ConvProblem]):
    """Weight gradient, 2D and 3D: any strides, groups, dilation, padding, alpha and beta; no workspace.

    With a batch of 0 it writes beta * dw.
    """

    __slots__ = ()

    solver_id = "ConvDirectNaiveConvWrw"
    algorithm = "Direct"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        return naive_applicability(target, problem, "wrw")

    def GetSolution(self, target: Target, problem: ConvProblem, config: None = None) -> Solution:
        return self.solution(target, problem, (naive_step(target, problem),))
