"""Search for perf configs on a fake clock: what is tried, what is kept, and that later Finds and plans use it."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
import sqlite3
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hipfind import settings
from hipfind.errors import PerfDbWarning, UnknownSolverError
from hipfind.find.engine import find
from hipfind.find.immediate import answer
from hipfind.find.plan import make_plan
from hipfind.find.report import Outcome, Progress, Searched, Source
from hipfind.find.session import Session
from hipfind.perfdb.store import PerfDb
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.registry import Registry
from tests.find.conftest import MakeSession
from tests.helpers.fakes import Behaviour, fake_solver
from tests.helpers.perfdb import Faults
from tests.helpers.tunable import fake_tunable

TILES = (16, 32, 64, 128)


def behaviours(times: dict[int, float], **others: Behaviour) -> dict[str, Behaviour]:
    return {f"Tuned.tile={tile}": Behaviour((time,)) for tile, time in times.items()} | others


def launches(session: Session) -> dict[str, int]:
    return {name: one.launches for name, one in session.device.behaviours.items()}  # type: ignore[attr-defined]


def perf_records(session: Session, problem: ConvProblem) -> dict[str, tuple[str, float]]:
    found = session.db.lookup_perf(problem.key(), session.device.target.key, session.environment)
    return {one.record.solver_id: (one.record.config, one.record.time_ms) for one in found.trusted}


def test_the_best_config_is_found_stored_and_used(make_session: MakeSession, problem: ConvProblem) -> None:
    plain = Behaviour((2.0,))
    session = make_session(
        [fake_tunable("Tuned", TILES), fake_solver("Plain")],
        behaviours({16: 3.0, 32: 2.5, 64: 1.0, 128: 1.4}, Plain=plain),
    )
    before = find(problem, session)
    assert before.best is not None and (before.best.solver_id, before.best.config) == ("Plain", "")
    report = find(problem, session, tune=True)
    assert report.source is Source.MEASURED and report.best is not None
    assert (report.best.solver_id, report.best.config, report.best.time_ms) == ("Tuned", "tile=64", 1.0)
    assert perf_records(session, problem) == {"Tuned": ("tile=64", 1.0)}
    again = find(problem, session)
    assert again.best == dataclasses.replace(report.best, source=Source.USER_DB)
    assert answer(problem, session).choices[0].config == "tile=64"
    assert make_plan(problem, session)._invoker.solution.config == "tile=64"


def test_the_report_says_what_each_search_did(make_session: MakeSession, problem: ConvProblem) -> None:
    table = behaviours({16: 3.0, 32: 2.5, 64: 1.0}) | {"Tuned.tile=128": Behaviour((0.1,), compile_error="spills")}
    never = Behaviour((1.0,), launch_error="illegal address")
    table |= {"Never.tile=1": never, "Plain": Behaviour((9.0,))}
    solvers = [fake_tunable("Tuned", TILES), fake_tunable("Never", (1,)), fake_solver("Plain")]
    report = find(problem, make_session(solvers, table), tune=True)
    assert report.searches == (Searched("Tuned", "tile=64", 1.0, 3.0, 4, 1), Searched("Never", "", None, None, 1, 1))
    assert report.to_dict()["searches"][0]["default_ms"] == 3.0
    assert find(problem, make_session(solvers, table)).searches == ()


@pytest.mark.parametrize("bad", [
    Behaviour((0.1,), result="scaled"), Behaviour((0.1,), result="unwritten"),
    Behaviour((0.1,), compile_error="spills"), Behaviour((0.1,), launch_error="illegal address"),
    Behaviour((0.1,), launch_error="illegal address", fail_after=3),
])  # fmt: skip
def test_configs_that_fail_are_left_out(make_session: MakeSession, problem: ConvProblem, bad: Behaviour) -> None:
    table = behaviours({16: 3.0, 32: 1.0, 128: 2.0}) | {"Tuned.tile=64": bad}
    report = find(problem, make_session([fake_tunable("Tuned", TILES)], table), tune=True)
    assert report.best is not None and report.best.config == "tile=32"


def test_slow_configs_get_one_probe(make_session: MakeSession, problem: ConvProblem) -> None:
    session = make_session([fake_tunable("Tuned", TILES)], behaviours({16: 1.0, 32: 9.0, 64: 9.0, 128: 9.0}))
    find(problem, session, tune=True)
    assert [launches(session)[f"Tuned.tile={tile}"] for tile in (32, 64, 128)] == [2, 2, 2]  # warm-up and probe


def test_the_default_config_is_tried_first(make_session: MakeSession, problem: ConvProblem) -> None:
    session = make_session([fake_tunable("Tuned", (64, 16, 32))], behaviours({16: 0.5, 32: 0.5, 64: 1.0}))
    with settings.override(tune_configs=1):
        report = find(problem, session, tune=True)
    assert report.best is not None and report.best.config == "tile=64"
    assert launches(session)["Tuned.tile=16"] == launches(session)["Tuned.tile=32"] == 0


@pytest.mark.parametrize(
    ("limits", "tried"),
    [({"tune_configs": 3}, 3), ({"tune_patience": 2}, 3), ({"tune_time_limit_ms": 1}, 1), ({}, 20)],
)
def test_a_search_keeps_to_its_budget(
    make_session: MakeSession, problem: ConvProblem, limits: dict[str, int], tried: int
) -> None:
    tiles = tuple(range(1, 21))
    session = make_session([fake_tunable("Tuned", tiles)], behaviours({tile: 1.0 for tile in tiles}))
    with settings.override(**{"tune_time_limit_ms": 0, "tune_patience": 0, **limits}):
        find(problem, session, tune=True)
    assert sum(count > 0 for count in launches(session).values()) == tried


def test_an_interrupt_keeps_what_was_found(make_session: MakeSession, problem: ConvProblem) -> None:
    session = make_session(
        [fake_tunable("Tuned", TILES), fake_tunable("Later", (1,))],
        behaviours({16: 4.0, 32: 3.0, 64: 2.0, 128: 1.0}) | {"Later.tile=1": Behaviour((0.1,))},
    )

    def interrupt(step: Progress) -> None:
        if step.stage == "tune" and step.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find(problem, session, tune=True, on_progress=interrupt)
    kept, time_ms = perf_records(session, problem)["Tuned"]
    assert kept in {f"tile={tile}" for tile in TILES[1:]} and time_ms < 4.0
    report = find(problem, session)  # a later Find starts from there
    assert {one.solver_id: one.config for one in report.candidates} == {"Tuned": kept, "Later": "tile=1"}


def refusals(session: Session, problem: ConvProblem) -> dict[str, str | None]:
    """Rule by config, of every perf record in the file."""
    with PerfDb.open(settings.current().user_db_path, read_only=True) as db:
        stored = db.perf_records(problem.key(), session.device.target.key)
    return {one.record.config: one.record.refused for one in stored}


Ask = Callable[[ConvProblem, Session], object]


@pytest.mark.parametrize("ask", [find, answer, make_plan])
def test_a_recorded_config_that_is_not_legal_any_more_is_marked_and_the_default_used(
    make_session: MakeSession, problem: ConvProblem, caplog: pytest.LogCaptureFixture, ask: Ask
) -> None:
    table = behaviours({16: 2.0, 32: 1.0})
    first = make_session([fake_tunable("Tuned", (16, 32))], table)
    find(problem, first, tune=True)
    assert refusals(first, problem) == {"tile=32": None}
    with caplog.at_level(logging.WARNING, logger="hipfind.find"):
        later = make_session([fake_tunable("Tuned", (16,))], table)
        ask(problem, later)
        (warning,) = caplog.messages
        assert "config of Tuned is refused, its default takes its place" in warning and "tile 32" in warning
        (rule,) = refusals(later, problem).values()
        assert rule is not None and "tile 32" in rule
        ask(problem, make_session([fake_tunable("Tuned", (16,))], table))  # as another process
        find(problem, make_session([fake_tunable("Tuned", (16, 32))], table), mode="normal")
        assert len(caplog.messages) == 1, "a marked config is not looked at again"
    assert refusals(first, problem) == {"tile=32": rule}, "what was stored stays"
    report = find(problem, make_session([fake_tunable("Tuned", (16, 32))], table), tune=True)
    assert report.best is not None and report.best.config == "tile=32"
    assert refusals(first, problem) == {"tile=32": None}, "a search clears the mark"


def test_a_plan_that_meets_a_refused_config_takes_the_default_and_marks_it(
    make_session: MakeSession, problem: ConvProblem, caplog: pytest.LogCaptureFixture
) -> None:
    session = make_session([fake_tunable("Tuned", (16, 32))], behaviours({16: 2.0, 32: 1.0}))
    find(problem, session, tune=True)
    assert answer(problem, session).choices[0].config == "tile=32"
    session.registry = Registry([fake_tunable("Tuned", (16,))])  # as when a solver is registered anew
    with caplog.at_level(logging.WARNING, logger="hipfind.find"):
        assert make_plan(problem, session)._invoker.solution.config == "tile=16"
    assert "tile 32" in caplog.text
    (rule,) = refusals(session, problem).values()
    assert rule is not None and "tile 32" in rule


def test_a_refused_find_record_names_its_rule(make_session: MakeSession, problem: ConvProblem) -> None:
    table = behaviours({16: 2.0, 32: 1.0})
    find(problem, make_session([fake_tunable("Tuned", (16, 32))], table), tune=True)
    report = find(problem, make_session([fake_tunable("Tuned", (16,))], table))
    assert report.best is not None and (report.best.config, report.source) == ("tile=16", Source.MEASURED)
    (note,) = report.notes
    assert note.startswith("the record of Tuned was not used: ") and "tile 32" in note


def test_a_system_file_is_not_marked_and_warns_once_a_session(
    make_session: MakeSession, problem: ConvProblem, db_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = behaviours({16: 2.0, 32: 1.0})
    first = make_session([fake_tunable("Tuned", (16, 32))], table)
    find(problem, first, tune=True)
    first.db.close()
    system = db_path.rename(db_path.with_name("system.db"))
    system.chmod(0o444)
    before = system.read_bytes()
    with settings.override(system_db_path=str(system)), caplog.at_level(logging.WARNING, logger="hipfind.find"):
        later = make_session([fake_tunable("Tuned", (16,))], table)
        for _ in range(3):
            later.forget()
            answer(problem, later)
    assert len(caplog.messages) == 1
    assert system.read_bytes() == before and not db_path.exists()


def test_a_mark_that_cannot_be_stored_stops_nothing(
    make_session: MakeSession, problem: ConvProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = behaviours({16: 2.0, 32: 1.0})
    first = make_session([fake_tunable("Tuned", (16, 32))], table)
    find(problem, first, tune=True)
    first.db.close()
    later = make_session([fake_tunable("Tuned", (16,))], table)
    with monkeypatch.context() as patch, pytest.warns(PerfDbWarning, match="disk I/O error"):
        faults = Faults(patch, "UPDATE perf_records", sqlite3.OperationalError("disk I/O error"))
        assert answer(problem, later).choices[0].solver_id == "Tuned"
        faults.stop()
    assert refusals(first, problem) == {"tile=32": None}
    later.db.close()  # writes what the file did not take
    assert refusals(first, problem) != {"tile=32": None}


def test_a_config_that_the_caller_asks_for_is_measured_and_not_stored(
    make_session: MakeSession, problem: ConvProblem
) -> None:
    session = make_session([fake_tunable("Tuned", (16, 32, 64))], behaviours({16: 2.0, 32: 1.0, 64: 0.5}))
    find(problem, session)
    report = find(problem, session, configs={"Tuned": "tile=32"}, tune=True)
    assert report.best is not None and (report.best.config, report.best.time_ms) == ("tile=32", 1.0)
    assert (report.source, report.stored, report.searches, report.notes) == (Source.MEASURED, False, (), ())
    assert launches(session)["Tuned.tile=64"] == 0
    assert find(problem, session).results[0].config == "tile=16"


@pytest.mark.parametrize(("config", "rule"), [("tile=3", "tile 3"), ("3", "written tile=N")])
def test_a_config_asked_for_that_breaks_a_rule_is_named_and_the_default_runs(
    make_session: MakeSession, problem: ConvProblem, config: str, rule: str
) -> None:
    session = make_session([fake_tunable("Tuned", (16, 32))], behaviours({16: 2.0, 32: 1.0}))
    find(problem, session, tune=True)
    report = find(problem, session, configs={"Tuned": config})
    assert report.best is not None and report.best.config == "tile=16"
    (note,) = report.notes
    assert "is refused, Tuned runs with its default" in note and rule in note and config in note


def test_a_solver_without_configs_takes_none_and_an_unknown_one_is_an_error(
    make_session: MakeSession, problem: ConvProblem
) -> None:
    session = make_session([fake_solver("Plain")], {"Plain": Behaviour((1.0,))})
    (note,) = find(problem, session, configs={"Plain": "tile=1"}).notes
    assert "Plain has no perf configs" in note
    with pytest.raises(UnknownSolverError, match="Plan"):
        find(problem, session, configs={"Plan": "tile=1"})


def test_another_version_of_a_solver_is_tuned_anew(make_session: MakeSession, problem: ConvProblem) -> None:
    table = behaviours({16: 2.0, 32: 1.0})
    find(problem, make_session([fake_tunable("Tuned", (16, 32))], table), tune=True)
    report = find(problem, make_session([fake_tunable("Tuned", (16, 32), version=2)], table))
    assert report.best is not None and report.best.config == "tile=16"


def test_a_tuned_config_that_is_wrong_in_the_race_is_refused(make_session: MakeSession, problem: ConvProblem) -> None:
    table = behaviours({16: 2.0, 32: 1.0}, Plain=Behaviour((5.0,)))
    session = make_session([fake_tunable("Tuned", (16, 32)), fake_solver("Plain")], table)
    with settings.override(verify="off"):
        find(problem, session, tune=True)
    table["Tuned.tile=32"].result = "scaled"
    with settings.override(find_mode="NORMAL"):
        report = find(problem, session, verify="always", tune=True)
    assert report.best is not None and report.best.config == "tile=16"
    assert Outcome.WRONG_RESULT not in {one.outcome for one in report.candidates}


@given(times=st.lists(st.integers(4, 400).map(lambda eighths: eighths / 8), min_size=1, max_size=12))
@hypothesis_settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_tuning_is_never_worse_than_the_default(
    make_session: MakeSession, problem: ConvProblem, times: list[float]
) -> None:
    tiles = tuple(range(len(times)))
    session = make_session([fake_tunable("Tuned", tiles)], behaviours(dict(zip(tiles, times, strict=True))))
    session.db.close()
    report = find(problem, session, tune=True)
    assert report.best is not None and report.best.time_ms == min(times)
