"""Which solvers may run for a problem, before anything runs: lists, dynamic-only, applicability, in that order."""

from __future__ import annotations

import dataclasses

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


def sort_candidates(problem: Problem, session: Session, *, dynamic_only: bool = False) -> list[Standing]:
    """Standing of every solver of the (canonical) problem's operation, in registry order.

    Raises UnknownSolverError when a list in the settings names a solver that does not exist.
    """
    current = settings.current()
    for name in (*current.find_only_solver, *current.disable_solver):
        session.registry.get(name)
    return [
        _standing(solver, order, problem, session, current, dynamic_only)
        for order, solver in enumerate(session.registry.for_operation(problem.operation))
    ]


def _standing(
    solver: AnySolver,
    order: int,
    problem: Problem,
    session: Session,
    current: settings.Settings,
    dynamic_only: bool,
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
    is_dynamic = solver.IsDynamic(problem)
    late = dynamic_only and not is_dynamic
    return Standing(
        solver,
        order,
        Outcome.NOT_DYNAMIC if late else None,
        "compiles a kernel for this size" if late else "",
        wti=solver.GetWti(target, problem),
        expected_ms=solver.GetExpectedTime(target, problem),
        workspace_bytes=solver.GetWorkspaceSize(target, problem),
        is_dynamic=is_dynamic,
    )
