"""Tuning many problems: what a search would try, what is tuned already, and kernels compiled without running them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from hipfind import settings
from hipfind.errors import CompileError, DeviceError
from hipfind.find.candidates import Standing, sort_candidates
from hipfind.find.configs import tuned_records
from hipfind.find.immediate import immediate
from hipfind.find.measure import Entry, drop_hopeless
from hipfind.find.report import Source
from hipfind.find.session import Session
from hipfind.find.trust import known_records
from hipfind.invokers.solution import Solution
from hipfind.problem.base import Problem
from hipfind.solvers.base import TunableSolver

_CHUNK = 64
"""Kernels that are compiled at once, so that progress is seen."""


def tunable(problem: Problem, session: Session) -> list[Standing]:
    """The candidates whose perf configs a Find with tuning searches, in registry order."""
    entries = [Entry(one) for one in sort_candidates(problem.canonical(), session) if one.may_run]
    drop_hopeless(entries)
    return [entry.standing for entry in entries if entry.is_in and entry.standing.solver.IsTunable()]


def is_tuned(problem: Problem, session: Session) -> bool:
    """Whether a Find with tuning has been done to its end, here and with today's solvers and sources.

    Every tunable candidate has a config, and was measured after its search, or a record that says why it has none. A
    search that was interrupted leaves a config that is newer than the measurement. Where the settings name solvers,
    nothing but their configs is stored: then a config is enough.
    """
    canonical = problem.canonical()
    if canonical.is_empty:
        return True
    wanted = [one.solver_id for one in tunable(problem, session)]
    standings = {one.solver_id: one for one in sort_candidates(canonical, session) if one.may_run}
    searched = {one.record.solver_id: one.created_at for one in tuned_records(canonical, session, standings)}
    if settings.current().find_only_solver:
        return all(name in searched for name in wanted)
    known, _ = known_records(canonical, session, standings)
    if not any(one.is_usable and one.source is Source.USER_DB for one in known.values()):
        return False
    for name in wanted:
        record = known.get(name)
        if record is None or (record.is_usable and record.created_at < searched.get(name, float("inf"))):
            return False
    return True


def share_of_time(seconds: float, problem: Problem, session: Session) -> int:
    """What each of the problem's searches may take, in ms, so that all of them together keep to ``seconds``."""
    return max(int(seconds * 1e3 / max(len(tunable(problem, session)), 1)), 1)


# compiling without running -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What compiling a list of problems did: solutions, their kernels (each counted once), and those that failed."""

    solutions: int
    kernels: int
    failures: tuple[str, ...]


def compile_all(
    problems: Sequence[Problem],
    session: Session,
    *,
    all_configs: bool = False,
    on_done: Callable[[int, int], None] | None = None,
) -> Compiled:
    """Compile the kernels of every applicable solver's solution into the kernel cache; nothing runs.

    Solutions with the default config, or with every valid one. ``on_done`` is told how many kernels of how many are
    compiled. A kernel that fails is named and the others go on.
    """
    solutions = [one for problem in problems for one in _solutions(problem, session, all_configs)]
    kernels = {spec: f"{one.solver_id} {one.config}".strip() for one in reversed(solutions) for spec in one.kernels}
    specs, failures = list(kernels), []
    for start in range(0, len(specs), _CHUNK):
        chunk = specs[start : start + _CHUNK]
        session.device.compile_ahead(chunk)
        for done, spec in enumerate(chunk, start=start + 1):
            try:
                session.device.prepare_kernel(spec, (), 0)
            except (CompileError, DeviceError) as error:
                failures.append(f"{kernels[spec]}: {error}")
            if on_done is not None:
                on_done(done, len(specs))
    return Compiled(len(solutions), len(specs), tuple(failures))


def compile_defaults(problems: Sequence[Problem], session: Session) -> None:
    """Compile what Finds of these problems are going to run, all at once: one Find has work for a few cores only.

    Problems that have a record are left out. A kernel that fails is met again, with its reason, by its Find.
    """
    known = (Source.USER_DB, Source.SYSTEM_DB)
    missing = [one for one in problems if all(choice.source not in known for choice in immediate(one, session)[:1])]
    solutions = (one for problem in missing for one in _solutions(problem, session, all_configs=False))
    session.device.compile_ahead([spec for one in solutions for spec in one.kernels])


def _solutions(problem: Problem, session: Session, all_configs: bool) -> Iterator[Solution]:
    canonical, target = problem.canonical(), session.device.target
    for one in sort_candidates(canonical, session):
        if one.may_run:
            yield one.solver.GetSolution(target, canonical)
            if all_configs and isinstance(one.solver, TunableSolver):
                default = one.solver.GetDefaultPerformanceConfig(target, canonical)
                others = (config for config in one.solver.Search(target, canonical) if config != default)
                yield from (one.solver.GetSolution(target, canonical, config) for config in others)
