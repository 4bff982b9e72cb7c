"""Runs one convolution for ``hipfind conv``: chooses a solver, makes data, times it, checks it in float64."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from hipfind import settings
from hipfind.cli import conv_data
from hipfind.cli.conv_guard import Guards
from hipfind.cli.find import nothing_usable
from hipfind.cli.progress import find_progress
from hipfind.errors import DeviceError, NoSolutionError, UnknownSolverError
from hipfind.find import api
from hipfind.find.calls import log_command
from hipfind.find.numerics import watched
from hipfind.find.operands import POISON, Operands
from hipfind.find.plan import build_choice
from hipfind.find.report import Choice
from hipfind.find.session import Session, session_for
from hipfind.problem.base import Float64Array
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
class Times:
    """Times of the counted iterations in ms."""

    min: float
    median: float
    mean: float
    max: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Times:
        return cls(min(samples), statistics.median(samples), statistics.fmean(samples), max(samples))

    def to_dict(self) -> dict[str, float]:
        """As JSON-ready data."""
        return {f"{name}_ms": value for name, value in dataclasses.asdict(self).items()}


@dataclasses.dataclass(frozen=True)
class ConvRun:
    """What one direction's run gave."""

    problem: ConvProblem
    device: str
    solver_id: str
    algorithm: str
    config: str
    source: str
    workspace_bytes: int
    iterations: int
    device_times: Times
    wall_times: Times
    verdict: Verdict | None
    """None where nothing was verified."""
    overruns: tuple[str, ...]
    """Buffers outside which something was written."""
    files: tuple[str, ...]
    """Files that were written."""

    @property
    def is_right(self) -> bool:
        """False where a check was made and failed."""
        return not self.overruns and (self.verdict is None or self.verdict.ok)

    @property
    def bytes_read(self) -> int:
        return sum(self.problem.tensor(role).nbytes for role in self.problem.inputs)

    @property
    def bytes_written(self) -> int:
        return self.problem.tensor(self.problem.output).nbytes

    def gflops(self, ms: float) -> float:
        """GFLOP/s of the direct algorithm in ``ms``; 0 for no time."""
        return self.problem.flops / ms / 1e6 if ms else 0.0

    def gigabytes(self, ms: float) -> float:
        """GB/s in ``ms``, each tensor counted once; 0 for no time."""
        return (self.bytes_read + self.bytes_written) / ms / 1e6 if ms else 0.0

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data. ``time_ms`` and ``wall_ms`` are means, the rates are the median's."""
        return {
            "problem": self.problem.key(),
            "device": self.device,
            "solver_id": self.solver_id,
            "algorithm": self.algorithm,
            "config": self.config,
            "source": self.source,
            "workspace_bytes": self.workspace_bytes,
            "iterations": self.iterations,
            "time_ms": self.device_times.mean,
            "wall_ms": self.wall_times.mean,
            "device_times": self.device_times.to_dict(),
            "wall_times": self.wall_times.to_dict(),
            "flops": self.problem.flops,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "gflops": self.gflops(self.device_times.median),
            "gbytes_per_s": self.gigabytes(self.device_times.median),
            "verified": self.verdict.ok if self.verdict else None,
            "error": self.verdict.error if self.verdict else None,
            "limit": self.verdict.limit if self.verdict else None,
            "overruns": list(self.overruns),
            "files": list(self.files),
        }


def run_conv(problem: ConvProblem, command: DriverCommand, solver: str | None, device: str | None) -> ConvRun:
    """Run one problem as the driver command asks; ``solver`` is what ``wanted_solver`` made of its ``-S``.

    Raises NoSolutionError or NotApplicableError where there is no solver to run, DataFileError, what the device raises.
    """
    loaded = conv_data.load_inputs(command, problem)
    choice = _choice(problem, command, solver, device)
    log_command("Run", problem, choice.solver_id)
    session = session_for(device)
    prepared = Prepared(problem, choice, session, loaded, command.buffer_check)
    device_times, wall_times = _time(prepared, command)
    output = prepared.read_output()
    reference = prepared.reference(command.verification_cache) if command.verify else None
    files: list[str] = []
    if command.dump_output:
        files += conv_data.dump_inputs(problem, prepared.inputs)
        files += conv_data.dump_results(problem, output, reference)
    return ConvRun(
        problem,
        session.device.name,
        choice.solver_id,
        session.registry.get(choice.solver_id).algorithm,
        choice.config,
        choice.source.value,
        choice.workspace_bytes,
        command.iterations,
        device_times,
        wall_times,
        prepared.verdict(output, reference) if reference is not None else None,
        prepared.overruns(),
        tuple(files),
    )


