"""Builds the environment that records are trusted in."""

from __future__ import annotations

from collections.abc import Mapping

from hipfind.perfdb.records import Environment


def environment_of(facts: Mapping[str, str]) -> Environment:
    """Environment of a device's facts (``Device.environment()``).

    A device gives every version that can change its times: an upgrade of a library that it does not use leaves its
    records trusted. hipfind's own version is not among them: solver versions and source hashes say more exactly which
    records a release outdates.
    """
    return Environment(tuple(sorted(facts.items())))
