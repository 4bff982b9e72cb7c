"""ConvDirectNaiveConvFwd: forward convolution by its definition, for everything that no other solver takes.

y[n, k, o] = sum over c and taps t of x[n, c, o * stride + t * dilation - pad] * w[k, c, t].

It wins for depthwise and other thin groups, for tensors with gaps, and where there is no memory for a workspace.
Source: MIOpen, src/solver/conv/conv_direct_naive_conv_fwd.cpp (the rule and the id; the kernel is our own).
"""

from __future__ import annotations

from hipfind.invokers.solution import Solution
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.base import Solver
from hipfind.solvers.direct.naive import naive_applicability, naive_step
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target


class ConvDirectNaiveConvFwd(Solver[ConvProblem]):
    """Forward convolution, 2D and 3D: any strides, groups, dilation, padding, alpha and beta; no workspace."""

    __slots__ = ()

    solver_id = "ConvDirectNaiveConvFwd"
    algorithm = "Direct"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        return naive_applicability(target, problem, "fwd")

    def GetSolution(self, target: Target, problem: ConvProblem, config: None = None) -> Solution:
        return self.solution(target, problem, (naive_step(target, problem),))
