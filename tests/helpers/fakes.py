"""A device with a scripted clock and solvers with scripted behaviour: the find engine runs on them without timing."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from hipfind.device.base import Array, Device, Memory, RunGemm, RunKernel
from hipfind.errors import CompileError, DeviceError, KernelLaunchError, OutOfMemoryError
from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import KernelStep, Operand
from hipfind.kernels.spec import GemmSpec, KernelSpec
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.base import Solver
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.target import Target, known


class FakeMemory(Memory):
    def __init__(self, nbytes: int) -> None:
        self.buffer = np.full(max(nbytes, 1), 0xAB, np.uint8)
        self.address = self.buffer.ctypes.data
        self.nbytes = nbytes


def array_at(address: int, problem: ConvProblem, role: str) -> Array:
    """A numpy view, in logical shape, of a tensor at an address of this process."""
    descriptor = problem.tensor(role)
    size = descriptor.dtype.itemsize
    raw = (ctypes.c_char * descriptor.span_bytes).from_address(address)
    strides = tuple(stride * size for stride in descriptor.strides)
    return np.ndarray(descriptor.lengths, np.dtype(descriptor.dtype.numpy), buffer=raw, strides=strides)


@dataclasses.dataclass
class Behaviour:
    """What a fake solver's kernel does. ``times``: ms of the n-th launch, the last one repeated; the first is cold."""

    times: Sequence[float] | Callable[[int, float], float] = (1.0,)
    result: str = "right"  # "right", "scaled", "last_row", "unwritten"
    compile_error: str = ""
    launch_error: str = ""
    fail_after: int = 0
    launches: int = 0

    def next_time(self, now: float) -> float:
        index = self.launches
        self.launches += 1
        if callable(self.times):
            return self.times(index, now)
        return self.times[min(index, len(self.times) - 1)]


class FakeDevice(Device):
    """Host memory, a clock that only kernels move, and kernels that follow their Behaviour."""

    def __init__(self, problem: ConvProblem, behaviours: dict[str, Behaviour], target: Target | None = None) -> None:
        self.name = "fake"
        self.target = target or known("gfx942")
        self.problem = problem.canonical()
        self.behaviours = behaviours
        self.clock_ms = 0.0
        self.memory_limit = 1 << 40
        self.flushes = 0
        self.facts = {"driver": "1"}

    def allocate(self, nbytes: int) -> Memory:
        if nbytes > self.memory_limit:
            raise OutOfMemoryError("the fake device is full", got=f"{nbytes} of {self.memory_limit} bytes")
        return FakeMemory(nbytes)

    def copy_in(self, address: int, array: Array) -> None:
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def copy_out(self, array: Array, address: int) -> None:
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def set_bytes(self, address: int, nbytes: int, value: int, stream: int = 0) -> None:
        ctypes.memset(address, value, nbytes)

    def prepare_kernel(self, spec: KernelSpec, params: tuple[int | float, ...], items: int) -> RunKernel:
        behaviour = self.behaviours[dict(spec.defines)["NAME"]]
        if behaviour.compile_error:
            raise CompileError("fake compile failed", log=behaviour.compile_error)

        def run(addresses: Sequence[int], stream: int) -> None:
            self.clock_ms += behaviour.next_time(self.clock_ms)
            if behaviour.launch_error and behaviour.launches > behaviour.fail_after:
                raise KernelLaunchError(behaviour.launch_error)
            self._write(behaviour.result, addresses)

        return run

    def _write(self, result: str, addresses: Sequence[int]) -> None:
        problem = self.problem
        arrays = {
            role: array_at(address, problem, role) for role, address in zip(problem.roles, addresses, strict=True)
        }
        output = arrays[problem.output]
        right = problem.reference({role: array.copy() for role, array in arrays.items()}).astype(output.dtype)
        if result == "scaled":
            right = (right.astype(np.float64) * 1.5).astype(output.dtype)
        if result == "last_row":
            right[-1] = right[0]
        if result == "unwritten":
            output[..., :-1] = right[..., :-1]
            return
        output[...] = right

    def prepare_gemm(self, spec: GemmSpec) -> RunGemm:
        raise DeviceError("the fake device has no BLAS")

    def synchronize(self, stream: int = 0) -> None:
        pass

    def time_ms(self, run: Callable[[], None], stream: int = 0) -> float:
        before = self.clock_ms
        run()
        return self.clock_ms - before

    def flush_cache(self, stream: int = 0) -> None:
        self.flushes += 1

    def environment(self) -> dict[str, str]:
        return dict(self.facts)


class FakeTimer:
    """A Timer on the fake device's clock."""

    def __init__(self, device: FakeDevice) -> None:
        self.device = device

    def measure_ms(self, run: Callable[[], None]) -> float:
        self.device.flush_cache()
        return self.device.time_ms(run)

    def now_ms(self) -> float:
        return self.device.clock_ms


class FakeSolver(Solver[ConvProblem]):
    """Base of fake solvers; make them with ``fake_solver``."""

    __slots__ = ()
    algorithm: ClassVar[str] = "Fake"
    workspace: ClassVar[int] = 0
    dynamic: ClassVar[bool] = True
    applicable: ClassVar[bool] = True
    expected: ClassVar[float] = 1.0
    kernels: ClassVar[tuple[str, ...]] = ()
    """Names of the behaviours that run, one after the other; the solver's own id when empty."""

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        if problem.is_empty:
            return no(Reason.EMPTY)
        return APPLICABLE if self.applicable else no(Reason.FILTER, "fake")

    def IsDynamic(self, problem: ConvProblem) -> bool:
        return self.dynamic

    def GetWorkspaceSize(self, target: Target, problem: ConvProblem) -> int:
        return self.workspace

    def GetWti(self, target: Target, problem: ConvProblem) -> float:
        return 1.0 / self.expected

    def GetExpectedTime(self, target: Target, problem: ConvProblem) -> float:
        return self.expected

    def GetSolution(self, target: Target, problem: ConvProblem, config: Any = None) -> Solution:
        operands = tuple(Operand(role) for role in problem.roles)
        specs = [KernelSpec("cast.hip", "fake", (("NAME", name),)) for name in self.kernels or (self.solver_id,)]
        steps = tuple(KernelStep(spec, operands, (), 1, problem.flops, problem.min_bytes) for spec in specs)
        return self.solution(target, problem, steps)


def fake_solver(solver_id: str, **attributes: Any) -> Solver[ConvProblem]:
    """An instance of a new solver class with these class attributes (workspace, dynamic, version, ...)."""
    return type(solver_id, (FakeSolver,), {"__slots__": (), "solver_id": solver_id, **attributes})()
