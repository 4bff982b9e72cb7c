"""Sessions: solvers that are registered while a session lives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hipfind as hf
from hipfind import settings
from hipfind.invokers.solution import Solution
from hipfind.problem.conv import ConvProblem
from hipfind.solvers import registry
from hipfind.solvers.base import Solver
from hipfind.solvers.direct.naive_fwd import ConvDirectNaiveConvFwd
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target

PROBLEM = hf.ConvProblem.create("fwd", x=(1, 3, 5, 5), w=(4, 3, 3, 3))


class Late(Solver[ConvProblem]):
    """Says that it is the fastest of all, and does what the naive solver does."""

    __slots__ = ()
    solver_id = "ThirdPartyLate"
    algorithm = "Direct"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        return ConvDirectNaiveConvFwd().IsApplicable(target, problem)

    def GetExpectedTime(self, target: Target, problem: ConvProblem) -> float:
        return 1e-9

    def GetWti(self, target: Target, problem: ConvProblem) -> float:
        return 1e9

    def GetSolution(self, target: Target, problem: ConvProblem, config: Any = None) -> Solution:
        return self.solution(target, problem, ConvDirectNaiveConvFwd().GetSolution(target, problem).steps)


@pytest.fixture(autouse=True)
def own_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_extensions", registry._Extensions())
    with settings.override(user_db_path=str(tmp_path / "hipfind.db"), device="host"):
        yield


def test_a_solver_registered_after_the_first_answer_is_seen() -> None:
    assert hf.immediate(PROBLEM)[0].solver_id != Late.solver_id
    assert Late.solver_id not in {one.solver_id for one in hf.find(PROBLEM).candidates}
    registry.register(Late)
    report = hf.find(PROBLEM)
    assert report.source is hf.Source.MEASURED, "the new candidate has no record"
    assert {one.solver_id for one in report.results} > {Late.solver_id}
    assert Late.solver_id in {choice.solver_id for choice in hf.immediate(PROBLEM)}
    assert hf.plan(PROBLEM, solver=Late.solver_id).solver_id == Late.solver_id


def test_immediate_mode_ranks_a_new_solver_at_once() -> None:
    before = [choice.solver_id for choice in hf.immediate(PROBLEM)]
    registry.register(Late)
    assert [choice.solver_id for choice in hf.immediate(PROBLEM)] == [Late.solver_id, *before]
