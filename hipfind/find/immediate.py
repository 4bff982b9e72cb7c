"""Immediate mode: ranked choices from the DB, else from estimates and MIOpen's records. Never runs, never compiles."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

from hipfind import settings
from hipfind.find.candidates import Standing, sort_candidates
from hipfind.find.configs import tuned_configs
from hipfind.find.reference import hints
from hipfind.find.report import Choice, Explanation, Outcome, Source
from hipfind.find.session import Answer, Session
from hipfind.find.trust import Known, known_records, nearest_records
from hipfind.heuristics.ranking import Estimate, rank
from hipfind.problem.base import Problem


def immediate(problem: Problem, session: Session, workspace_limit: int | None = None) -> tuple[Choice, ...]:
    """Choices that fit the limit (bytes), best first: measured ones where the DB has any, else by estimate."""
    return answer(problem, session, workspace_limit).choices


def answer(problem: Problem, session: Session, workspace_limit: int | None = None) -> Answer:
    """As ``immediate``, with notes on records that were not trusted. Kept in memory, so that a repeat costs little."""
    current = settings.current()
    key = (
        problem, workspace_limit, current.find_only_solver, current.disable_solver, current.disable_nearest_target
    )  # fmt: skip
    kept = session.answers.get(key)
    if kept is not None and kept.is_fresh:
        return kept
    fresh = _look_up(problem.canonical(), session, workspace_limit)
    session.answers.put(key, fresh)
    return fresh


def _look_up(problem: Problem, session: Session, workspace_limit: int | None) -> Answer:
    standings = [one for one in sort_candidates(problem, session) if one.may_run]
    fitting = [one for one in standings if workspace_limit is None or one.workspace_bytes <= workspace_limit]
    if problem.is_empty:
        choices = tuple(Choice(one.solver_id, 0.0, one.workspace_bytes, Source.TRIVIAL) for one in fitting)
        return Answer(choices, (), time.monotonic())
    by_id = {one.solver_id: one for one in standings}
    known, notes = known_records(problem, session, by_id)
    choices = _from_db(fitting, known)
    if not choices:
        near, more = nearest_records(problem, session, by_id)
        choices = _from_db(fitting, near)
        notes += more if choices else ()
    return Answer(choices or _by_estimate(problem, session, fitting), notes, time.monotonic())


def _from_db(fitting: list[Standing], known: Mapping[str, Known]) -> tuple[Choice, ...]:
    usable = [(known[one.solver_id], one) for one in fitting if one.solver_id in known]
    timed = [(record, one) for record, one in usable if record.is_usable]
    timed.sort(key=lambda pair: (not pair[0].won, pair[0].time_ms, pair[1].workspace_bytes, pair[1].order))
    return tuple(
        Choice(one.solver_id, record.time_ms or 0.0, one.workspace_bytes, record.source, record.config)
        for record, one in timed
    )


def _by_estimate(problem: Problem, session: Session, fitting: list[Standing]) -> tuple[Choice, ...]:
    configs = tuned_configs(problem, session, {one.solver_id: one for one in fitting})
    return tuple(
        Choice(
            one.solver_id,
            one.likely_ms,
            one.workspace_bytes,
            Source.WTI if one.hint_ms is None else Source.REFERENCE,
            configs.get(one.solver_id, ""),
        )
        for one in rank(_estimates(fitting, hints(problem, session)))
    )


def _estimates(standings: Iterable[Standing], hinted: Mapping[str, float]) -> Iterator[Estimate]:
    return (
        Estimate(one.solver_id, one.wti, one.expected_ms, one.workspace_bytes, one.order, hinted.get(one.solver_id))
        for one in standings
    )


def explain(problem: Problem, session: Session) -> tuple[Explanation, ...]:
    """Every solver of the operation, applicable ones by expected time, then the others with their reasons."""
    canonical = problem.canonical()
    standings = sort_candidates(canonical, session)
    by_id = {one.solver_id: one for one in standings if one.may_run}
    known, _ = known_records(canonical, session, by_id)
    hinted = hints(canonical, session)
    order = {one.solver_id: index for index, one in enumerate(rank(_estimates(by_id.values(), hinted)))}
    standings.sort(key=lambda one: (order.get(one.solver_id, len(order)), one.order))
    return tuple(_explain_one(one, known.get(one.solver_id), hinted.get(one.solver_id)) for one in standings)


def _explain_one(one: Standing, record: Known | None, reference_ms: float | None) -> Explanation:
    applies = one.outcome in (None, Outcome.NOT_DYNAMIC)
    return Explanation(
        solver_id=one.solver_id,
        algorithm=one.algorithm,
        applicable=applies,
        reason=one.reason,
        wti=one.wti if applies else None,
        expected_ms=one.expected_ms if applies else None,
        workspace_bytes=one.workspace_bytes if applies else None,
        dynamic=one.is_dynamic if applies else None,
        record=record.outcome.value if record else "",
        recorded_ms=record.time_ms if record else None,
        reference_ms=reference_ms,
    )
