"""System files under the user's DB, and the nearest device: what counts, what is said, and the switch of each."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable

import pytest

from hipfind import settings
from hipfind.errors import PerfDbWarning
from hipfind.find.engine import find
from hipfind.find.immediate import answer, immediate
from hipfind.find.report import Source
from hipfind.perfdb import layers
from hipfind.perfdb.store import PerfDb
from hipfind.problem.conv import ConvProblem
from tests.find.conftest import MakeSession
from tests.helpers.fakes import Behaviour, fake_solver

MakeSystem = Callable[..., str]

SOLVERS = [fake_solver("Slow"), fake_solver("Fast")]


def _behaviours(fast: float = 1.0, slow: float = 2.0) -> dict[str, Behaviour]:
    return {"Slow": Behaviour((slow,)), "Fast": Behaviour((fast,))}


@pytest.fixture
def make_system(make_session: MakeSession, problem: ConvProblem, tmp_path: pathlib.Path) -> MakeSystem:
    """A file that another machine of this kind measured; ``device`` as for make_session."""

    def make(name: str, behaviours: dict[str, Behaviour], **device: object) -> str:
        path = tmp_path / name
        with settings.override(user_db_path=str(path), system_db_path=""):
            session = make_session(SOLVERS, behaviours, **device)
            assert find(problem, session, mode="normal").stored
            session.db.close()
        path.chmod(0o444)
        return str(path)

    return make


def test_a_system_file_answers_and_is_not_written(
    make_session: MakeSession, problem: ConvProblem, make_system: MakeSystem, db_path: pathlib.Path
) -> None:
    system = make_system("system.db", _behaviours())
    before = pathlib.Path(system).read_bytes()
    with settings.override(system_db_path=system):
        for mode in ("hybrid", "fast"):
            report = find(problem, make_session(SOLVERS, _behaviours()), mode=mode)
            assert (report.source, report.best.solver_id) == (Source.SYSTEM_DB, "Fast")  # type: ignore[union-attr]
            assert not any(one.verified for one in report.candidates), "nothing was checked on this machine"
        assert immediate(problem, make_session(SOLVERS, _behaviours()))[0].source is Source.SYSTEM_DB
        assert not db_path.exists()
        with settings.override(disable_system_db=True):
            assert find(problem, make_session(SOLVERS, _behaviours()), mode="fast").source is Source.WTI
    assert pathlib.Path(system).read_bytes() == before


def test_the_users_records_hide_the_systems_and_the_first_file_the_second(
    make_session: MakeSession, problem: ConvProblem, make_system: MakeSystem
) -> None:
    one = make_system("one.db", _behaviours(fast=1.0))
    two = make_system("two.db", _behaviours(fast=1.5))
    for order, wanted in (((one, two), 1.0), ((two, one), 1.5)):
        with settings.override(system_db_path=os.pathsep.join(order)):
            assert immediate(problem, make_session(SOLVERS, _behaviours()))[0].time_ms == wanted
    find(problem, make_session(SOLVERS, _behaviours(fast=1.75)), mode="normal")
    with settings.override(system_db_path=os.pathsep.join((one, two))):
        choice = immediate(problem, make_session(SOLVERS, _behaviours()))[0]
    assert (choice.time_ms, choice.source) == (1.75, Source.USER_DB)


def test_packaged_files_lie_under_those_of_the_setting(
    make_session: MakeSession,
    problem: ConvProblem,
    make_system: MakeSystem,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "packaged").mkdir()
    make_system("packaged/a.db", _behaviours(fast=1.25))
    named = make_system("named.db", _behaviours(fast=1.0))
    monkeypatch.setattr(layers, "PACKAGED", tmp_path / "packaged")
    assert immediate(problem, make_session(SOLVERS, _behaviours()))[0].time_ms == 1.25
    with settings.override(system_db_path=named):
        assert immediate(problem, make_session(SOLVERS, _behaviours()))[0].time_ms == 1.0
    with settings.override(disable_packaged_db=True):
        assert immediate(problem, make_session(SOLVERS, _behaviours()))[0].source is Source.WTI


def test_a_new_solver_is_measured_and_the_user_gets_the_whole_answer(
    make_session: MakeSession, problem: ConvProblem, make_system: MakeSystem, db_path: pathlib.Path
) -> None:
    system = make_system("system.db", _behaviours())
    solvers, behaviours = [*SOLVERS, fake_solver("New")], {**_behaviours(), "New": Behaviour((1.5,))}
    with settings.override(system_db_path=system):
        session = make_session(solvers, behaviours)
        report = find(problem, session, mode="hybrid")
        assert report.best is not None and report.best.solver_id == "Fast" and report.stored
        assert behaviours["Fast"].launches == 0 < behaviours["New"].launches
        session.db.close()
    with PerfDb.open(db_path) as db:
        rows = dict(db.read("SELECT solver_id, verified FROM find_records"))
    assert rows == {"Fast": 0, "Slow": 0, "New": 1}


@pytest.mark.parametrize("content", [None, b"junk" * 300])
def test_a_system_file_that_cannot_be_read_is_named_once(
    make_session: MakeSession,
    problem: ConvProblem,
    make_system: MakeSystem,
    tmp_path: pathlib.Path,
    content: bytes | None,
) -> None:
    good, bad = make_system("good.db", _behaviours()), tmp_path / "bad.db"
    if content is not None:
        bad.write_bytes(content)
    with settings.override(system_db_path=os.pathsep.join((str(bad), good))):
        session = make_session(SOLVERS, _behaviours())
        with pytest.warns(PerfDbWarning, match="this system file is not read") as seen:
            assert find(problem, session, mode="hybrid").source is Source.SYSTEM_DB
            session.forget()
            assert immediate(problem, session)[0].source is Source.SYSTEM_DB
    assert len(seen) == 1 and str(bad) in str(seen[0].message)
    assert content is None or bad.read_bytes() == content


def test_the_nearest_device_of_the_architecture_ranks_and_is_named(
    make_session: MakeSession, problem: ConvProblem, make_system: MakeSystem
) -> None:
    target = make_session(SOLVERS, _behaviours()).device.target
    files = [
        make_system(f"cu{units}.db", _behaviours(fast=fast), target=dataclasses.replace(target, compute_units=units))
        for units, fast in ((target.compute_units + 100, 1.125), (target.compute_units + 2, 1.25))
    ]
    other = make_system("arch.db", _behaviours(fast=0.1), target=dataclasses.replace(target, arch="other"))
    with settings.override(system_db_path=os.pathsep.join([*files, other])):
        got = answer(problem, make_session(SOLVERS, _behaviours()))
        assert (got.choices[0].solver_id, got.choices[0].time_ms) == ("Fast", 1.25)
        assert {one.source for one in got.choices} == {Source.NEAREST}
        assert any(f":{target.compute_units + 2}, the nearest device" in note for note in got.notes)
        fast = find(problem, make_session(SOLVERS, _behaviours()), mode="fast")
        assert fast.source is Source.NEAREST and any("nearest device" in note for note in fast.notes)
        hybrid = find(problem, make_session(SOLVERS, _behaviours()), mode="hybrid")
        assert hybrid.source is Source.MEASURED, "another device's times end no Find"
        with settings.override(disable_nearest_target=True, user_db_path=files[0] + ".none"):
            assert immediate(problem, make_session(SOLVERS, _behaviours()))[0].source is Source.WTI
