"""TRUST_VERIFY and TRUST_VERIFY_FULL, find enforce 1 to 5, and that an answer under a limit is nobody else's."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable

import pytest

from hipfind import settings
from hipfind.errors import SettingError
from hipfind.find.engine import find
from hipfind.find.report import FindReport, Outcome, Source
from hipfind.find.session import Session
from hipfind.problem.conv import ConvProblem
from tests.find.conftest import MakeSession
from tests.helpers.fakes import Behaviour, fake_solver
from tests.helpers.tunable import fake_tunable

SOLVERS = [fake_solver("Slow", expected=3.0), fake_solver("Fast", expected=1.0), fake_solver("Middle", expected=2.0)]
MODES = ("trust_verify", "trust_verify_full", "6", "7")


def _behaviours(fast: float = 1.0, middle: float = 2.0, slow: float = 3.0) -> dict[str, Behaviour]:
    return {"Slow": Behaviour((slow,)), "Fast": Behaviour((fast,)), "Middle": Behaviour((middle,))}


def _ran(session: Session) -> set[str]:
    return {name for name, one in session.device.behaviours.items() if one.launches}  # type: ignore[attr-defined]


def _outcomes(report: FindReport) -> dict[str, Outcome]:
    return {one.solver_id: one.outcome for one in report.candidates}


@pytest.fixture
def system(make_session: MakeSession, problem: ConvProblem, tmp_path: pathlib.Path) -> str:
    """A system file in which Fast won with 1 ms."""
    path = str(tmp_path / "system.db")
    with settings.override(user_db_path=path):
        session = make_session(SOLVERS, _behaviours())
        find(problem, session, mode="normal")
        session.db.close()
    return path


@pytest.mark.parametrize("mode", MODES)
def test_the_users_own_records_are_trusted(make_session: MakeSession, problem: ConvProblem, mode: str) -> None:
    find(problem, make_session(SOLVERS, _behaviours()), mode="normal")
    session = make_session(SOLVERS, _behaviours(fast=9.0))
    report = find(problem, session, mode=mode)
    assert report.source is Source.USER_DB and _ran(session) == set()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("fast", "holds"), [(1.0, True), (0.5, True), (1.09375, True), (1.125, False), (4.0, False)])
def test_a_system_record_is_measured_and_kept_or_found_anew(
    make_session: MakeSession, problem: ConvProblem, system: str, mode: str, fast: float, holds: bool
) -> None:
    with settings.override(system_db_path=system):
        session = make_session(SOLVERS, _behaviours(fast=fast))
        report = find(problem, session, mode=mode)
        assert report.source is Source.MEASURED and report.stored
        assert _ran(session) == ({"Fast"} if holds else {"Slow", "Fast", "Middle"})
        assert report.best is not None and report.best.solver_id == ("Middle" if fast == 4.0 else "Fast")
        again = make_session(SOLVERS, _behaviours())
        assert find(problem, again, mode=mode).source is Source.USER_DB, "the user's DB is healed"
        assert _ran(again) == set()


def test_the_tolerance_is_a_setting(make_session: MakeSession, problem: ConvProblem, system: str) -> None:
    with settings.override(system_db_path=system, verify_tolerance_pct="300"):
        session = make_session(SOLVERS, _behaviours(fast=4.0))
        find(problem, session, mode="trust_verify")
        assert _ran(session) == {"Fast"}


def test_a_system_record_that_gives_a_wrong_result_here_is_not_trusted(
    make_session: MakeSession, problem: ConvProblem, system: str
) -> None:
    with settings.override(system_db_path=system):
        session = make_session(SOLVERS, {**_behaviours(), "Fast": Behaviour((1.0,), result="scaled")})
        report = find(problem, session, mode="trust_verify")
    assert report.best is not None and report.best.solver_id == "Middle"
    assert _outcomes(report)["Fast"] is Outcome.WRONG_RESULT


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("fast", "ran"), [(1.0, {"Fast", "Middle"}), (2.5, {"Slow", "Fast", "Middle"})])
def test_without_records_the_first_by_estimate_must_beat_the_second(
    make_session: MakeSession, problem: ConvProblem, mode: str, fast: float, ran: set[str]
) -> None:
    session = make_session(SOLVERS, _behaviours(fast=fast))
    report = find(problem, session, mode=mode)
    assert _ran(session) == ran
    assert report.best is not None and report.best.solver_id == ("Fast" if fast == 1.0 else "Middle")
    assert report.stored


@pytest.mark.parametrize(("mode", "tried"), [("trust_verify", 7), ("trust_verify_full", 30)])
def test_what_does_not_hold_is_tuned_in_a_short_time_or_at_length(
    make_session: MakeSession, problem: ConvProblem, mode: str, tried: int
) -> None:
    tiles = tuple(range(1, 31))
    table = {f"Tuned.tile={tile}": Behaviour((2.0 if tile == 1 else 5.0,)) for tile in tiles}
    session = make_session([fake_tunable("Tuned", tiles), fake_solver("Plain")], {**table, "Plain": Behaviour((1.0,))})
    find(problem, session, mode=mode)
    assert len(_ran(session) - {"Plain"}) == tried


def test_a_limit_narrows_the_answer_and_nothing_is_stored(
    make_session: MakeSession, problem: ConvProblem, system: str, db_path: pathlib.Path
) -> None:
    solvers = [fake_solver("Hungry", workspace=1000), fake_solver("Frugal")]
    behaviours = {"Hungry": Behaviour((1.0,)), "Frugal": Behaviour((2.0,))}
    for mode in ("normal", "fast", "hybrid", "dynamic_hybrid", "trust_verify", "trust_verify_full"):
        session = make_session(solvers, behaviours)
        limited = find(problem, session, mode=mode, workspace_limit=10)
        assert limited.best is not None and limited.best.solver_id == "Frugal" and not limited.stored
        session.db.close()
        assert not os.path.exists(db_path)
    assert find(problem, make_session(solvers, behaviours), mode="hybrid").best.solver_id == "Hungry"  # type: ignore[union-attr]


# enforce --------------------------------------------------------------------------------------------------------------

TILES = (16, 32)


@pytest.fixture
def tuned(make_session: MakeSession) -> Callable[[], Session]:
    solvers = [fake_tunable("Known", TILES), fake_tunable("New", TILES)]
    times = {f"{name}.tile={tile}": Behaviour((1.0 + tile,)) for name in ("Known", "New") for tile in TILES}
    return lambda: make_session(solvers, {name: Behaviour(one.times) for name, one in times.items()})


def _configs(session: Session, problem: ConvProblem) -> set[str]:
    found = session.db.lookup_perf(problem.key(), session.device.target.key, session.environment)
    return {one.record.solver_id for one in found.trusted}


@pytest.mark.parametrize(
    ("enforce", "asked", "searched", "left"),
    [
        ("NONE", False, set(), {"Known"}),
        ("1", True, {"Known", "New"}, {"Known", "New"}),
        ("DB_UPDATE", False, set(), {"Known"}),
        ("2", True, {"Known", "New"}, {"Known", "New"}),
        ("search", False, {"New"}, {"Known", "New"}),
        ("3", True, {"Known", "New"}, {"Known", "New"}),
        ("SEARCH_DB_UPDATE", False, {"Known", "New"}, {"Known", "New"}),
        ("4", True, {"Known", "New"}, {"Known", "New"}),
        ("DB_CLEAN", False, set(), set()),
        ("5", True, set(), set()),
    ],
)
def test_enforce_says_what_is_searched(
    tuned: Callable[[], Session], problem: ConvProblem, enforce: str, asked: bool, searched: set[str], left: set[str]
) -> None:
    with settings.override(find_only_solver="Known"):
        session = tuned()
        find(problem, session, tune=True)
        session.db.close()
    session = tuned()
    assert _configs(session, problem) == {"Known"}
    stages: set[str] = set()
    with settings.override(find_enforce=enforce):
        report = find(
            problem, session, mode="hybrid", tune=asked,
            on_progress=lambda one: stages.add(one.solver_id.split()[0]) if one.stage == "tune" else None,
        )  # fmt: skip
    assert stages == searched
    assert _configs(session, problem) == left
    assert report.mode == ("HYBRID" if enforce in ("NONE", "1") else "NORMAL")


def test_other_numbers_are_refused() -> None:
    with pytest.raises(SettingError, match=r"DB_CLEAN \(5\)"), settings.override(find_enforce="6"):
        pass
