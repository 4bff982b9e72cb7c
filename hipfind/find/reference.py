"""MIOpen's records of a problem, where the perf DB has them: shown to people, and a hint when nothing was measured.

They are another program's timings, perhaps on another device of the architecture. They never count as ours: a Find
measures all the same, and stores only what it measured.
"""

from __future__ import annotations

from hipfind.errors import ProblemError
from hipfind.find.session import Session
from hipfind.perfdb.miopen_text import fastest
from hipfind.perfdb.references import Reference as Reference
from hipfind.perfdb.references import nearest
from hipfind.problem.base import Problem
from hipfind.problem.conv import ConvProblem
from hipfind.problem.miopen_perf_key import encode_miopen_perf_key


def references(problem: Problem, session: Session) -> tuple[Reference, ...]:
    """Records of the problem on any device: those of this device or the nearest of its architecture first."""
    canonical = problem.canonical()
    found = session.db.references(canonical.key(), _perf_key(canonical))
    target = session.device.target
    first = nearest(found, target.arch, target.compute_units)
    return (*first, *(one for one in found if one not in first))


def _perf_key(problem: Problem) -> str:
    if not isinstance(problem, ConvProblem) or not problem.has_default_scaling:
        return ""
    try:
        return encode_miopen_perf_key(problem)
    except ProblemError:
        return ""


def hints(problem: Problem, session: Session) -> dict[str, float]:
    """MIOpen's times in ms by solver id, from this device or the nearest of its architecture."""
    target = session.device.target
    found = nearest(session.db.references(problem.key(), ""), target.arch, target.compute_units)
    return {time.solver_id: time.time_ms for one in found for time in reversed(one.times) if time.time_ms > 0.0}


def notes(problem: Problem, session: Session) -> tuple[str, ...]:
    """A sentence for a Find's report where MIOpen has measured this problem on this architecture."""
    target = session.device.target
    sentences = []
    for one in nearest(session.db.references(problem.key(), ""), target.arch, target.compute_units):
        best = fastest(one.times)
        if best is not None:
            sentences.append(
                f"MIOpen's fastest on {_where(one, target.compute_units)} was {best.solver_id}, {best.time_ms:.4g} ms "
                f"({one.source})"
            )
    return tuple(sentences)


def _where(one: Reference, compute_units: int) -> str:
    """The device, and what differs from this one."""
    return one.target_key if one.compute_units == compute_units else f"{one.target_key} (here {compute_units} units)"
