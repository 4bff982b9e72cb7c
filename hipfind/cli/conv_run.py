"""Runs one convolution for ``hipfind conv``: chooses a solver, makes data, times it, checks it in float64."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from hipfind.cli.find import nothing_usable
from hipfind.cli.progress import find_progress
from hipfind.errors import NoSolutionError, UnknownSolverError
from hipfind.find import api
from hipfind.find.operands import logical_view, span_elements
from hipfind.find.plan import Plan
from hipfind.find.report import Source
from hipfind.find.session import session_for
from hipfind.problem import tolerance
from hipfind.problem.conv import ConvProblem
from hipfind.problem.driver import DriverCommand
from hipfind.problem.tensor import TensorDescriptor

Array = npt.NDArray[Any]

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
    """What one direction's run gave. ``error`` and ``limit`` are None where nothing was verified."""

    problem: ConvProblem
    device: str
    solver_id: str
    algorithm: str
    source: str
    workspace_bytes: int
    iterations: int
    time_ms: float
    wall_ms: float
    error: float | None = None
    limit: float | None = None

    @property
    def is_right(self) -> bool | None:
        """Whether the result is within the limit; None where it was not verified. NaN is never right."""
        return None if self.error is None or self.limit is None else self.error <= self.limit

    @property
    def bytes_read(self) -> int:
        return sum(self.problem.tensor(role).nbytes for role in self.problem.inputs)

    @property
    def bytes_written(self) -> int:
        return self.problem.tensor(self.problem.output).nbytes

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data."""
        return {
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)},
            "problem": self.problem.key(),
            "flops": self.problem.flops,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "verified": self.is_right,
        }


def run_conv(problem: ConvProblem, command: DriverCommand, device: str | None) -> ConvRun:
    """Run one problem as the driver command asks.

    Raises NoSolutionError, NotApplicableError or UnknownSolverError where there is no solver to run, and what the
    device raises.
    """
    plan, source = _plan(problem, command, device)
    session = session_for(device)
    arrays = _arrays(problem)
    inputs, output = [arrays[role] for role in problem.inputs], arrays[problem.output]

    def run() -> None:
        plan(*inputs, out=output)

    run()  # not counted: compiles, touches every page, and starts the BLAS's threads
    times, start = [], time.perf_counter()
    for _ in range(command.iterations):
        times.append(session.device.time_ms(run))
    wall_ms = (time.perf_counter() - start) * 1e3 / command.iterations
    error, limit = _verify(problem, arrays) if command.verify else (None, None)
    return ConvRun(
        problem,
        session.device.name,
        plan.solver_id,
        session.registry.get(plan.solver_id).algorithm,
        source.value,
        plan.workspace_bytes,
        command.iterations,
        sum(times) / len(times),
        wall_ms,
        error,
        limit,
    )


def _plan(problem: ConvProblem, command: DriverCommand, device: str | None) -> tuple[Plan, Source]:
    """The plan that ``-S`` asks for, and where the choice came from."""
    wanted = command.solution
    if wanted is None:
        with find_progress() as on_progress:
            report = api.find(problem, "NORMAL" if command.search else None, device=device, on_progress=on_progress)
        if report.best is None:
            raise NoSolutionError(nothing_usable(report))
        return api.plan(problem, solver=report.best.solver_id, device=device), report.best.source
    plan = api.plan(problem, solver=_solver_id(wanted) if wanted else None, device=device)
    return plan, plan.choice.source


def _solver_id(wanted: int | str) -> str:
    if isinstance(wanted, str):
        return wanted
    if wanted not in _MIOPEN_NUMBERS:
        raise UnknownSolverError(
            "no solver here has this number of MIOpen's", got=wanted, remedy="`hipfind solvers` lists the names"
        )
    return _MIOPEN_NUMBERS[wanted]


def _arrays(problem: ConvProblem) -> dict[str, Array]:
    """Random inputs and an output full of NaN (of the largest value, for integers), each in its own layout."""
    rng = np.random.default_rng(_SEED)
    return {role: _array(problem.tensor(role), rng, role == problem.output) for role in problem.roles}


def _array(descriptor: TensorDescriptor, rng: np.random.Generator, is_output: bool) -> Array:
    count, dtype = span_elements(descriptor), np.dtype(descriptor.dtype.numpy)
    if is_output:
        flat = np.full(count, np.nan if descriptor.dtype.is_float else np.iinfo(dtype).max, dtype)
    elif descriptor.dtype.is_float:
        flat = rng.standard_normal(count, dtype=np.float32).astype(dtype, copy=False)
    else:
        flat = rng.integers(-8, 9, count, dtype=dtype)
    return logical_view(flat, descriptor)


def _verify(problem: ConvProblem, arrays: dict[str, Array]) -> tuple[float, float]:
    """Relative error of the output against the float64 reference, and its limit."""
    if problem.is_empty and not arrays[problem.output].size:
        return 0.0, 0.0
    expected = problem.reference(arrays)
    output = problem.tensor(problem.output)
    error = tolerance.relative_error(arrays[problem.output], expected)
    return error, tolerance.limit(output.dtype, problem.reduction_length)
