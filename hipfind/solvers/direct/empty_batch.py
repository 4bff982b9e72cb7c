"""ConvEmptyBatch: the answer to a batch of 0, which other libraries reject.

An empty y or dx is right as it is; a weight gradient is zero. Nothing is computed, so nothing else applies, but for a
weight gradient that cannot be cleared in one piece: with beta, or with gaps in dw. ConvDirectNaiveConvWrw does those.
"""

from __future__ import annotations

from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import ClearStep, Operand, Step
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.base import Solver
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.target import Target


class ConvEmptyBatch(Solver[ConvProblem]):
    """Batch 0, every direction and dtype."""

    __slots__ = ()

    solver_id = "ConvEmptyBatch"
    algorithm = "Direct"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        if problem.operation != "conv":
            return no(Reason.OPERATION, problem.operation)
        if not problem.is_empty:
            return no(Reason.NOT_EMPTY, f"batch {problem.n}")
        if problem.direction != "wrw":
            return APPLICABLE
        if problem.reads_output:
            return no(Reason.SCALING, f"beta={problem.beta:g}")
        return APPLICABLE if problem.w.layouts() else no(Reason.NOT_PACKED, "w")

    def GetSolution(self, target: Target, problem: ConvProblem, config: None = None) -> Solution:
        steps: tuple[Step, ...] = ()
        if problem.direction == "wrw":
            steps = (ClearStep(Operand("w"), problem.w.nbytes),)
        return self.solution(target, problem, steps)
