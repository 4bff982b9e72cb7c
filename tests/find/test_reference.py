"""MIOpen's records: a hint where nothing was measured, shown to people, never taken for our own timings."""

from __future__ import annotations

import pathlib

import pytest

from hipfind import settings
from hipfind.find.engine import find
from hipfind.find.immediate import explain, immediate
from hipfind.find.reference import references
from hipfind.find.report import Outcome, Source
from hipfind.perfdb.importing import import_file
from hipfind.perfdb.store import PerfDb
from hipfind.problem.conv import ConvProblem
from tests.find.conftest import MakeSession
from tests.helpers.fakes import Behaviour, fake_solver

SOLVERS = [fake_solver("A", expected=1.0), fake_solver("B", expected=2.0), fake_solver("C", expected=3.0)]
BEHAVIOURS = {"A": Behaviour((1.0,)), "B": Behaviour((2.0,)), "C": Behaviour((3.0,))}


def give(db_path: pathlib.Path, problem: ConvProblem, value: str, device: str) -> None:
    file = db_path.with_name("records.fdb.txt")
    file.write_text(f"{problem.miopen_key()}={value}\n")
    with PerfDb.open(db_path) as db:
        import_file(db, file, device)


@pytest.fixture
def value() -> str:
    return "C:0.5,0,miopenAlgo;Theirs:0.25,4096,miopenAlgo;B:0,0,miopenAlgo"


@pytest.mark.parametrize("device", ["amd:gfx942:304", "amd:gfx942:80"])
def test_immediate_ranks_by_miopens_times_on_the_same_architecture(
    make_session: MakeSession, problem: ConvProblem, db_path: pathlib.Path, value: str, device: str
) -> None:
    give(db_path, problem, value, device)
    choices = immediate(problem, make_session(SOLVERS, BEHAVIOURS))
    assert [(one.solver_id, one.time_ms, one.source) for one in choices] == [
        ("C", 0.5, Source.REFERENCE), ("A", 1.0, Source.WTI), ("B", 2.0, Source.WTI)
    ]  # fmt: skip


def test_system_files_have_records_of_miopens_too(
    make_session: MakeSession, problem: ConvProblem, db_path: pathlib.Path, value: str
) -> None:
    system = db_path.with_name("system.db")
    give(system, problem, "C:9,0,miopenAlgo", "amd:gfx942:304")
    give(system, problem, value, "amd:gfx90a:104")
    with settings.override(system_db_path=str(system)):
        session = make_session(SOLVERS, BEHAVIOURS)
        assert [one.target_key for one in references(problem, session)] == ["amd:gfx942:304", "amd:gfx90a:104"]
        assert immediate(problem, session)[-1].time_ms == 9.0
        give(db_path, problem, value, "amd:gfx942:304")  # the user's file comes before
        session = make_session(SOLVERS, BEHAVIOURS)
        assert len(references(problem, session)) == 2
        assert immediate(problem, session)[0].time_ms == 0.5


def test_another_architecture_gives_no_hint_but_is_shown(
    make_session: MakeSession, problem: ConvProblem, db_path: pathlib.Path, value: str
) -> None:
    give(db_path, problem, value, "amd:gfx90a:104")
    session = make_session(SOLVERS, BEHAVIOURS)
    assert [one.solver_id for one in immediate(problem, session)] == ["A", "B", "C"]
    assert [one.target_key for one in references(problem, session)] == ["amd:gfx90a:104"]
    assert find(problem, session).notes == ()


def test_the_nearest_device_comes_first(
    make_session: MakeSession, problem: ConvProblem, db_path: pathlib.Path, value: str
) -> None:
    for device in ("amd:gfx90a:104", "amd:gfx942:80", "amd:gfx942:300"):
        give(db_path, problem, value, device)
    found = references(problem, make_session(SOLVERS, BEHAVIOURS))
    assert [one.target_key for one in found] == ["amd:gfx942:300", "amd:gfx90a:104", "amd:gfx942:80"]


def test_a_find_measures_all_the_same_and_stores_only_its_own(
    make_session: MakeSession, problem: ConvProblem, db_path: pathlib.Path, value: str
) -> None:
    give(db_path, problem, value, "amd:gfx942:304")
    session = make_session(SOLVERS, BEHAVIOURS)
    fast = find(problem, session, mode="fast")
    assert fast.source is Source.REFERENCE and fast.best is not None and fast.best.solver_id == "C"
    report = find(problem, session)
    assert report.source is Source.MEASURED and report.best is not None
    assert (report.best.solver_id, report.best.time_ms) == ("A", 1.0)
    (note,) = report.notes
    assert note == "MIOpen's fastest on amd:gfx942:304 was Theirs, 0.25 ms (records.fdb.txt)"
    assert [one.outcome for one in report.candidates] == [Outcome.WON, Outcome.LOST, Outcome.LOST]
    assert immediate(problem, make_session(SOLVERS, BEHAVIOURS))[0].source is Source.USER_DB
    with PerfDb.open(db_path, read_only=True) as db:
        assert db.read("SELECT solver_id FROM find_records ORDER BY 1") == [("A",), ("B",), ("C",)]


def test_explain_has_miopens_time_beside_ours(
    make_session: MakeSession, problem: ConvProblem, db_path: pathlib.Path, value: str
) -> None:
    give(db_path, problem, value, "amd:gfx942:304")
    session = make_session(SOLVERS, BEHAVIOURS)
    rows = explain(problem, session)
    assert [(one.solver_id, one.reference_ms, one.recorded_ms) for one in rows] == [
        ("C", 0.5, None), ("A", None, None), ("B", None, None)
    ]  # fmt: skip
    assert [one.expected_ms for one in rows] == [3.0, 1.0, 2.0]


def test_scaled_problems_have_no_records_of_miopens(
    make_session: MakeSession, problem: ConvProblem, db_path: pathlib.Path, value: str
) -> None:
    give(db_path, problem, value, "amd:gfx942:304")
    scaled = ConvProblem.create("fwd", problem.x.lengths, problem.w.lengths, stride=(1, 2), alpha=2.0)
    assert scaled.miopen_key() == problem.miopen_key()
    assert references(scaled, make_session(SOLVERS, BEHAVIOURS, problem=scaled)) == ()


def test_a_db_that_cannot_be_read_is_no_obstacle(
    make_session: MakeSession, problem: ConvProblem, db_path: pathlib.Path
) -> None:
    db_path.mkdir()
    (db_path / "hipfind.db").write_bytes(b"junk" * 300)
    session = make_session(SOLVERS, BEHAVIOURS)
    with pytest.warns(UserWarning, match="damaged"):
        assert references(problem, session) == ()
    assert immediate(problem, session)[0].solver_id == "A"
