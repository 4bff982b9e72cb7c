"""The find engine: filters candidates, builds, verifies and times them, and stores what it learned.

Filter order: only-list, disabled list, dynamic-only, IsApplicable, workspace limit. Every candidate ends in exactly
one outcome with its reason. Only errors with a name end a candidate; anything else is a bug and leaves.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence

from hipfind import settings
from hipfind.errors import CompileError, DeviceError, OutOfMemoryError
from hipfind.find import reference
from hipfind.find.bench import Bench
from hipfind.find.candidates import Standing, sort_candidates
from hipfind.find.configs import solution_of, tuned_configs
from hipfind.find.immediate import answer
from hipfind.find.modes import FindMode
from hipfind.find.report import Candidate, Choice, FindReport, OnProgress, Outcome, Progress, Source
from hipfind.find.search import search_all
from hipfind.find.session import Session
from hipfind.find.store import store_candidates
from hipfind.find.timing import Runner, is_tie, race
from hipfind.find.trust import Known, known_records
from hipfind.invokers.invoker import Invoker, build
from hipfind.problem.base import Problem

_log = logging.getLogger("hipfind.find")

_HOPELESS = 10.0
"""A candidate expected to take this many times the best expected time, and longer than _LONG_MS, is not run at all."""
_LONG_MS = 1000.0


@dataclasses.dataclass
class _Entry:
    """A candidate on its way through one Find."""

    standing: Standing
    config: str = ""
    invoker: Invoker | None = None
    runner: Runner | None = None
    outcome: Outcome | None = None
    reason: str = ""
    verified: bool = False

    def end(self, outcome: Outcome, reason: str) -> None:
        self.outcome, self.reason = outcome, reason

    @property
    def is_in(self) -> bool:
        return self.outcome is None


def find(
    problem: Problem,
    session: Session,
    *,
    mode: str | None = None,
    workspace_limit: int | None = None,
    verify: str | None = None,
    tune: bool = False,
    on_progress: OnProgress | None = None,
) -> FindReport:
    """Find the fastest solver of a problem. See hipfind.find for the arguments."""
    current = settings.current()
    chosen = FindMode.parse(mode or current.find_mode)
    with settings.override(**({"verify": verify} if verify else {})):
        report = _find(problem.canonical(), session, chosen, workspace_limit, tune, on_progress)
    report = dataclasses.replace(report, problem=problem)
    _log_report(report)
    return report


def _find(
    problem: Problem,
    session: Session,
    mode: FindMode,
    workspace_limit: int | None,
    tune: bool,
    on_progress: OnProgress | None,
) -> FindReport:
    standings = sort_candidates(problem, session, dynamic_only=mode.dynamic_only)
    runnable = {one.solver_id: one for one in standings if one.may_run}
    known, notes = known_records(problem, session, runnable) if not problem.is_empty else ({}, ())
    notes += reference.notes(problem, session)
    used = known if mode.uses_db and not tune else {}
    entries = {name: _Entry(one) for name, one in runnable.items()}
    for entry in entries.values():
        if workspace_limit is not None and entry.standing.workspace_bytes > workspace_limit:
            needed = entry.standing.workspace_bytes
            entry.end(Outcome.WORKSPACE_TOO_SMALL, f"needs {needed} bytes, limit {workspace_limit}")
    missing = [entry for name, entry in entries.items() if entry.is_in and name not in used]
    if problem.is_empty:
        source = Source.TRIVIAL
    elif not missing or (mode.is_fast and any(record.is_usable for record in used.values())):
        source = _source_of(used)
    elif mode.is_fast and not tune:
        return _from_estimates(problem, session, mode, workspace_limit, standings, notes)
    else:
        source = Source.MEASURED
        with session.measuring():
            _measure(problem, session, missing, known, tune, on_progress)
    candidates = _candidates(standings, entries, used, source)
    stored = False
    if source is Source.MEASURED and _is_general(candidates):
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
    )


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


# measuring -----------------------------------------------------------------------------------------------------------


def _measure(
    problem: Problem,
    session: Session,
    entries: Sequence[_Entry],
    known: Mapping[str, Known],
    tune: bool,
    on_progress: OnProgress | None,
) -> None:
    say = on_progress or (lambda progress: None)
    _drop_hopeless(entries)
    racing = [entry for entry in entries if entry.is_in]
    if not racing:
        return
    bench = Bench(problem, session)
    refused = bench.make_workspace(entry.standing.workspace_bytes for entry in racing)
    for entry in racing:
        if entry.standing.workspace_bytes in refused:
            entry.end(Outcome.OUT_OF_MEMORY, refused[entry.standing.workspace_bytes])
    _set_configs(bench, [entry for entry in racing if entry.is_in], tune, say)
    _build(problem, session, [entry for entry in racing if entry.is_in], say)
    _warm_up(bench, [entry for entry in racing if entry.is_in], known, say)
    racing = [entry for entry in racing if entry.is_in]
    for entry in racing:
        assert entry.invoker is not None
        entry.runner = bench.runner(entry.standing.solver_id, entry.invoker)
    race(
        [entry.runner for entry in racing if entry.runner is not None],
        session.timer,
        limit_ms=float(settings.current().find_time_limit_ms),
        on_round=lambda done, rounds: say(Progress("time", f"{len(racing)} candidates", done, rounds)),
    )
    _judge(racing)


def _set_configs(bench: Bench, entries: Sequence[_Entry], tune: bool, say: OnProgress) -> None:
    """Give each tunable candidate the config that the DB has, or the one that a search finds now and stores."""
    configs = tuned_configs(bench.problem, bench.session, {one.standing.solver_id: one.standing for one in entries})
    if tune:
        standings = [one.standing for one in entries if one.standing.solver.IsTunable()]
        configs |= search_all(bench, standings, say)
    for entry in entries:
        entry.config = configs.get(entry.standing.solver_id, "")


def _drop_hopeless(entries: Sequence[_Entry]) -> None:
    expected = [entry.standing.expected_ms for entry in entries if entry.is_in]
    best = min(expected, default=0.0)
    for entry in entries:
        time_ms = entry.standing.expected_ms
        if entry.is_in and time_ms > _LONG_MS and time_ms > _HOPELESS * best:
            entry.end(Outcome.SKIPPED_SLOW, f"expected {time_ms:.0f} ms, the best candidate {best:.3g} ms")


def _build(problem: Problem, session: Session, entries: Sequence[_Entry], say: OnProgress) -> None:
    for index, entry in enumerate(entries):
        say(Progress("compile", entry.standing.solver_id, index, len(entries)))
        solution = solution_of(entry.standing.solver, session.device.target, problem, entry.config)
        entry.config = solution.config
        try:
            entry.invoker = build(solution, session.device, problem.roles)
        except CompileError as error:
            entry.end(Outcome.COMPILE_FAILED, str(error))
        except DeviceError as error:
            entry.end(Outcome.RUN_FAILED, str(error))


def _warm_up(bench: Bench, entries: Sequence[_Entry], known: Mapping[str, Known], say: OnProgress) -> None:
    """Run each candidate once on poisoned buffers, outside of any timing, and check its output where asked."""
    when = settings.current().verify
    for index, entry in enumerate(entries):
        name = entry.standing.solver_id
        say(Progress("verify", name, index, len(entries)))
        before = known.get(name)
        is_verified = before is not None and before.verified and before.config == entry.config
        must_check = when == "always" or (when == "first" and not is_verified)
        entry.verified = not must_check and is_verified
        assert entry.invoker is not None
        try:
            bench.run_poisoned(entry.invoker)
            if must_check:
                bench.check(name)
                entry.verified = True
        except OutOfMemoryError as error:
            entry.end(Outcome.OUT_OF_MEMORY, str(error))
        except DeviceError as error:
            entry.end(Outcome.RUN_FAILED, str(error))
    for entry in entries:
        wrong = bench.refused(entry.standing.solver_id)
        if wrong is not None:
            entry.end(Outcome.WRONG_RESULT, wrong)


def _judge(entries: Sequence[_Entry]) -> None:
    """Give every measured candidate its outcome; ties within the noise go to less workspace, then registry order."""
    timed: list[tuple[_Entry, Runner]] = []
    for entry in entries:
        runner = entry.runner
        assert runner is not None
        if runner.error is not None:
            entry.end(Outcome.RUN_FAILED, str(runner.error))
        elif runner.stopped:
            entry.end(Outcome.SKIPPED_SLOW, runner.stopped)
        else:
            timed.append((entry, runner))
    if not timed:
        return
    _, fastest = min(timed, key=lambda pair: pair[1].median_ms)
    tied = [entry for entry, runner in timed if is_tie(runner, fastest)]
    winner = min(tied, key=lambda entry: (entry.standing.workspace_bytes, entry.standing.order))
    for entry, _ in timed:
        entry.end(Outcome.WON if entry is winner else Outcome.LOST, "")


# answers -------------------------------------------------------------------------------------------------------------


def _candidates(
    standings: Sequence[Standing], entries: Mapping[str, _Entry], used: Mapping[str, Known], source: Source
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


def _from_entry(entry: _Entry, source: Source) -> Candidate:
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


def _log_report(report: FindReport) -> None:
    best = report.best
    _log.info(
        "problem=%s device=%s solver=%s time_ms=%s source=%s",
        report.problem.key(),
        report.device,
        best.solver_id if best else "none",
        f"{best.time_ms:.6g}" if best else "-",
        report.source.value,
    )
