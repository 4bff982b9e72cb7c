"""Environments and the rules that records keep."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipfind.perfdb.fingerprint import environment_of
from hipfind.perfdb.records import Environment
from tests.helpers.perfdb import ENVIRONMENT, find_record, perf_record

_FACTS = st.dictionaries(st.text(), st.text(), max_size=5)


def _environment(facts: dict[str, str]) -> Environment:
    return Environment(tuple(sorted(facts.items())))


@given(_FACTS, _FACTS)
def test_fingerprints_are_equal_exactly_when_the_facts_are(first: dict[str, str], second: dict[str, str]) -> None:
    same = _environment(first).fingerprint == _environment(second).fingerprint
    assert same == (first == second)


@given(st.dictionaries(st.text(st.characters()), st.text(st.characters()), max_size=5))
def test_facts_round_trip_as_json(facts: dict[str, str]) -> None:
    environment = _environment(facts)
    assert Environment.from_json(environment.to_json()) == environment


@pytest.mark.parametrize("text", ["", "[]", "7", "{", '"text"'])
def test_facts_that_are_no_object_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Environment.from_json(text)


def test_a_difference_names_both_values() -> None:
    then = _environment({"blas": "4.3", "driver": "6.2", "numpy": "2.0"})
    now = _environment({"blas": "4.3", "driver": "6.3", "compiler": "gcc 12"})
    assert then.difference(now) == ("compiler was absent, is gcc 12; driver was 6.2, is 6.3; numpy was 2.0, is absent")
    assert then.difference(then) == ""


def test_an_environment_of_a_device_holds_its_facts_in_any_order() -> None:
    environment = environment_of({"driver": "6.2", "blas": "4.3"})
    assert environment == ENVIRONMENT == environment_of({"blas": "4.3", "driver": "6.2"})
    assert environment.fingerprint != environment_of({"blas": "4.3", "driver": "6.3"}).fingerprint


_BROKEN: list[dict[str, Any]] = [
    {"solver_id": ""},
    {"solver_id": "a\udcff"},
    {"config": "\ud800"},
    {"source_hash": None},
    {"solver_version": -1},
    {"solver_version": 1.0},
    {"samples": -1},
    {"samples": 2**63},
    {"workspace_bytes": -1},
    {"workspace_bytes": 2**64},
    {"time_ms": math.nan},
    {"time_ms": math.inf},
    {"time_ms": -0.5},
    {"time_ms": "fast"},
    {"spread_ms": math.nan},
    {"spread_ms": -math.inf},
]


@pytest.mark.parametrize("change", [*_BROKEN, {"outcome": ""}, {"outcome": None}], ids=str)
def test_a_find_record_that_breaks_a_rule_says_which(change: dict[str, Any]) -> None:
    (name,) = change
    assert find_record(**change).invalid_reason().startswith(name)


@pytest.mark.parametrize("change", [*_BROKEN, {"time_ms": None}], ids=str)
def test_a_perf_record_that_breaks_a_rule_says_which(change: dict[str, Any]) -> None:
    (name,) = change
    assert perf_record(**change).invalid_reason().startswith(name)


def test_valid_records_break_no_rule() -> None:
    assert find_record(time_ms=None, detail="x\udcff").invalid_reason() == ""
    assert find_record(time_ms=0, workspace_bytes=2**63 - 1).invalid_reason() == ""
    assert perf_record().invalid_reason() == ""
    assert ENVIRONMENT.fingerprint == Environment(ENVIRONMENT.facts).fingerprint
