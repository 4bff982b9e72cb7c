"""Tunable fake solvers: each config is a behaviour of the fake device, named solver id, dot, config."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any, ClassVar

from hipfind.errors import ConfigError
from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import KernelStep, Operand
from hipfind.kernels.spec import KernelSpec
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.base import TunableSolver
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.target import Target
from tests.helpers.fakes import FakeSolver


@dataclasses.dataclass(frozen=True)
class FakeConfig:
    tile: int

    def __str__(self) -> str:
        return f"tile={self.tile}"


class FakeTunable(FakeSolver, TunableSolver[ConvProblem, FakeConfig]):
    """Base of tunable fakes; make them with ``fake_tunable``."""

    __slots__ = ()
    tiles: ClassVar[tuple[int, ...]] = ()
    """Legal tiles, the default first."""

    def GetDefaultPerformanceConfig(self, target: Target, problem: ConvProblem) -> FakeConfig:
        return FakeConfig(self.tiles[0])

    def IsValidPerformanceConfig(self, target: Target, problem: ConvProblem, config: FakeConfig) -> Applicability:
        return APPLICABLE if config.tile in self.tiles else no(Reason.CONFIG, f"tile {config.tile}")

    def Search(self, target: Target, problem: ConvProblem) -> Iterator[FakeConfig]:
        return map(FakeConfig, self.tiles)

    def parse_config(self, text: str) -> FakeConfig:
        found = re.fullmatch(r"tile=(\d+)", text)
        if found is None:
            raise ConfigError("a fake config is written tile=N", got=text)
        return FakeConfig(int(found[1]))

    def GetSolution(self, target: Target, problem: ConvProblem, config: Any = None) -> Solution:
        chosen = self.checked_config(target, problem, config)
        operands = tuple(Operand(role) for role in problem.roles)
        spec = KernelSpec("cast.hip", "fake", (("NAME", f"{self.solver_id}.{chosen}"),))
        step = KernelStep(spec, operands, (), 1, problem.flops, problem.min_bytes)
        return self.solution(target, problem, (step,), str(chosen))


def fake_tunable(solver_id: str, tiles: tuple[int, ...], **attributes: Any) -> TunableSolver[ConvProblem, FakeConfig]:
    """An instance of a new tunable class whose configs are these tiles, the default first."""
    body = {"__slots__": (), "solver_id": solver_id, "tiles": tiles, **attributes}
    return type(solver_id, (FakeTunable,), body)()
