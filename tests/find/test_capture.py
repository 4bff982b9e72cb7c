"""Find times a candidate as one captured piece where the device can do that, else step by step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hipfind.find.engine import find
from hipfind.find.session import Session
from hipfind.invokers.steps import LoopStep
from hipfind.perfdb.guard import GuardedDb
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.registry import Registry
from tests.helpers.fakes import Behaviour, FakeDevice, FakeSolver, FakeTimer, fake_solver


class CapturingDevice(FakeDevice):
    """Replays what it captured in a quarter of a millisecond, whatever its steps take."""

    can_capture = True
    captured = 0

    def capture(self, run: Callable[[int], None]) -> Callable[[int], None] | None:
        if not self.can_capture:
            return None
        self.captured += 1
        run(7)

        def replay(stream: int) -> None:
            assert stream == 0
            self.clock_ms += 0.25

        return replay


def looped(count: int) -> type[FakeSolver]:
    class Looped(FakeSolver):
        __slots__ = ()

        def GetSolution(self, target, problem, config=None):  # type: ignore[no-untyped-def]
            solution = super().GetSolution(target, problem, config)
            return self.solution(target, problem, (LoopStep(count, solution.steps),))

    return Looped


@pytest.fixture
def device(problem: ConvProblem) -> CapturingDevice:
    return CapturingDevice(problem, {"Only": Behaviour((2.0,))})


def best_ms(device: CapturingDevice, problem: ConvProblem, solver: FakeSolver) -> float:
    session = Session(device, GuardedDb(), Registry([solver]), FakeTimer(device))
    report = find(problem, session, mode="normal")
    assert report.best is not None
    return report.best.time_ms


def test_captured_candidates_are_timed_by_their_replay(device, problem, db_path) -> None:
    assert best_ms(device, problem, fake_solver("Only")) == 0.25
    assert device.captured == 1


def test_what_cannot_be_captured_is_timed_step_by_step(device, problem, db_path) -> None:
    device.can_capture = False
    assert best_ms(device, problem, fake_solver("Only")) == 2.0


@pytest.mark.parametrize(("count", "captured"), [(256, 1), (257, 0)])
def test_long_loops_are_not_captured(device, problem, db_path, count, captured) -> None:
    solver = type("Only", (looped(count),), {"__slots__": (), "solver_id": "Only"})()
    assert best_ms(device, problem, solver) == (0.25 if captured else 2.0 * count)
    assert device.captured == captured
