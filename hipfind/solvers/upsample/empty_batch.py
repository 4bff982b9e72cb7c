"""UpsampleEmptyBatch: the answer to a batch of 0, whose result is empty, in either direction. Nothing else applies."""

from __future__ import annotations

from hipfind.invokers.solution import Solution
from hipfind.problem.upsample import UpsampleProblem
from hipfind.solvers.base import Solver
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.target import Target


class UpsampleEmptyBatch(Solver[UpsampleProblem]):
    """Batch 0, every dtype."""

    __slots__ = ()

    solver_id = "UpsampleEmptyBatch"
    algorithm = "Direct"
    operation = "upsample"

    def IsApplicable(self, target: Target, problem: UpsampleProblem) -> Applicability:
        if problem.operation != "upsample":
            return no(Reason.OPERATION, problem.operation)
        return APPLICABLE if problem.is_empty else no(Reason.NOT_EMPTY, f"batch {problem.n}")

    def GetSolution(self, target: Target, problem: UpsampleProblem, config: None = None) -> Solution:
        return self.solution(target, problem, ())
