"""Runs one solver on a real device, hard: poisoned output and workspace, guard bytes around every buffer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from hipfind.device.base import Device, Memory
from hipfind.invokers.invoker import build
from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import WORKSPACE
from hipfind.problem import Problem, TensorDescriptor, tolerance
from hipfind.solvers.registry import AnySolver
from hipfind.target import Target
from tests.helpers.arrays import make_arrays

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_GUARD = 256
"""Bytes before and after every buffer; keeps the alignment that devices promise."""
_GUARD_BYTE = 0xA5


def solve(
    device: Device,
    solver: AnySolver,
    problem: Problem,
    arrays: dict[str, Array],
    poison: float = np.nan,
    target: Target | None = None,
) -> Array:
    """The solver's output in logical shape; see ``run``. ``target``: for whom the solution is made, else the device."""
    return run(device, solver.GetSolution(target or device.target, problem), problem, arrays, poison)


def run(
    device: Device,
    solution: Solution,
    problem: Problem,
    arrays: dict[str, Array],
    poison: float = np.nan,
    shift: int = 0,
) -> Array:
    """The solution's output in logical shape. ``arrays``: role -> array as ``make_arrays`` gives it, left unchanged.

    Output, its gaps and the workspace hold ``poison`` beforehand. Inputs and output miss the alignment that devices
    promise by ``shift`` bytes. Asserts that inputs, gaps of the output and bytes around every buffer are left alone.
    """
    output = problem.tensor(problem.output)
    contents = {role: np.array(array.base) for role, array in arrays.items()}
    if not problem.reads_output:
        contents[problem.output].fill(poison)
    elements = -(-solution.workspace_bytes // output.dtype.itemsize)
    contents[WORKSPACE] = np.full(elements, poison, output.dtype.numpy).view(np.uint8)[: solution.workspace_bytes]
    buffers = {
        name: _Buffer(device, flat.view(np.uint8), 0 if name == WORKSPACE else shift) for name, flat in contents.items()
    }

    build(solution, device, problem.roles).run([buffers[name].address for name in (*problem.roles, WORKSPACE)])
    device.synchronize()

    for name, buffer in buffers.items():
        buffer.check_guards(f"{solution.solver_id}: {name}")
    for role in problem.inputs:
        assert np.array_equal(buffers[role].read(), buffers[role].before), f"{solution.solver_id} changed {role}"
    return _without_gaps(buffers[problem.output], output)


def check_all(
    device: Device, solvers: Iterable[AnySolver], problem: Problem, seed: int = 0, target: Target | None = None
) -> list[str]:
    """Compare every solver that applies to the problem's canonical form with the float64 reference; returns their ids.

    ``target``: for whom the solutions are made, else the device.
    """
    canonical = problem.canonical()
    arrays = make_arrays(canonical, seed)
    expected = canonical.reference(arrays)
    names = []
    for solver in solvers:
        if solver.IsApplicable(target or device.target, canonical):
            out = solve(device, solver, canonical, arrays, target=target)
            verdict = tolerance.judge(canonical, arrays, out, expected)
            assert verdict.ok, f"{solver.SolverDbId()} is wrong: {verdict} for {canonical.key()}"
            names.append(solver.SolverDbId())
    return names


@dataclasses.dataclass
class _Buffer:
    """Device memory with guard bytes around it; ``shift`` more of them in front."""

    device: Device
    before: Bytes
    shift: int

    def __post_init__(self) -> None:
        self._front = _GUARD + self.shift
        self._memory: Memory = self.device.allocate(self._front + self.before.size + _GUARD)
        front, back = (np.full(size, _GUARD_BYTE, np.uint8) for size in (self._front, _GUARD))
        self.device.copy_in(self._memory.address, np.concatenate([front, self.before, back]))

    @property
    def address(self) -> int:
        return self._memory.address + self._front

    def _all(self) -> Bytes:
        return self.device.as_numpy(self._memory, np.uint8, (self._front + self.before.size + _GUARD,))

    def read(self) -> Bytes:
        return self._all()[self._front : -_GUARD].copy()

    def check_guards(self, name: str) -> None:
        contents = self._all()
        assert (contents[: self._front] == _GUARD_BYTE).all(), f"{name}: bytes before the buffer were written"
        assert (contents[-_GUARD:] == _GUARD_BYTE).all(), f"{name}: bytes behind the buffer were written"


def _without_gaps(buffer: _Buffer, output: TensorDescriptor) -> Array:
    """The output in logical shape, once it is sure that its gaps are as they were."""
    after, before = buffer.read(), buffer.before.copy()
    strides = [stride * output.dtype.itemsize for stride in output.strides]
    written, former = (
        np.ndarray(output.lengths, output.dtype.numpy, flat.data, 0, strides) for flat in (after, before)
    )
    result = written.copy()
    written[...] = former[...] = 0
    assert np.array_equal(after, before), "gaps of the output were written"
    return result
