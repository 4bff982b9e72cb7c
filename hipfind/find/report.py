"""What find and immediate mode answer: choices with their source, candidates with one typed outcome each."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

from hipfind.problem.base import Problem


class Source(enum.Enum):
    """Where an answer came from."""

    MEASURED = "measured now"
    USER_DB = "user DB"
    SYSTEM_DB = "system DB"
    NEAREST = "nearest device"
    REFERENCE = "MIOpen's records"
    WTI = "WTI"
    TRIVIAL = "trivial"


class Outcome(enum.Enum):
    """How one candidate ended."""

    WON = "won"
    LOST = "lost"
    EXCLUDED = "excluded by settings"
    NOT_DYNAMIC = "not dynamic"
    NOT_APPLICABLE = "not applicable"
    WORKSPACE_TOO_SMALL = "workspace too small"
    COMPILE_FAILED = "compile failed"
    RUN_FAILED = "run failed"
    OUT_OF_MEMORY = "out of memory"
    WRONG_RESULT = "wrong result"
    SKIPPED_SLOW = "skipped as too slow"
    NOT_MEASURED = "not measured"


@dataclasses.dataclass(frozen=True)
class Choice:
    """A solution that can be used. ``time_ms`` is measured or expected, as ``source`` says."""

    solver_id: str
    time_ms: float
    workspace_bytes: int
    source: Source
    config: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data."""
        return {**dataclasses.asdict(self), "source": self.source.value}


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One solver's part in a Find. ``time_ms`` is the median of ``samples`` runs, None when it was not timed."""

    solver_id: str
    outcome: Outcome
    reason: str = ""
    time_ms: float | None = None
    spread_ms: float = 0.0
    samples: int = 0
    workspace_bytes: int = 0
    expected_ms: float | None = None
    config: str = ""
    verified: bool = False
    source: Source = Source.MEASURED

    @property
    def is_usable(self) -> bool:
        """True for candidates that were timed and gave a right result."""
        return self.outcome in (Outcome.WON, Outcome.LOST) and self.time_ms is not None

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data."""
        return {**dataclasses.asdict(self), "outcome": self.outcome.value, "source": self.source.value}


@dataclasses.dataclass(frozen=True)
class Searched:
    """What the search for one solver's perf config did. ``config`` is "" and ``time_ms`` None where none was right.

    ``default_ms``: median of the default config, None where it gave no right result; ``tried``: configs that were run
    or compiled, ``failed`` of them without a right result.
    """

    solver_id: str
    config: str
    time_ms: float | None
    default_ms: float | None
    tried: int
    failed: int


@dataclasses.dataclass(frozen=True)
class FindReport:
    """Answer of a Find.

    ``results``: usable choices, fastest first. ``candidates``: every solver of the operation with its outcome, in
    registry order. ``source``: where the answer as a whole came from. ``stored``: whether the DB now holds it.
    ``notes``: sentences for people, e.g. records that were not trusted and why. ``searches``: one for each solver that
    was tuned.
    """

    problem: Problem
    device: str
    mode: str
    source: Source
    results: tuple[Choice, ...]
    candidates: tuple[Candidate, ...]
    stored: bool = False
    notes: tuple[str, ...] = ()
    searches: tuple[Searched, ...] = ()

    @property
    def best(self) -> Choice | None:
        """The fastest choice, None when nothing is usable."""
        return self.results[0] if self.results else None

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data."""
        return {
            "problem": self.problem.key(),
            "device": self.device,
            "mode": self.mode,
            "source": self.source.value,
            "stored": self.stored,
            "results": [choice.to_dict() for choice in self.results],
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "notes": list(self.notes),
            "searches": [dataclasses.asdict(search) for search in self.searches],
        }


@dataclasses.dataclass(frozen=True)
class Progress:
    """One step of a running Find, for progress bars: ``done`` of ``total`` in ``stage``, on ``solver_id``."""

    stage: str  # "tune", "compile", "verify", "time"
    solver_id: str
    done: int
    total: int


OnProgress = Callable[[Progress], None]


@dataclasses.dataclass(frozen=True)
class Explanation:
    """One solver's row of ``explain``. ``wti`` and ``expected_ms`` are None where it does not apply.

    ``reference_ms``: MIOpen's time for this algorithm on this device or the nearest of its architecture.
    """

    solver_id: str
    algorithm: str
    applicable: bool
    reason: str
    wti: float | None
    expected_ms: float | None
    workspace_bytes: int | None
    dynamic: bool | None
    record: str
    recorded_ms: float | None
    reference_ms: float | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data."""
        return dataclasses.asdict(self)
