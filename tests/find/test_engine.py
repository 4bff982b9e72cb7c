"""The find engine on a fake device: outcomes, modes, what is stored and what is trusted."""

from __future__ import annotations

import dataclasses

import pytest

from hipfind import settings
from hipfind.errors import SettingError, UnknownSolverError
from hipfind.find.engine import find
from hipfind.find.immediate import explain, immediate
from hipfind.find.report import FindReport, Outcome, Source
from hipfind.find.session import Session
from hipfind.problem.conv import ConvProblem
from tests.find.conftest import MakeSession
from tests.helpers.fakes import Behaviour, fake_solver


def outcomes(report: FindReport) -> dict[str, Outcome]:
    return {candidate.solver_id: candidate.outcome for candidate in report.candidates}


def launches(session: Session) -> dict[str, int]:
    return {name: behaviour.launches for name, behaviour in session.device.behaviours.items()}  # type: ignore[attr-defined]


def test_every_kind_of_candidate_ends_in_its_own_outcome(make_session: MakeSession, problem: ConvProblem) -> None:
    solvers = [
        fake_solver("Best"),
        fake_solver("Second"),
        fake_solver("FarBehind"),
        fake_solver("Hopeless", expected=60_000.0),
        fake_solver("Refuses", applicable=False),
        fake_solver("Static", dynamic=False),
        fake_solver("Broken"),
        fake_solver("Crashes"),
        fake_solver("Wrong"),
        fake_solver("Forgets"),
    ]
    behaviours = {
        "Best": Behaviour((1.0,)),
        "Second": Behaviour((1.5,)),
        "FarBehind": Behaviour((30.0,)),
        "Hopeless": Behaviour((1.0,)),
        "Static": Behaviour((0.1,)),
        "Broken": Behaviour(compile_error="line 3: expected ';'"),
        "Crashes": Behaviour(launch_error="illegal address"),
        "Wrong": Behaviour((0.01,), result="scaled"),
        "Forgets": Behaviour((0.01,), result="unwritten"),
    }
    session = make_session(solvers, behaviours)
    report = find(problem, session, mode="dynamic_hybrid")
    assert outcomes(report) == {
        "Best": Outcome.WON,
        "Second": Outcome.LOST,
        "FarBehind": Outcome.SKIPPED_SLOW,
        "Hopeless": Outcome.SKIPPED_SLOW,
        "Refuses": Outcome.NOT_APPLICABLE,
        "Static": Outcome.NOT_DYNAMIC,
        "Broken": Outcome.COMPILE_FAILED,
        "Crashes": Outcome.RUN_FAILED,
        "Wrong": Outcome.WRONG_RESULT,
        "Forgets": Outcome.WRONG_RESULT,
    }
    reasons = {candidate.solver_id: candidate.reason for candidate in report.candidates}
    assert "expected ';'" in reasons["Broken"]
    assert "illegal address" in reasons["Crashes"]
    assert "unwritten" in reasons["Forgets"]
    assert report.source is Source.MEASURED and report.stored
    assert [choice.solver_id for choice in report.results] == ["Best", "Second"]
    assert report.results[0].time_ms == 1.0
    assert launches(session)["Hopeless"] == launches(session)["Static"] == 0


def test_a_failure_in_the_middle_of_timing_ends_only_that_candidate(
    make_session: MakeSession, problem: ConvProblem
) -> None:
    behaviours = {"Dies": Behaviour((0.5,), launch_error="lost", fail_after=2), "Lives": Behaviour((1.0,))}
    report = find(problem, make_session([fake_solver("Dies"), fake_solver("Lives")], behaviours), mode="normal")
    assert outcomes(report) == {"Dies": Outcome.RUN_FAILED, "Lives": Outcome.WON}


@pytest.mark.parametrize("when", ["first", "always"])
def test_a_fast_solver_that_is_wrong_in_one_slab_is_refused(
    make_session: MakeSession, problem: ConvProblem, when: str
) -> None:
    """B34: off by one row; the sampled check may miss it, the comparison of whole outputs may not."""
    solvers = [fake_solver("OffByOne"), fake_solver("Right")]
    behaviours = {"OffByOne": Behaviour((0.1,), result="last_row"), "Right": Behaviour((1.0,))}
    report = find(problem, make_session(solvers, behaviours), mode="normal", verify=when)
    assert outcomes(report) == {"OffByOne": Outcome.WRONG_RESULT, "Right": Outcome.WON}


def test_without_verification_the_fast_wrong_one_wins(make_session: MakeSession, problem: ConvProblem) -> None:
    """What verify="off" risks; shows that the refusal above is the verifier's doing."""
    solvers = [fake_solver("OffByOne"), fake_solver("Right")]
    behaviours = {"OffByOne": Behaviour((0.1,), result="last_row"), "Right": Behaviour((1.0,))}
    report = find(problem, make_session(solvers, behaviours), mode="normal", verify="off")
    assert outcomes(report)["OffByOne"] is Outcome.WON
    assert not any(candidate.verified for candidate in report.candidates)


