"""Runs one convolution for ``hipfind conv``: chooses a solver, makes data, times it, checks it in float64."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from hipfind.cli.find import nothing_usable
from hipfind.cli.progress import find_progress
from hipfind.errors import NoSolutionError, UnknownSolverError
from hipfind.find import api
from hipfind.find.operands import POISON, Operands
from hipfind.find.report import Choice
from hipfind.find.session import Session, session_for
from hipfind.invokers.invoker import build
from hipfind.problem.conv import ConvProblem
from hipfind.problem.driver import DriverCommand
from hipfind.problem.tolerance import Verdict, judge
from hipfind.solvers.registry import default_registry

_SEED = 12345678  # MIOpenDriver's
_MIOPEN_NUMBERS = {
    85: "ConvDirectNaiveConvFwd",
    86: "ConvDirectNaiveConvBwd",
    87: "ConvDirectNaiveConvWrw",
    88: "GemmFwd1x1_0_1",
    90: "GemmFwd1x1_0_2",
    91: "GemmFwdRest",
    95: "GemmBwd1x1_stride2",
    96: "GemmBwd1x1_stride1",
    97: "GemmBwdRest",
    101: "GemmWrw1x1_stride1",
    102: "GemmWrwUniversal",
}
"""MIOpen's numeric solver ids, which its driver takes beside names (``src/solver.cpp``, never reused)."""


@dataclasses.dataclass(frozen=True)
class ConvRun:
    """What one direction's run gave."""

    problem: ConvProblem
    device: str
    solver_id: str
    algorithm: str
    source: str
    workspace_bytes: int
    iterations: int
    time_ms: float
    wall_ms: float
    verdict: Verdict | None
    """None where nothing was verified."""

    @property
    def bytes_read(self) -> int:
        return sum(self.problem.tensor(role).nbytes for role in self.problem.inputs)

    @property
    def bytes_written(self) -> int:
        return self.problem.tensor(self.problem.output).nbytes

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data."""
        return {
            "problem": self.problem.key(),
            "device": self.device,
            "solver_id": self.solver_id,
            "algorithm": self.algorithm,
            "source": self.source,
            "workspace_bytes": self.workspace_bytes,
            "iterations": self.iterations,
            "time_ms": self.time_ms,
            "wall_ms": self.wall_ms,
            "flops": self.problem.flops,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "verified": self.verdict.ok if self.verdict else None,
            "error": self.verdict.error if self.verdict else None,
            "limit": self.verdict.limit if self.verdict else None,
        }


def run_conv(problem: ConvProblem, command: DriverCommand, solver: str | None, device: str | None) -> ConvRun:
    """Run one problem as the driver command asks; ``solver`` is what ``wanted_solver`` made of its ``-S``.

    Raises NoSolutionError or NotApplicableError where there is no solver to run, and what the device raises.
    """
    choice = _choice(problem, command, solver, device)
    session = session_for(device)
    prepared = Prepared(problem, choice, session)
    prepared.run()  # not counted: touches every page, and starts the BLAS's threads
    times, start = [], time.perf_counter()
    for _ in range(command.iterations):
        times.append(session.device.time_ms(prepared.run))
    wall_ms = (time.perf_counter() - start) * 1e3 / command.iterations
    return ConvRun(
        problem,
        session.device.name,
        choice.solver_id,
        session.registry.get(choice.solver_id).algorithm,
        choice.source.value,
        choice.workspace_bytes,
        command.iterations,
        sum(times) / len(times),
        wall_ms,
        prepared.verdict() if command.verify else None,
    )


class Prepared:
    """A choice built on a device with random inputs; its output and workspace hold NaN before the first run.

    Works on the device's own memory, so that every device is served alike.
    """

    def __init__(self, problem: ConvProblem, choice: Choice, session: Session) -> None:
        self._problem = problem.canonical()
        device = session.device
        solution = session.registry.get(choice.solver_id).GetSolution(device.target, self._problem)
        self._invoker = build(solution, device, self._problem.roles)
        self._operands = Operands(self._problem, device, _SEED)
        self._operands.poison_output()
        needed = self._invoker.workspace_bytes
        self._workspace = device.allocate(needed) if needed else None
        if self._workspace is not None:
            device.set_bytes(self._workspace.address, needed, POISON)
        self._addresses = self._operands.addresses(self._workspace)

    def run(self) -> None:
        self._invoker.run(self._addresses)

    def verdict(self) -> Verdict:
        """The output, as it is now, against the float64 reference."""
        inputs = self._operands.host
        return judge(self._problem, inputs, self._operands.read_output(), self._problem.reference(inputs))


def wanted_solver(command: DriverCommand) -> str | None:
    """Id of the solver that ``-S`` names, None where it leaves the choice. Raises UnknownSolverError."""
    wanted = command.solution
    if not wanted:
        return None
    if isinstance(wanted, int) and wanted not in _MIOPEN_NUMBERS:
        raise UnknownSolverError(
            "no solver here has this number of MIOpen's", got=wanted, remedy="`hipfind solvers` lists the names"
        )
    return default_registry().get(_MIOPEN_NUMBERS[wanted] if isinstance(wanted, int) else wanted).SolverDbId()


def _choice(problem: ConvProblem, command: DriverCommand, solver: str | None, device: str | None) -> Choice:
    if solver is not None or command.solution == 0:
        return api.plan(problem, solver=solver, device=device).choice
    with find_progress() as on_progress:
        mode = "NORMAL" if command.search else None
        report = api.find(problem, mode, device=device, tune=command.search, on_progress=on_progress)
    if report.best is None:
        raise NoSolutionError(nothing_usable(report))
    return report.best
