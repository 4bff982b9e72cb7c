"""ConvDirectNaiveConvBwd: data gradient by its definition, for everything that no other solver takes.

dx[n, c, i] = sum over k and those taps t for which o = (i + pad - t * dilation) / stride is whole and inside of
dy, of dy[n, k, o] * w[k, c, t]. A gather: every element of dx is written once, also those that no tap reaches.

It wins for depthwise and other thin groups, for tensors with gaps, and where there is no memory for a workspace.
Source: MIOpen, src/solver/conv/conv_direct_naive_conv_bwd.cpp (the rule and the id; the kernel is our own).
"""

from __future__ import annotations

from hipfind.invokers.solution import Solution
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.base import Solver
from hipfind.solvers.direct.naive import naive_applicability, naive_step
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target


class ConvDirectNaiveConvBwd(Solver[ConvProblem]):
    """Data gradient, 2D and 3D: any strides, groups, dilation, padding, alpha and beta; no workspace."""

    __slots__ = ()

    solver_id = "ConvDirectNaiveConvBwd"
    algorithm = "Direct"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        return naive_applicability(target, problem, "bwd")

    def GetSolution(self, target: Target, problem: ConvProblem, config: None = None) -> Solution:
        return self.solution(target, problem, (naive_step(target, problem),))
