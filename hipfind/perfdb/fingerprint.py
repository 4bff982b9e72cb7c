"""Builds the environment that records are trusted in."""

from __future__ import annotations

from collections.abc import Mapping

from hipfind.perfdb.records import Environment
from hipfind.version import VERSION


def environment_of(facts: Mapping[str, str]) -> Environment:
    """Environment of a device's facts (``Device.environment()``) and this hipfind.

    A device gives every version that can change its times, numpy's BLAS too where products run on it: an upgrade of
    a library that a device does not use leaves its records trusted.
    """
    return Environment(tuple(sorted({**facts, "hipfind": VERSION}.items())))
