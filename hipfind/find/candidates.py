"""Which solvers may run for a problem, before anything runs: lists, dynamic-only, applicability, in that order."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Sequence

from hipfind import settings
from hipfind.find.report import Outcome
from hipfind.find.session import Session
from hipfind.problem.base import Problem
from hipfind.solvers.registry import AnySolver


@dataclasses.dataclass(frozen=True)
class Standing:
    """A solver before a Find. ``outcome`` is None when it may run, else how it ended already, and ``reason`` why.

    The figures are set where the solver applies.
    """

    solver: AnySolver
    order: int
    outcome: Outcome | None = None
    reason: str = ""
    wti: float = 0.0
    expected_ms: float = 0.0
    workspace_bytes: int = 0
    is_dynamic: bool = True

    @property
    def solver_id(self) -> str:
        return self.solver.SolverDbId()

    @property
    def algorithm(self) -> str:
        return self.solver.algorithm

    @property
    def may_run(self) -> bool:
        return self.outcome is None


def sort_candidates(problem: Problem, session: Session) -> list[Standing]:
    """Standing of every solver of the (canonical) problem's operation, in registry order.

    Raises UnknownSolverError when a list in the settings names a solver that does not exist.
    """
    current = settings.current()
    for name in (*current.find_only_solver, *current.disable_solver):
        session.registry.get(name)
    return [
        _standing(solver, order, problem, session, current)
        for order, solver in enumerate(session.registry.for_operation(problem.operation))
    ]


def without_compiling(standings: Sequence[Standing], known: Container[str]) -> list[Standing]:
    """The same, but solvers that compile a kernel for this size may only run if they are ``known``: measured before."""
    return [
        dataclasses.replace(one, outcome=Outcome.NOT_DYNAMIC, reason="compiles a kernel for this size")
        if one.may_run and not one.is_dynamic and one.solver_id not in known
        else one
        for one in standings
    ]


def _standing(
    solver: AnySolver,
    order: int,
    problem: Problem,
    session: Session,
    current: settings.Settings,
) -> Standing:
    name = solver.SolverDbId()
    if current.find_only_solver and name not in current.find_only_solver:
        return Standing(solver, order, Outcome.EXCLUDED, "not in HIPFIND_FIND_ONLY_SOLVER")
    if name in current.disable_solver:
        return Standing(solver, order, Outcome.EXCLUDED, "in HIPFIND_DISABLE_SOLVER")
    target = session.device.target
    applicability = solver.IsApplicable(target, problem)
    if not applicability:
        return Standing(solver, order, Outcome.NOT_APPLICABLE, str(applicability))
    return Standing(
        solver,
        order,
        wti=solver.GetWti(target, problem),
        expected_ms=solver.GetExpectedTime(target, problem),
        workspace_bytes=solver.GetWorkspaceSize(target, problem),
        is_dynamic=solver.IsDynamic(problem),
    )
