"""Writes what a Find learned into the perf DB."""

from __future__ import annotations

from collections.abc import Sequence

from hipfind.find.configs import solution_of
from hipfind.find.report import Candidate, Outcome, Source
from hipfind.find.session import Session
from hipfind.perfdb.records import FindRecord
from hipfind.problem.base import Problem

_STORED = (
    Outcome.WON,
    Outcome.LOST,
    Outcome.COMPILE_FAILED,
    Outcome.WRONG_RESULT,
    Outcome.SKIPPED_SLOW,
)
"""Outcomes that say something lasting; out of memory or a failed run may be another program's fault."""


_SOURCES = (Source.MEASURED, Source.USER_DB, Source.SYSTEM_DB)
"""A system file's records go into the user's beside new ones: else the winner would not be there."""


def store_candidates(problem: Problem, session: Session, candidates: Sequence[Candidate]) -> bool:
    """Store the measured candidates, and recorded ones whose outcome changed. True when the DB file now has them."""
    keep = [one for one in candidates if one.outcome in _STORED and one.source in _SOURCES]
    if not any(one.outcome is Outcome.WON for one in keep):
        return False
    target = session.device.target
    records = []
    for one in keep:
        solver = session.registry.get(one.solver_id)
        records.append(
            FindRecord(
                solver_id=one.solver_id,
                solver_version=solver.version,
                config=one.config,
                source_hash=solution_of(solver, target, problem, one.config).source_hash,
                time_ms=one.time_ms,
                spread_ms=one.spread_ms,
                samples=one.samples,
                workspace_bytes=one.workspace_bytes,
                outcome=one.outcome.name.lower(),
                detail=one.reason,
                verified=one.verified,
            )
        )
    return session.db.store_find(problem, target, session.environment, records)
