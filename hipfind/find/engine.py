"""The find engine: filters candidates, builds, verifies and times them, and stores what it learned.

Filter order: only-list, disabled list, dynamic-only, IsApplicable, workspace limit. Every candidate ends in exactly
one outcome with its reason. Only errors with a name end a candidate; anything else is a bug and leaves.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence

from hipfind import settings
from hipfind.errors import ConfigError
from hipfind.find import reference
from hipfind.find.calls import log_decision
from hipfind.find.candidates import Standing, sort_candidates, without_compiling
from hipfind.find.configs import solution_of
from hipfind.find.immediate import answer
from hipfind.find.measure import Entry, measure
from hipfind.find.modes import Enforce, FindMode, Tuning
from hipfind.find.report import Candidate, Choice, FindReport, OnProgress, Outcome, Source
from hipfind.find.session import Session
from hipfind.find.store import store_candidates
from hipfind.find.trust import Known, known_records
from hipfind.problem.base import Problem

_log = logging.getLogger("hipfind.find")

_SHORT_SEARCH = {"tune_time_limit_ms": 1000, "tune_patience": 6}
"""Budget of TRUST_VERIFY's searches, as MIOpen's."""


def find(
    problem: Problem,
    session: Session,
    *,
    mode: str | None = None,
    workspace_limit: int | None = None,
    verify: str | None = None,
    tune: bool = False,
    on_progress: OnProgress | None = None,
    configs: Mapping[str, str] | None = None,
) -> FindReport:
    """Find the fastest solver of a problem. See hipfind.find for the arguments."""
    current = settings.current()
    chosen, enforce = FindMode.parse(mode or current.find_mode), Enforce.in_force()
    for solver_id in configs or ():
        session.registry.get(solver_id)
    if configs or enforce is not Enforce.NONE:
        chosen = FindMode.NORMAL
    if enforce is Enforce.DB_CLEAN:
        session.db.remove_perf(problem.canonical().key(), session.device.target.key)
    with settings.override(**({"verify": verify} if verify else {})):
        report = _find(
            problem.canonical(), session, chosen, workspace_limit, enforce.tuning(tune), on_progress, configs or {}
        )
    report = dataclasses.replace(report, problem=problem)
    log_decision("find", problem, report.device, report.best, report.source)
    return report


def _find(
    problem: Problem,
    session: Session,
    mode: FindMode,
    workspace_limit: int | None,
    tune: Tuning,
    on_progress: OnProgress | None,
    configs: Mapping[str, str],
) -> FindReport:
    standings = sort_candidates(problem, session)
    runnable = {one.solver_id: one for one in standings if one.may_run}
    known, notes = known_records(problem, session, runnable) if not problem.is_empty else ({}, ())
    if mode.dynamic_only and tune is Tuning.NOTHING:
        standings = without_compiling(standings, known)
        runnable = {one.solver_id: one for one in standings if one.may_run}
    notes += reference.notes(problem, session)
    used = known if mode.uses_db and tune is Tuning.NOTHING else {}
    entries = _entries(runnable, workspace_limit)
    notes += _give_configs(entries, configs, problem, session)
    missing = [entry for name, entry in entries.items() if entry.is_in and name not in used]
    if problem.is_empty:
        source = Source.TRIVIAL
    elif mode.verifies and not _is_own(used):
        source, used = Source.MEASURED, {}
        if not _confirm(problem, session, workspace_limit, entries, on_progress):
            entries = _entries(runnable, workspace_limit)
            rest = [entry for entry in entries.values() if entry.is_in]
            with session.measuring(), settings.override(**({} if mode.has_time else _SHORT_SEARCH)):
                measure(problem, session, rest, known, Tuning.ALL, on_progress)
    elif not missing or (mode.takes_any_record and any(record.is_usable for record in used.values())):
        source = _source_of(used)
    elif mode.is_fast and tune is Tuning.NOTHING:
        return _from_estimates(problem, session, mode, workspace_limit, standings, notes)
    else:
        source = Source.MEASURED
        with session.measuring():
            measure(problem, session, missing, known, tune, on_progress)
    candidates = _candidates(standings, entries, used, source)
    stored = False
    if source is Source.MEASURED and not configs and _is_general(candidates):
        stored = store_candidates(problem, session, candidates)
        session.forget()
    return FindReport(
        problem,
        session.device.name,
        mode.name,
        source,
        _results(candidates, source),
        candidates,
        stored,
        notes,
        tuple(entry.searched for entry in entries.values() if entry.searched is not None),
    )


def _entries(runnable: Mapping[str, Standing], workspace_limit: int | None) -> dict[str, Entry]:
    entries = {name: Entry(one) for name, one in runnable.items()}
    for entry in entries.values():
        needed = entry.standing.workspace_bytes
        if workspace_limit is not None and needed > workspace_limit:
            entry.end(Outcome.WORKSPACE_TOO_SMALL, f"needs {needed} bytes, limit {workspace_limit}")
    return entries


def _give_configs(
    entries: Mapping[str, Entry], configs: Mapping[str, str], problem: Problem, session: Session
) -> tuple[str, ...]:
    """Give candidates the configs that the caller asked for; a note for each that its solver refuses."""
    notes = []
    for solver_id, config in configs.items():
        entry = entries.get(solver_id)
        if entry is not None and entry.is_in:
            try:
                entry.config = solution_of(entry.standing.solver, session.device.target, problem, config).config
            except ConfigError as error:
                notes.append(f"the config asked for is refused, {solver_id} runs with its default: {error}")
                _log.warning("%s", notes[-1])
                entry.config = entry.standing.solver.GetSolution(session.device.target, problem).config
    return tuple(notes)


def _is_own(used: Mapping[str, Known]) -> bool:
    """Whether this user has measured a solver of the problem that can be used."""
    return any(one.is_usable and one.source is Source.USER_DB for one in used.values())


def _confirm(
    problem: Problem,
    session: Session,
    workspace_limit: int | None,
    entries: Mapping[str, Entry],
    on_progress: OnProgress | None,
) -> bool:
    """Measure what is said to be fastest: a system file's winner, or the two best by estimate. True when it holds.

    A system file's time holds within the setting verify_tolerance_pct, an estimate when the first beats the second.
    """
    said = [one for one in answer(problem, session, workspace_limit).choices if one.solver_id in entries]
    from_system = bool(said) and said[0].source is Source.SYSTEM_DB
    said = said[: 1 if from_system else 2]
    for one in said:
        entries[one.solver_id].config = one.config
    with session.measuring():
        measure(problem, session, [entries[one.solver_id] for one in said], {}, Tuning.NOTHING, on_progress)
    times = [entries[one.solver_id].median_ms for one in said]
    if not times or times[0] is None:
        return False
    if from_system:
        return times[0] <= said[0].time_ms * (1 + settings.current().verify_tolerance_pct / 100)
    return all(time is None or times[0] <= time for time in times[1:])


def _from_estimates(
    problem: Problem,
    session: Session,
    mode: FindMode,
    workspace_limit: int | None,
    standings: Sequence[Standing],
    notes: tuple[str, ...],
) -> FindReport:
    """FAST mode without records: immediate mode's ranking, nothing runs."""
    ranked = answer(problem, session, workspace_limit)
    choices = ranked.choices
    candidates = tuple(
        Candidate(
            one.solver_id,
            one.outcome or Outcome.NOT_MEASURED,
            one.reason,
            workspace_bytes=one.workspace_bytes,
            expected_ms=one.expected_ms if one.may_run else None,
            source=Source.WTI,
        )
        for one in standings
    )
    source = choices[0].source if choices else Source.WTI
    notes += tuple(one for one in ranked.notes if one not in notes)
    return FindReport(problem, session.device.name, mode.name, source, choices, candidates, False, notes)