def _time(prepared: Prepared, command: DriverCommand) -> tuple[Times, Times]:
    """Device and wall-clock times of the iterations. The run before them, which is checked, is not counted."""
    prepared.checked_run()  # touches every page, and starts the BLAS's threads
    run = prepared.captured() if command.use_graph else prepared.run
    device_times, wall_times = [], []
    for _ in range(command.iterations):
        start = time.perf_counter()
        device_times.append(prepared.device.time_ms(run))
        wall_times.append((time.perf_counter() - start) * 1e3)
    return Times.of(device_times), Times.of(wall_times)


class Prepared:
    """A choice built on a device with random or loaded inputs; output and workspace hold NaN before the first run.

    Works on the device's own memory, so that every device is served alike.
    """

    def __init__(
        self,
        problem: ConvProblem,
        choice: Choice,
        session: Session,
        loaded: Mapping[str, npt.NDArray[Any]] = MappingProxyType({}),
        buffer_check: int = 0,
    ) -> None:
        self._problem = problem
        self._canonical = problem.canonical()
        self._roles = problem.canonical_roles()
        self.device = device = session.device
        self._guards = Guards(device, buffer_check) if buffer_check else None
        allocate = self._guards.allocate if self._guards else device.allocate
        self._invoker = build_choice(problem, session, choice)
        with settings.override(log_cmd=False):
            self._watched = watched(self._invoker, problem, device)
        self._operands = Operands(self._canonical, device, _SEED, allocate)
        for role, values in loaded.items():
            self._operands.load(self._roles[role], values if values.size else np.zeros(1, values.dtype))
        self._operands.poison_output()
        needed = self._invoker.workspace_bytes
        self._workspace = allocate(needed) if needed else None
        if self._workspace is not None:
            device.set_bytes(self._workspace.address, needed, POISON)
        self._addresses = self._operands.addresses(self._workspace)

    def checked_run(self) -> None:
        """Run once, with the numerics check where the settings ask for it."""
        self._watched.run(self._addresses)

    def run(self) -> None:
        self._invoker.run(self._addresses)

    def captured(self) -> Callable[[], None]:
        """The run as a recorded graph. Raises DeviceError where the device or a step cannot be recorded."""
        piece = self.device.capture(lambda stream: self._invoker.run(self._addresses, stream))
        if piece is None:
            what = f"{self.device.name} cannot record this solution as a graph"
            raise DeviceError(what, got=self._invoker.solution.solver_id, remedy="leave out --use_hip_graph (-J)")
        return lambda: piece(0)

    @property
    def inputs(self) -> dict[str, npt.NDArray[np.generic]]:
        """The inputs in logical shape, by the problem's own roles."""
        return {role: self._operands.host[self._roles[role]] for role in self._problem.inputs}

    def read_output(self) -> npt.NDArray[np.generic]:
        """The output as it is now, in logical shape."""
        return self._operands.read_output()

    def reference(self, folder: str) -> Float64Array:
        """The float64 reference, from the folder of kept ones where it is not ""."""
        problem, arrays = self._canonical, self._operands.host
        return conv_data.kept_reference(folder, problem, arrays) if folder else problem.reference(arrays)

    def verdict(self, output: npt.NDArray[np.generic], reference: Float64Array) -> Verdict:
        """An output against the reference."""
        return judge(self._canonical, self._operands.host, output, reference)

    def overruns(self) -> tuple[str, ...]:
        """Names of the buffers outside which something was written; none without a buffer check."""
        own = {canonical: role for role, canonical in self._roles.items()}
        names = [*(own[role] for role in self._canonical.roles), "workspace"]
        return tuple(names[number] for number in self._guards.broken()) if self._guards else ()


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
    policy = {"find_enforce": str(command.tuning_policy)} if command.tuning_policy else {}
    with find_progress() as on_progress, settings.override(**policy):
        mode = "NORMAL" if command.search else None
        report = api.find(problem, mode, device=device, tune=command.search, on_progress=on_progress)
    if report.best is None:
        raise NoSolutionError(nothing_usable(report))
    return report.best
