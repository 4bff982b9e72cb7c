"""Perf configs on their way from text (perf DB, command line) to solutions: parsed, checked, never trusted blindly."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from hipfind.errors import ConfigError
from hipfind.find.candidates import Standing
from hipfind.find.session import Session
from hipfind.invokers.solution import Solution
from hipfind.perfdb.records import StoredPerf
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


def solution_or_default(session: Session, problem: Problem, solver_id: str, config: str) -> Solution:
    """As ``solution_of``, but a recorded config that the solver refuses is reported, marked, and the default used."""
    solver, target = session.registry.get(solver_id), session.device.target
    try:
        return solution_of(solver, target, problem, config)
    except ConfigError as error:
        recorded = session.db.lookup_perf(problem.key(), target.key, session.environment).trusted
        for stored in recorded:
            if (stored.record.solver_id, stored.record.config) == (solver_id, config):
                session.db.refuse_perf(stored, error.what)
        _warn_once(session, problem, solver_id, config, error)
        return solver.GetSolution(target, problem)


def tuned_configs(problem: Problem, session: Session, standings: Mapping[str, Standing]) -> dict[str, str]:
    """Configs that a search found for this problem, on this device in this environment, by solver id.

    Those of another solver version or other kernel sources are left out. One that the solver refuses is reported, with
    the rule that it breaks, and marked in the DB: then nobody uses it, and nobody reports it again.
    """
    return {stored.record.solver_id: stored.record.config for stored in tuned_records(problem, session, standings)}


def tuned_records(problem: Problem, session: Session, standings: Mapping[str, Standing]) -> list[StoredPerf]:
    """The records behind ``tuned_configs``."""
    tunable = {name: one.solver for name, one in standings.items() if one.solver.IsTunable()}
    if not tunable:
        return []
    target = session.device.target
    recorded = session.db.lookup_perf(problem.key(), target.key, session.environment).trusted
    return [
        stored
        for stored in recorded
        if stored.record.solver_id in tunable and _is_good(stored, tunable[stored.record.solver_id], problem, session)
    ]


def _is_good(stored: StoredPerf, solver: AnySolver, problem: Problem, session: Session) -> bool:
    record = stored.record
    if record.solver_version != solver.version:
        return False
    try:
        solution = solution_of(solver, session.device.target, problem, record.config)
    except ConfigError as error:
        session.db.refuse_perf(stored, error.what)
        _warn_once(session, problem, record.solver_id, record.config, error)
        return False
    return solution.source_hash == record.source_hash


def _warn_once(session: Session, problem: Problem, solver_id: str, config: str, error: ConfigError) -> None:
    """A record that cannot be marked, as of a system file, is met at every look-up."""
    refused = (problem.key(), solver_id, config)
    if refused not in session.reported_configs:
        session.reported_configs.add(refused)
        _log.warning("a recorded config of %s is refused, its default takes its place: %s", solver_id, error)