def _source_of(used: Mapping[str, Known]) -> Source:
    """Where the winner of a Find without measurements came from."""
    usable = [one for one in used.values() if one.is_usable]
    best = min(usable, key=lambda one: (not one.won, one.time_ms), default=None)
    return best.source if best is not None else Source.USER_DB


def _is_general(candidates: Sequence[Candidate]) -> bool:
    """False for a result that a workspace limit or a list of solvers narrowed: it must not answer for all."""
    return all(one.outcome not in (Outcome.WORKSPACE_TOO_SMALL, Outcome.EXCLUDED) for one in candidates)


# answers -------------------------------------------------------------------------------------------------------------


def _candidates(
    standings: Sequence[Standing], entries: Mapping[str, Entry], used: Mapping[str, Known], source: Source
) -> tuple[Candidate, ...]:
    rows = []
    for one in standings:
        entry = entries.get(one.solver_id)
        record = used.get(one.solver_id)
        if entry is None:
            rows.append(Candidate(one.solver_id, one.outcome or Outcome.NOT_MEASURED, one.reason, source=source))
        elif record is not None and entry.is_in:
            rows.append(_from_record(one, record))
        else:
            rows.append(_from_entry(entry, source))
    return _one_winner(rows, {one.solver_id: one.order for one in standings})


def _from_record(one: Standing, record: Known) -> Candidate:
    return Candidate(
        one.solver_id, record.outcome, record.reason, record.time_ms, record.spread_ms, record.samples,
        one.workspace_bytes, one.expected_ms, record.config, record.verified, record.source,
    )  # fmt: skip


def _from_entry(entry: Entry, source: Source) -> Candidate:
    runner, one = entry.runner, entry.standing
    timed = runner is not None and bool(runner.samples)
    return Candidate(
        one.solver_id,
        entry.outcome or Outcome.NOT_MEASURED,
        entry.reason,
        time_ms=runner.median_ms if runner is not None and timed else None,
        spread_ms=runner.spread_ms if runner is not None and timed else 0.0,
        samples=len(runner.samples) if runner is not None else 0,
        workspace_bytes=one.workspace_bytes,
        expected_ms=one.expected_ms,
        config=entry.config,
        verified=entry.verified,
        source=source,
    )


def _one_winner(rows: list[Candidate], order: Mapping[str, int]) -> tuple[Candidate, ...]:
    """Where recorded and new candidates meet, the fastest of all wins and a second winner becomes a loser."""
    usable = [row for row in rows if row.is_usable]
    winners = [row for row in usable if row.outcome is Outcome.WON]
    if not usable or (len(winners) == 1 and len({row.source for row in usable}) == 1):
        return tuple(rows)
    best = min(usable, key=lambda row: (row.time_ms or 0.0, row.workspace_bytes, order[row.solver_id]))
    return tuple(
        dataclasses.replace(row, outcome=Outcome.WON if row is best else Outcome.LOST) if row.is_usable else row
        for row in rows
    )


def _results(candidates: Sequence[Candidate], source: Source) -> tuple[Choice, ...]:
    if source is Source.TRIVIAL:
        usable = [one for one in candidates if one.outcome is Outcome.NOT_MEASURED and not one.reason]
        return tuple(Choice(one.solver_id, 0.0, one.workspace_bytes, source) for one in usable)
    usable = [one for one in candidates if one.is_usable]
    usable.sort(key=lambda one: (one.outcome is not Outcome.WON, one.time_ms))
    return tuple(
        Choice(one.solver_id, one.time_ms or 0.0, one.workspace_bytes, one.source, one.config) for one in usable
    )
