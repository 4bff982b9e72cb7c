"""MIOpen's text of a find-db record: ``KEY=SOLVER:TIME_MS,WORKSPACE,ALGORITHM;...``, and its older form.

The older form is ``ALGORITHM:SOLVER,TIME_MS,WORKSPACE,ALGORITHM,REST``, as in the files of gfx1030 and before. Source:
``FindDbData`` and ``DbRecord`` of MIOpen; the characters ``=:;,`` separate parts and cannot be in one.
"""

from __future__ import annotations

import dataclasses
import math
import re

from hipfind.errors import PerfDbError

LEGAL_VALUE = "SOLVER:TIME_MS,WORKSPACE_BYTES,ALGORITHM joined by ';' (older files: ALGORITHM:SOLVER,TIME_MS,...)"
LEGAL_LINE = f"a record is KEY=VALUE, its value {LEGAL_VALUE}"

_TIME = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.ASCII)
_BYTES = re.compile(r"\d{1,20}", re.ASCII)
_DIRECTION_NAMES = {"fwd": "Fwd", "bwd": "BwdData", "wrw": "BwdWeights"}


@dataclasses.dataclass(frozen=True)
class ReferenceTime:
    """One solver of a find-db record: MIOpen's solver id and algorithm, ms, bytes."""

    solver_id: str
    time_ms: float
    workspace_bytes: int
    algorithm: str


def split_line(line: str) -> tuple[str, str]:
    """Key and value of a line without its end. Raises PerfDbError."""
    key, equals, value = line.partition("=")
    if not (key and equals and value) or "=" in value:
        raise PerfDbError(f"this is not a record: {LEGAL_LINE}", got=_shown(line))
    return key, value


def parse_value(value: str) -> tuple[ReferenceTime, ...]:
    """Solvers of a record's value, in its order. Raises PerfDbError naming the part that is not legal."""
    times = tuple(_parse_part(part) for part in value.split(";"))
    if len({one.solver_id for one in times}) != len(times):
        raise PerfDbError("a record names each solver once", got=_shown(value))
    return times


def _parse_part(part: str) -> ReferenceTime:
    name, colon, rest = part.partition(":")
    fields = rest.split(",")
    if len(fields) == 5:  # the older form
        name, fields = fields[0], fields[1:4]
    if not colon or not name or len(fields) != 3 or ":" in rest:
        raise PerfDbError(f"this part of a record's value is not legal: it is {LEGAL_VALUE}", got=_shown(part))
    time_text, size_text, algorithm = fields
    time_ms = float(time_text) if _TIME.fullmatch(time_text) else math.nan
    if not math.isfinite(time_ms):
        raise PerfDbError("a record's time is a number of ms, 0 or more", got=_shown(part))
    if not _BYTES.fullmatch(size_text):
        raise PerfDbError("a record's workspace is a whole number of bytes", got=_shown(part))
    if not algorithm:
        raise PerfDbError(f"this part of a record's value has no algorithm: it is {LEGAL_VALUE}", got=_shown(part))
    return ReferenceTime(name, time_ms, int(size_text), algorithm)


def fastest(times: tuple[ReferenceTime, ...]) -> ReferenceTime | None:
    """The solver with the least time; None where none has one (MIOpen writes 0 for what it did not time)."""
    return min((one for one in times if one.time_ms > 0.0), key=lambda one: one.time_ms, default=None)


def format_value(times: list[ReferenceTime]) -> str:
    """A record's value in the present form, fastest first, with six significant digits as MIOpen prints them."""
    ordered = sorted(times, key=lambda one: (one.time_ms, one.solver_id))
    return ";".join(f"{one.solver_id}:{one.time_ms:.6g},{one.workspace_bytes},{one.algorithm}" for one in ordered)


def algorithm_name(direction: str, algorithm: str) -> str:
    """MIOpen's name of an algorithm ("GEMM", "Direct", ...) in one direction, e.g. miopenConvolutionFwdAlgoGEMM."""
    return f"miopenConvolution{_DIRECTION_NAMES[direction]}Algo{algorithm}"


def _shown(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}..."
