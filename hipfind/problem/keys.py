"""Keys of any kind: hipfind's own, whatever the operation, and MIOpen's."""

from __future__ import annotations

from collections.abc import Callable

from hipfind.problem.base import Problem
from hipfind.problem.conv import ConvProblem
from hipfind.problem.upsample import UpsampleProblem

_PARSERS: dict[str, Callable[[str], Problem]] = {"conv": ConvProblem.from_key, "upsample": UpsampleProblem.from_key}
"""By the first word of a key."""


def problem_of_key(key: str) -> Problem:
    """The problem of one of hipfind's keys, whatever the operation, or of one of MIOpen's. Raises ParseError."""
    parse = _PARSERS.get(key.partition("-")[0], ConvProblem.from_miopen_key)
    return parse(key)