def test_first_means_once_on_a_machine(make_session: MakeSession, problem: ConvProblem) -> None:
    solvers = [fake_solver("A")]
    first = make_session(solvers, {"A": Behaviour()})
    assert find(problem, first, mode="normal").candidates[0].verified
    again = make_session(solvers, {"A": Behaviour(result="scaled")})
    report = find(problem, again, mode="normal")  # trusted: not checked again
    assert outcomes(report) == {"A": Outcome.WON} and report.candidates[0].verified
    report = find(problem, again, mode="normal", verify="always")
    assert outcomes(report) == {"A": Outcome.WRONG_RESULT}


def test_a_second_process_answers_from_the_db_without_running(make_session: MakeSession, problem: ConvProblem) -> None:
    solvers = [fake_solver("Slow"), fake_solver("Fast")]
    first = make_session(solvers, {"Slow": Behaviour((2.0,)), "Fast": Behaviour((1.0,))})
    find(problem, first)
    second = make_session(solvers, {"Slow": Behaviour((2.0,)), "Fast": Behaviour((1.0,))})
    for mode in ("hybrid", "dynamic_hybrid", "fast", "2", "3", "5"):
        report = find(problem, second, mode=mode)
        assert report.source is Source.USER_DB and not report.stored
        assert report.best is not None and report.best.solver_id == "Fast"
        assert outcomes(report) == {"Slow": Outcome.LOST, "Fast": Outcome.WON}
    assert [choice.source for choice in immediate(problem, second)] == [Source.USER_DB] * 2
    assert immediate(problem, second)[0].solver_id == "Fast"
    assert launches(second) == {"Slow": 0, "Fast": 0}


def test_normal_measures_again(make_session: MakeSession, problem: ConvProblem) -> None:
    session = make_session([fake_solver("A")], {"A": Behaviour()})
    find(problem, session, mode="normal")
    before = launches(session)["A"]
    assert find(problem, session, mode="1").source is Source.MEASURED
    assert launches(session)["A"] > before


def test_fast_mode_measures_nothing_on_a_miss(make_session: MakeSession, problem: ConvProblem) -> None:
    solvers = [fake_solver("A", expected=3.0), fake_solver("B", expected=2.0)]
    session = make_session(solvers, {"A": Behaviour(), "B": Behaviour()})
    report = find(problem, session, mode="fast")
    assert report.source is Source.WTI and [choice.solver_id for choice in report.results] == ["B", "A"]
    assert launches(session) == {"A": 0, "B": 0}


def test_hybrid_also_measures_solvers_that_dynamic_hybrid_left_out(
    make_session: MakeSession, problem: ConvProblem
) -> None:
    solvers = [fake_solver("Dynamic"), fake_solver("Static", dynamic=False)]
    session = make_session(solvers, {"Dynamic": Behaviour((1.0,)), "Static": Behaviour((0.4,))})
    assert outcomes(find(problem, session, mode="dynamic_hybrid")) == {
        "Dynamic": Outcome.WON,
        "Static": Outcome.NOT_DYNAMIC,
    }
    report = find(problem, session, mode="hybrid")
    assert outcomes(report) == {"Dynamic": Outcome.LOST, "Static": Outcome.WON}
    assert immediate(problem, session)[0].solver_id == "Static"
    measured = launches(session)
    again = find(problem, session, mode="dynamic_hybrid")  # what was measured once needs no compiling of this mode
    assert outcomes(again) == {"Dynamic": Outcome.LOST, "Static": Outcome.WON} and launches(session) == measured


def test_dynamic_hybrid_takes_every_solver_when_it_tunes(make_session: MakeSession, problem: ConvProblem) -> None:
    solvers = [fake_solver("Dynamic"), fake_solver("Static", dynamic=False)]
    session = make_session(solvers, {"Dynamic": Behaviour((1.0,)), "Static": Behaviour((0.4,))})
    assert outcomes(find(problem, session, mode="dynamic_hybrid", tune=True)) == {
        "Dynamic": Outcome.LOST,
        "Static": Outcome.WON,
    }


