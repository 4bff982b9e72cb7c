"""Which records of the perf DB count: same environment, same solver version, same kernel sources."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping

from hipfind import settings
from hipfind.errors import ConfigError
from hipfind.find.candidates import Standing
from hipfind.find.configs import solution_of
from hipfind.find.report import Outcome, Source
from hipfind.find.session import Session
from hipfind.perfdb.records import FindRecord, Lookup, StoredFind
from hipfind.problem.base import Problem


@dataclasses.dataclass(frozen=True)
class Known:
    """A record that is trusted."""

    solver_id: str
    outcome: Outcome
    reason: str
    time_ms: float | None
    spread_ms: float
    samples: int
    config: str
    verified: bool
    source: Source
    created_at: float

    @property
    def won(self) -> bool:
        return self.outcome is Outcome.WON

    @property
    def is_usable(self) -> bool:
        return self.outcome in (Outcome.WON, Outcome.LOST) and self.time_ms is not None


def known_records(
    problem: Problem, session: Session, standings: Mapping[str, Standing]
) -> tuple[dict[str, Known], tuple[str, ...]]:
    """Trusted records of the problem by solver id, and a note for each kind of record that was not trusted.

    Records of solvers that are unknown or do not apply any more are passed over.
    """
    lookup = session.db.lookup(problem.key(), session.device.target.key, session.environment)
    known, unused = _sifted(lookup, problem, session, standings)
    notes = [
        f"{count} record(s) not used: {reason}"
        for reason, count in collections.Counter(stale.reason for stale in lookup.stale).items()
    ]
    return known, (*notes, *unused)


def nearest_records(
    problem: Problem, session: Session, standings: Mapping[str, Standing]
) -> tuple[dict[str, Known], tuple[str, ...]]:
    """Records of the nearest device of the same architecture, by solver id, with a note that names it.

    They rank the solvers where this device has no records; they never end a Find.
    """
    target = session.device.target
    if settings.current().disable_nearest_target:
        return {}, ()
    lookup = session.db.lookup_nearest(problem.key(), target, session.environment)
    known, _ = _sifted(lookup, problem, session, standings)
    if not any(one.is_usable for one in known.values()):
        return {}, ()
    known = {name: dataclasses.replace(one, source=Source.NEAREST, verified=False) for name, one in known.items()}
    return known, (f"times are of {lookup.trusted[0].target_key}, the nearest device to {target.key} with records",)


def _sifted(
    lookup: Lookup[FindRecord], problem: Problem, session: Session, standings: Mapping[str, Standing]
) -> tuple[dict[str, Known], list[str]]:
    """Records that count by solver id, and a note on those that do not."""
    known: dict[str, Known] = {}
    outdated: list[str] = []
    refused: list[str] = []
    for stored in lookup.trusted:
        standing = standings.get(stored.record.solver_id)
        if standing is None:
            continue
        try:
            is_current = _is_current(stored, standing, problem, session)
        except ConfigError as error:
            refused.append(f"the record of {stored.record.solver_id} was not used: {error}")
            continue
        if not is_current:
            outdated.append(stored.record.solver_id)
            continue
        record = _known(stored)
        if record is not None:
            known[record.solver_id] = record
    if outdated:
        refused.append(f"records of an earlier version of {', '.join(sorted(outdated))} were not used")
    return known, refused


def _is_current(stored: StoredFind, standing: Standing, problem: Problem, session: Session) -> bool:
    """Whether it is of today's solver and sources. Raises ConfigError with the rule that its config breaks."""
    record = stored.record
    if record.solver_version != standing.solver.version:
        return False
    solution = solution_of(standing.solver, session.device.target, problem, record.config)
    return record.source_hash == solution.source_hash


def _known(stored: StoredFind) -> Known | None:
    record = stored.record
    try:
        outcome = Outcome[record.outcome.upper()]
    except KeyError:  # written by a newer hipfind
        return None
    return Known(
        record.solver_id, outcome, record.detail, record.time_ms, record.spread_ms, record.samples, record.config,
        record.verified and not stored.layer,  # a system file's was not checked on this machine
        Source.SYSTEM_DB if stored.layer else Source.USER_DB,
        stored.created_at,
    )  # fmt: skip
