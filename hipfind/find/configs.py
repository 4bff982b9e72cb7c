"""Perf configs on their way from text (perf DB, command line) to solutions: parsed, checked, never trusted blindly."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from hipfind.errors import ConfigError
from hipfind.find.candidates import Standing
from hipfind.find.session import Session
from hipfind.invokers.solution import Solution
from hipfind.problem.base import Problem
from hipfind.solvers.base import TunableSolver
from hipfind.solvers.registry import AnySolver
from hipfind.target import Target

_log = logging.getLogger("hipfind.find")


def solution_of(solver: AnySolver, target: Target, problem: Problem, config: str = "") -> Solution:
    """The solver's solution with a config given as text; "" is the default. Raises ConfigError with the broken rule."""
    if not config:
        return solver.GetSolution(target, problem)
    if not isinstance(solver, TunableSolver):
        raise ConfigError(f"{solver.SolverDbId()} has no perf configs", got=config)
    return solver.GetSolution(target, problem, solver.parse_config(config))


def solution_or_default(solver: AnySolver, target: Target, problem: Problem, config: str) -> Solution:
    """As ``solution_of``, but a config that the solver refuses is reported and the default takes its place."""
    try:
        return solution_of(solver, target, problem, config)
    except ConfigError as error:
        _log.warning("the default config takes the place of a recorded one: %s", error)
        return solver.GetSolution(target, problem)


def tuned_configs(problem: Problem, session: Session, standings: Mapping[str, Standing]) -> dict[str, str]:
    """Configs that a search found for this problem, on this device in this environment, by solver id.

    Those of another solver version or other kernel sources, and those that the solver refuses, are left out.
    """
    tunable = {name: one.solver for name, one in standings.items() if one.solver.IsTunable()}
    if not tunable:
        return {}
    found: dict[str, str] = {}
    target = session.device.target
    for stored in session.db.lookup_perf(problem.key(), target.key, session.environment).trusted:
        record = stored.record
        solver = tunable.get(record.solver_id)
        if solver is None or record.solver_version != solver.version:
            continue
        try:
            solution = solution_of(solver, target, problem, record.config)
        except ConfigError as error:
            _log.warning("a tuned config is not used, the default takes its place: %s", error)
            continue
        if solution.source_hash == record.source_hash:
            found[record.solver_id] = record.config
    return found
