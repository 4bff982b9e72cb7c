"""Ranking by estimate: fastest first, unknown last, the same in every process."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hipfind.heuristics.ranking import Estimate, rank

estimates = st.lists(
    st.builds(
        Estimate,
        solver_id=st.text(min_size=1, max_size=3),
        wti=st.sampled_from([-2.0, 0.0, 0.5, 1.5]),
        expected_ms=st.sampled_from([0.5, 1.0, 2.0, float("inf")]),
        workspace_bytes=st.integers(0, 3),
        order=st.integers(0, 100),
    ),
    max_size=8,
    unique_by=lambda one: one.order,
)


@given(estimates, st.randoms())
def test_rank_is_a_pure_function_of_the_set(given_estimates: list[Estimate], shuffler: object) -> None:
    shuffled = list(given_estimates)
    shuffler.shuffle(shuffled)  # type: ignore[attr-defined]
    ranked = rank(shuffled)
    assert ranked == rank(given_estimates)
    known = [one for one in ranked if one.is_known]
    assert list(ranked[: len(known)]) == known
    assert [one.likely_ms for one in known] == sorted(one.likely_ms for one in known)


def test_ties_go_to_less_workspace_then_registry_order() -> None:
    rows = [
        Estimate("c", 1.0, 1.0, 8, 0),
        Estimate("b", 1.0, 1.0, 0, 2),
        Estimate("a", 1.0, 1.0, 0, 1),
        Estimate("unknown", -2.0, 0.1, 0, 3),
    ]
    assert [one.solver_id for one in rank(rows)] == ["a", "b", "c", "unknown"]


def test_a_hint_stands_for_the_expected_time() -> None:
    rows = [
        Estimate("a", 1.0, 1.0, 0, 0),
        Estimate("hinted", -2.0, 9.0, 0, 1, hint_ms=0.5),
        Estimate("b", 1.0, 0.7, 0, 2),
    ]
    assert [one.solver_id for one in rank(rows)] == ["hinted", "b", "a"]
