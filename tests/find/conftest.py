"""Fixtures of the engine's tests: a small problem, and sessions on a fake device with a DB of their own."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hipfind import settings
from hipfind.find.session import Session
from hipfind.perfdb.guard import GuardedDb
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.base import Solver
from hipfind.solvers.registry import Registry
from tests.helpers.fakes import Behaviour, FakeDevice, FakeTimer

MakeSession = Callable[..., Session]


@pytest.fixture
def problem() -> ConvProblem:
    return ConvProblem.create("fwd", x=(2, 3, 5, 6), w=(4, 3, 3, 2), stride=(1, 2))


@pytest.fixture
def db_path(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    path = tmp_path / "hipfind.db"
    with settings.override(user_db_path=str(path)):
        yield path


@pytest.fixture
def make_session(problem: ConvProblem, db_path: pathlib.Path) -> MakeSession:
    """A new session, as a new process would have: same DB file, nothing in memory."""

    def make(solvers: list[Solver[Any]], behaviours: dict[str, Behaviour], **device: Any) -> Session:
        fake = FakeDevice(device.pop("problem", problem), behaviours, **device)
        return Session(fake, GuardedDb(), Registry(solvers), FakeTimer(fake))

    return make
