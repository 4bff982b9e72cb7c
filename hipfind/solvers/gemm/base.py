"""What solvers by vendor BLAS share: their perf config, the library's algorithm, and what the problem asks of products.

BLAS libraries of the "Lt" kind rank their algorithms for each product; the first is what their own heuristic holds for
the fastest, and often is not. The config is the place in that ranking, valid for this problem on this device with this
version of the library: a perf record is used only where all of these are the same, and the device refuses a place
that its ranking does not have.

Source: cublasLtMatmulAlgoGetHeuristic and hipblasLtMatmulAlgoGetHeuristic.
"""

from __future__ import annotations

import abc
import dataclasses
import re
from collections.abc import Iterator

from hipfind.errors import ConfigError
from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import GemmStep, LoopStep, PlainStep, Step
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.base import TunableSolver
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.target import Target

MOST_RANKS = 16
"""Places of the ranking that are tried: libraries give 8 to 30 for most products, the last ones far behind."""


@dataclasses.dataclass(frozen=True)
class GemmConfig:
    """The algorithm of a solution's products by its place in the BLAS library's own ranking, 0 the library's best."""

    rank: int = 0

    def __str__(self) -> str:
        return f"rank={self.rank}"


class GemmSolver(TunableSolver[ConvProblem, GemmConfig]):
    """A convolution as vendor BLAS products between other steps."""

    __slots__ = ()

    algorithm = "GEMM"

    @abc.abstractmethod
    def steps(self, target: Target, problem: ConvProblem) -> tuple[Step, ...]:
        """The solution's steps with products as the library would choose them."""

    def GetSolution(self, target: Target, problem: ConvProblem, config: GemmConfig | None = None) -> Solution:
        chosen = self.checked_config(target, problem, config)
        tf32 = problem.compute == "tf32"
        steps = tuple(_with_choice(step, chosen.rank, tf32) for step in self.steps(target, problem))
        return self.solution(target, problem, steps, str(chosen))

    def GetDefaultPerformanceConfig(self, target: Target, problem: ConvProblem) -> GemmConfig:
        return GemmConfig()

    def IsValidPerformanceConfig(self, target: Target, problem: ConvProblem, config: GemmConfig) -> Applicability:
        ranks = _ranks(target)
        if 0 <= config.rank < ranks:
            return APPLICABLE
        return no(Reason.CONFIG, f"rank {config.rank}, legal: 0 to {ranks - 1}")

    def Search(self, target: Target, problem: ConvProblem) -> Iterator[GemmConfig]:
        return (GemmConfig(rank) for rank in range(_ranks(target)))

    def parse_config(self, text: str) -> GemmConfig:
        found = re.fullmatch(r"rank=(\d{1,4})", text)
        if found is None:
            raise ConfigError(f"a perf config of {self.solver_id} is written rank=N", got=text)
        return GemmConfig(int(found[1]))


def _ranks(target: Target) -> int:
    """numpy's BLAS has no algorithms to choose from."""
    return 1 if target.is_host else MOST_RANKS


def _with_choice(step: Step, rank: int, tf32: bool) -> Step:
    if isinstance(step, LoopStep):
        return dataclasses.replace(step, body=tuple(_chosen(inner, rank, tf32) for inner in step.body))
    return _chosen(step, rank, tf32)


def _chosen(step: PlainStep, rank: int, tf32: bool) -> PlainStep:
    if not isinstance(step, GemmStep) or not (rank or tf32):
        return step
    return dataclasses.replace(step, gemm=dataclasses.replace(step.gemm, rank=rank, tf32=tf32))
