"""What the perf DB stores, as frozen values: environments, find records (candidates), perf records (tuned configs)."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from typing import Any, Generic, TypeAlias, TypeVar

WON = "won"
"""Outcome of the one candidate that a Find chose."""

_MAX_INTEGER = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class Environment:
    """What besides problem, target and solver decides which solver is fastest: versions of drivers, BLAS, compilers.

    ``facts``: (name, value) pairs, sorted by name.
    """

    facts: tuple[tuple[str, str], ...]

    @functools.cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits; equal exactly when the facts are."""
        return hashlib.sha256(self.to_json().encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def to_json(self) -> str:
        """The facts as a JSON object, ASCII only."""
        return json.dumps(dict(self.facts), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Environment:
        """Inverse of ``to_json``. Raises ValueError for text that is not a JSON object."""
        facts = json.loads(text)
        if not isinstance(facts, dict):
            raise ValueError("environment facts must be a JSON object")
        return cls(tuple(sorted((str(name), str(value)) for name, value in facts.items())))

    def difference(self, now: Environment) -> str:
        """Which facts changed from this environment to ``now``, e.g. ``driver was 6.1, is 6.2``; "" when none did."""
        then, current = dict(self.facts), dict(now.facts)
        changed = [name for name in sorted({*then, *current}) if then.get(name) != current.get(name)]
        return "; ".join(f"{name} was {then.get(name, 'absent')}, is {current.get(name, 'absent')}" for name in changed)


@dataclasses.dataclass(frozen=True)
class FindRecord:
    """How one candidate of a Find ended.

    ``time_ms``: median of ``samples`` runs, None when it was not timed; ``spread_ms``: its spread. ``workspace_bytes``
    is a hint for people: the solver is asked again before it runs. ``outcome``: "won", "lost", or another word of
    Find's; ``detail``: the reason. ``config``: perf config as text, "" without one. ``source_hash``: identity of the
    code that ran. ``verified``: its output was checked on this machine.
    """

    solver_id: str
    solver_version: int
    config: str
    source_hash: str
    time_ms: float | None
    spread_ms: float
    samples: int
    workspace_bytes: int
    outcome: str
    detail: str
    verified: bool

    def invalid_reason(self) -> str:
        """Which rule the record breaks; "" for a valid one. Used before storing, and on all that a file gives."""
        reason = _common_reason(self)
        if not reason and self.time_ms is not None:
            reason = _milliseconds_reason("time_ms", self.time_ms)
        if not reason and not (is_text(self.outcome) and self.outcome):
            reason = f"outcome must be a word, not {self.outcome!r}"
        return reason


@dataclasses.dataclass(frozen=True)
class PerfRecord:
    """A tuned config of one solver, with its time. Fields as in FindRecord.

    ``refused``: the rule that the config was found to break when it was to be used, None while it is good. One that
    was refused is kept, and used no more; a search that writes the solver's config again takes its place.
    """

    solver_id: str
    solver_version: int
    config: str
    source_hash: str
    time_ms: float
    spread_ms: float
    samples: int
    workspace_bytes: int
    refused: str | None = None

    def invalid_reason(self) -> str:
        """As FindRecord.invalid_reason."""
        if not (self.refused is None or (is_text(self.refused) and self.refused)):
            return f"refused must be the rule that the config breaks, or nothing, not {self.refused!r}"
        return _common_reason(self) or _milliseconds_reason("time_ms", self.time_ms)


def _common_reason(record: FindRecord | PerfRecord) -> str:
    if not (isinstance(record.solver_id, str) and record.solver_id):
        return f"solver_id must be a name, not {record.solver_id!r}"
    for name in ("solver_id", "config", "source_hash"):
        if not is_text(getattr(record, name)):
            return f"{name} must be Unicode text, not {getattr(record, name)!r}"
    for name in ("solver_version", "samples", "workspace_bytes"):
        value = getattr(record, name)
        if not (isinstance(value, int) and 0 <= value <= _MAX_INTEGER):
            return f"{name} must be a whole number of 0 or more that fits 64 bits, not {value!r}"
    return _milliseconds_reason("spread_ms", record.spread_ms)


def _milliseconds_reason(name: str, value: Any) -> str:
    if isinstance(value, int | float) and math.isfinite(value) and value >= 0:
        return ""
    return f"{name} must be a finite number of 0 or more, not {value!r}"


def is_text(value: object) -> bool:
    """True for text that sqlite can hold exactly: lone surrogates have no UTF-8 form."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


R = TypeVar("R", bound=FindRecord | PerfRecord)


@dataclasses.dataclass(frozen=True)
class Stored(Generic[R]):
    """A record with where it belongs. ``environment`` is a fingerprint, ``created_at`` is in seconds since 1970 (UTC).

    ``in_memory``: it is only in this process, not in the file. ``layer``: path of the system file that it is from, ""
    for the user's DB.
    """

    record: R
    problem_key: str
    target_key: str
    environment: str
    created_at: float
    in_memory: bool
    layer: str = ""

    def age_s(self, now: float) -> float:
        """Age in seconds at time ``now``; 0 for a record from a clock that is ahead."""
        return max(0.0, now - self.created_at)


StoredFind: TypeAlias = Stored[FindRecord]
StoredPerf: TypeAlias = Stored[PerfRecord]


@dataclasses.dataclass(frozen=True)
class Stale(Generic[R]):
    """A record that is not to be used, and why."""

    stored: Stored[R]
    reason: str


@dataclasses.dataclass(frozen=True)
class Lookup(Generic[R]):
    """Records of a problem on a target: ``trusted`` of the environment asked for, fastest first; ``stale`` the rest."""

    trusted: tuple[Stored[R], ...]
    stale: tuple[Stale[R], ...]