def test_only_what_is_new_is_measured(make_session: MakeSession, problem: ConvProblem) -> None:
    """B73: a new solver, or a new version of one, is measured alone; the others' times are kept."""
    a, b = fake_solver("A"), fake_solver("B")
    find(problem, make_session([a, b], {"A": Behaviour((2.0,)), "B": Behaviour((3.0,))}))
    with_c = make_session([a, b, fake_solver("C")], {name: Behaviour((1.0,)) for name in "ABC"})
    report = find(problem, with_c)
    assert launches(with_c)["A"] == launches(with_c)["B"] == 0 < launches(with_c)["C"]
    assert outcomes(report) == {"A": Outcome.LOST, "B": Outcome.LOST, "C": Outcome.WON}
    newer = make_session([fake_solver("A", version=2), b, fake_solver("C")], {n: Behaviour((0.5,)) for n in "ABC"})
    report = find(problem, newer)
    assert launches(newer)["B"] == launches(newer)["C"] == 0 < launches(newer)["A"]
    assert outcomes(report)["A"] is Outcome.WON
    assert any("earlier version of A" in note for note in report.notes)


def test_another_environment_is_reported_and_not_trusted(make_session: MakeSession, problem: ConvProblem) -> None:
    solvers = [fake_solver("A"), fake_solver("B", expected=0.5)]
    behaviours = {"A": Behaviour((1.0,)), "B": Behaviour((2.0,))}
    find(problem, make_session(solvers, behaviours))
    other = make_session(solvers, behaviours)
    other.device.facts["driver"] = "2"  # type: ignore[attr-defined]
    other = Session(other.device, other.db, other.registry, other.timer)
    assert immediate(problem, other)[0].source is Source.WTI
    report = find(problem, other)
    assert report.source is Source.MEASURED and any("not used" in note for note in report.notes)
    back = make_session(solvers, behaviours)  # the first environment's records are still there
    assert find(problem, back).source is Source.USER_DB


def test_another_device_is_a_miss_and_its_records_survive(make_session: MakeSession, problem: ConvProblem) -> None:
    from hipfind.target import known

    solvers, behaviours = [fake_solver("A")], {"A": Behaviour()}
    find(problem, make_session(solvers, behaviours))
    other = make_session(solvers, behaviours, target=known("gfx90a"))
    assert find(problem, other).source is Source.MEASURED
    renamed = dataclasses.replace(known("gfx942"), name="sold under another label")
    assert find(problem, make_session(solvers, behaviours, target=renamed)).source is Source.USER_DB


def test_a_workspace_limit_does_not_poison_the_general_answer(make_session: MakeSession, problem: ConvProblem) -> None:
    """B18, both ways round."""
    solvers = [fake_solver("Gemm", workspace=1 << 20), fake_solver("Naive", expected=9.0)]
    behaviours = {"Gemm": Behaviour((1.0,)), "Naive": Behaviour((2.0,))}
    session = make_session(solvers, behaviours)
    limited = find(problem, session, workspace_limit=0)
    assert outcomes(limited) == {"Gemm": Outcome.WORKSPACE_TOO_SMALL, "Naive": Outcome.WON} and not limited.stored
    assert immediate(problem, session)[0].solver_id == "Gemm"
    full = find(problem, session, workspace_limit=8 << 20)
    assert full.best is not None and full.best.solver_id == "Gemm" and full.stored
    second = make_session(solvers, behaviours)
    limited = find(problem, second, workspace_limit=0)
    assert limited.source is Source.USER_DB and limited.best is not None and limited.best.solver_id == "Naive"
    assert outcomes(limited) == {"Gemm": Outcome.WORKSPACE_TOO_SMALL, "Naive": Outcome.WON}
    assert [choice.solver_id for choice in immediate(problem, second, workspace_limit=0)] == ["Naive"]


def test_a_list_of_solvers_does_not_poison_the_general_answer(make_session: MakeSession, problem: ConvProblem) -> None:
    solvers, behaviours = [fake_solver("A"), fake_solver("B")], {"A": Behaviour((1.0,)), "B": Behaviour((2.0,))}
    session = make_session(solvers, behaviours)
    with settings.override(find_only_solver="B"):
        report = find(problem, session)
        assert outcomes(report) == {"A": Outcome.EXCLUDED, "B": Outcome.WON} and not report.stored
    with settings.override(disable_solver="A"):
        assert outcomes(find(problem, session)) == {"A": Outcome.EXCLUDED, "B": Outcome.WON}
    assert find(problem, session).best.solver_id == "A"  # type: ignore[union-attr]


def test_unknown_names_are_refused(make_session: MakeSession, problem: ConvProblem) -> None:
    session = make_session([fake_solver("Gemm")], {"Gemm": Behaviour()})
    with settings.override(find_only_solver="Gem"), pytest.raises(UnknownSolverError, match="did you mean Gemm"):
        find(problem, session)
    with pytest.raises(SettingError, match="banana"):
        find(problem, session, mode="banana")
    with pytest.raises(SettingError, match="first, off, always"):
        find(problem, session, verify="maybe")
    assert session.db.lookup(problem.key(), session.device.target.key, session.environment).trusted == ()


