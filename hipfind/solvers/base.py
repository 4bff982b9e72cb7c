"""The solver contract. MIOpen's method names are kept, as the one exception to PEP 8.

A solver is stateless: all that it knows comes from the target, the problem and the config. It is asked about
canonical problems only (a transposed convolution arrives as the data direction that it equals).
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any, ClassVar, Generic, TypeVar

from hipfind.errors import ConfigError
from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import Step
from hipfind.problem.base import Problem
from hipfind.solvers import roofline
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target

UNKNOWN_WTI = -2.0
"""GetWti of a solver that cannot estimate itself; ranked behind every solver that can."""

P = TypeVar("P", bound=Problem)


class Solver(abc.ABC, Generic[P]):
    """One algorithm for one operation and direction."""

    __slots__ = ()

    solver_id: ClassVar[str]
    """Permanent id (MIOpen's own where the algorithm is MIOpen's). Stored in perf DBs: never renamed, never reused."""
    version: ClassVar[int] = 1
    """Raised when the code starts to give other times or other results; older records are then not trusted."""
    algorithm: ClassVar[str]
    """Family by MIOpen's names: "GEMM", "Direct", "ImplicitGEMM", ..."""
    operation: ClassVar[str] = "conv"

    def SolverDbId(self) -> str:
        """The permanent id."""
        return self.solver_id

    @abc.abstractmethod
    def IsApplicable(self, target: Target, problem: P) -> Applicability:
        """Whether GetSolution gives a correct result here, with the reason when not. Never raises, runs nothing."""

    def IsDynamic(self, problem: P) -> bool:
        """True when no kernel is compiled for this size: one binary serves all."""
        return True

    def IsTunable(self) -> bool:
        """True for solvers with perf configs."""
        return False

    def GetWorkspaceSize(self, target: Target, problem: P) -> int:
        """Workspace in bytes; does not depend on the perf config."""
        return 0

    def GetWti(self, target: Target, problem: P) -> float:
        """Expected fraction of the target's peak, as if the direct algorithm ran: 1.0 is peak, more is possible.

        From a roofline over the solution's own steps, so it knows sizes, dtype and device.
        """
        return roofline.wti(target, problem, self.GetSolution(target, problem).steps)

    def GetExpectedTime(self, target: Target, problem: P) -> float:
        """Expected time in ms, by the same roofline as GetWti."""
        return roofline.expected_time_ms(target, self.GetSolution(target, problem).steps)

    @abc.abstractmethod
    def GetSolution(self, target: Target, problem: P, config: Any = None) -> Solution:
        """The steps for an applicable problem. Cheap, runs nothing, compiles nothing."""

    def solution(self, target: Target, problem: P, steps: tuple[Step, ...], config: str = "") -> Solution:
        """A Solution with this solver's id, version and workspace."""
        workspace = self.GetWorkspaceSize(target, problem)
        return Solution(self.solver_id, self.version, problem.key(), steps, workspace, config)


C = TypeVar("C")


class TunableSolver(Solver[P], Generic[P, C]):
    """A solver with perf configs: frozen values that round-trip as text."""

    __slots__ = ()

    def IsTunable(self) -> bool:
        return True

    @abc.abstractmethod
    def GetDefaultPerformanceConfig(self, target: Target, problem: P) -> C:
        """A valid config by rule, in constant time."""

    @abc.abstractmethod
    def IsValidPerformanceConfig(self, target: Target, problem: P, config: C) -> Applicability:
        """Whether this config is legal here, with the rule it breaks when not. Used on all that a DB gives."""

    @abc.abstractmethod
    def Search(self, target: Target, problem: P) -> Iterator[C]:
        """Valid configs, each once, lazily, the most promising first; the search engine times them.

        All of them, or those that a model of the device gives a chance.
        """

    @abc.abstractmethod
    def parse_config(self, text: str) -> C:
        """Inverse of ``str(config)``. Raises ConfigError."""

    def checked_config(self, target: Target, problem: P, config: C | None) -> C:
        """The config to use: the default for None. Raises ConfigError with the rule that a given one breaks."""
        if config is None:
            return self.GetDefaultPerformanceConfig(target, problem)
        valid = self.IsValidPerformanceConfig(target, problem, config)
        if not valid:
            raise ConfigError(f"perf config of {self.solver_id} is not valid: {valid}", got=str(config))
        return config