def test_nothing_usable_stores_nothing(make_session: MakeSession, problem: ConvProblem) -> None:
    session = make_session([fake_solver("Wrong")], {"Wrong": Behaviour(result="scaled")})
    report = find(problem, session)
    assert report.best is None and report.results == () and not report.stored


def test_out_of_memory_is_an_outcome_and_smaller_workspaces_still_run(
    make_session: MakeSession, problem: ConvProblem
) -> None:
    solvers = [fake_solver("Huge", workspace=1 << 30), fake_solver("Large", workspace=1 << 20), fake_solver("Small")]
    session = make_session(solvers, {name: Behaviour() for name in ("Huge", "Large", "Small")})
    session.device.memory_limit = 1 << 25  # type: ignore[attr-defined]
    report = find(problem, session, mode="normal")
    assert outcomes(report) == {"Huge": Outcome.OUT_OF_MEMORY, "Large": Outcome.LOST, "Small": Outcome.WON}


def test_an_empty_batch_is_not_measured_and_not_stored(make_session: MakeSession) -> None:
    """B48."""
    from hipfind.solvers.registry import default_registry

    empty = ConvProblem.create("fwd", x=(0, 3, 5, 5), w=(4, 3, 3, 3))
    session = make_session(list(default_registry().solvers), {}, problem=empty)
    report = find(empty, session, mode="normal")
    assert report.source is Source.TRIVIAL and report.best is not None and not report.stored
    assert session.db.lookup(empty.key(), session.device.target.key, session.environment).trusted == ()


def test_transposed_convolution_shares_the_answer_of_its_mirror(make_session: MakeSession) -> None:
    """B61: one answer for a transposed convolution and for the data gradient that it equals."""
    transposed = ConvProblem.create("fwd", x=(2, 6, 5, 5), w=(6, 4, 3, 3), stride=2, pad=1, mode="transpose")
    solvers, behaviours = [fake_solver("A")], {"A": Behaviour()}
    session = make_session(solvers, behaviours, problem=transposed)
    assert find(transposed, session).problem == transposed
    mirror = transposed.canonical()
    assert mirror.direction == "bwd" and find(mirror, session).source is Source.USER_DB


def test_beta_restores_the_output_before_each_run(make_session: MakeSession) -> None:
    """B92: a candidate that accumulates must see the same former output in every run."""
    problem = ConvProblem.create("fwd", x=(2, 3, 5, 5), w=(4, 3, 3, 3), beta=1.0)
    session = make_session([fake_solver("A")], {"A": Behaviour(result="scaled")}, problem=problem)
    restored: list[int] = []
    original = session.device.copy_in
    session.device.copy_in = lambda address, array: (restored.append(address), original(address, array))[1]  # type: ignore[method-assign]
    find(problem, session, mode="normal", verify="off")
    output_copies = max(restored.count(address) for address in set(restored))
    assert output_copies >= launches(session)["A"]


def test_explain_lists_every_solver_with_reason_and_record(make_session: MakeSession, problem: ConvProblem) -> None:
    solvers = [fake_solver("Slow", expected=5.0), fake_solver("No", applicable=False), fake_solver("Fast")]
    session = make_session(solvers, {"Slow": Behaviour((5.0,)), "Fast": Behaviour((1.0,))})
    rows = explain(problem, session)
    assert [row.solver_id for row in rows] == ["Fast", "Slow", "No"]
    assert rows[2].reason == "filter size not supported (fake)" and rows[2].wti is None
    assert rows[0].record == ""
    find(problem, session)
    rows = explain(problem, session)
    assert (rows[0].record, rows[0].recorded_ms) == ("won", 1.0)


def test_progress_names_every_stage(make_session: MakeSession, problem: ConvProblem) -> None:
    seen = []
    session = make_session([fake_solver("A")], {"A": Behaviour()})
    find(problem, session, on_progress=seen.append)
    assert {step.stage for step in seen} == {"compile", "verify", "time"}
    assert all(0 <= step.done <= step.total for step in seen)


def test_the_time_of_a_solution_is_the_sum_of_all_its_steps_once(
    make_session: MakeSession, problem: ConvProblem
) -> None:
    """B85: clear 1 ms, product 2 ms, cast 3 ms are 6 ms: not 3, not 9; a solver of 5 ms is faster."""
    several = fake_solver("Several", kernels=("clear", "product", "cast"))
    behaviours = {
        "clear": Behaviour((1.0,)),
        "product": Behaviour((2.0,)),
        "cast": Behaviour((3.0,)),
        "One": Behaviour((5.0,)),
    }
    report = find(problem, make_session([several, fake_solver("One")], behaviours), mode="normal")
    assert {one.solver_id: one.time_ms for one in report.candidates} == {"Several": 6.0, "One": 5.0}
    assert outcomes(report) == {"Several": Outcome.LOST, "One": Outcome.WON}
