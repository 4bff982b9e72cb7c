"""Invokers: which operation gets which addresses, in which order; nothing is prepared or allocated while they run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipfind.device.base import Memory, RunGemm, RunKernel
from hipfind.device.host import HostDevice
from hipfind.errors import CompileError, HipfindError
from hipfind.invokers.invoker import build
from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import WORKSPACE, ClearStep, GemmStep, KernelStep, LoopStep, Operand, Step, flat
from hipfind.kernels.spec import GemmSpec, KernelSpec
from hipfind.problem.dtypes import DType

ROLES = ("x", "w", "y")
PLACES = (*ROLES, WORKSPACE)
ADDRESSES = [1000, 2000, 3000, 4000]
GEMM = GemmSpec(2, 3, 4, DType.FP32, DType.FP32, 4, 3, 3)


class Recorder(HostDevice):
    """Writes down what is prepared and what runs, and runs nothing."""

    def __init__(self) -> None:
        self.prepared: list[Any] = []
        self.ran: list[Any] = []

    def prepare_kernel(self, spec: KernelSpec, params: tuple[int | float, ...], items: int) -> RunKernel:
        self.prepared.append((spec, params, items))
        return lambda addresses, stream: self.ran.append((spec.entry, *addresses, stream))

    def prepare_gemm(self, spec: GemmSpec) -> RunGemm:
        self.prepared.append(spec)
        return lambda a, b, c, stream: self.ran.append(("gemm", a, b, c, stream))

    def set_bytes(self, address: int, nbytes: int, value: int, stream: int = 0) -> None:
        self.ran.append(("set", address, nbytes, value, stream))

    def allocate(self, nbytes: int) -> Memory:
        raise AssertionError("an invoker allocates nothing")


def solution(*steps: Step, workspace: int = 0) -> Solution:
    return Solution("Test", 1, "key", steps, workspace)


def kernel(entry: str, *operands: Operand, params: tuple[int | float, ...] = (), items: int = 1) -> KernelStep:
    return KernelStep(KernelSpec("some.hip", entry), operands, params, items, flops=0, bytes=0)


def run(*steps: Step, stream: int = 0) -> list[Any]:
    device = Recorder()
    invoker = build(solution(*steps), device, ROLES)
    assert not device.ran, "building runs nothing"
    prepared = len(device.prepared)
    invoker.run(ADDRESSES, stream)
    assert len(device.prepared) == prepared, "running prepares nothing"
    return device.ran


def test_steps_run_in_order_on_their_buffers_and_stream():
    ran = run(
        ClearStep(Operand(WORKSPACE, offset=64), 32),
        kernel("pack", Operand("x"), Operand(WORKSPACE, offset=128)),
        GemmStep(GEMM, Operand("w", offset=8), Operand(WORKSPACE), Operand("y", offset=16)),
        kernel("one", Operand("y", offset=4)),
        kernel("three", Operand("y"), Operand("x"), Operand("w")),
        stream=7,
    )
    assert ran == [
        ("set", 4064, 32, 0, 7),
        ("pack", 1000, 4128, 7),
        ("gemm", 2008, 4000, 3016, 7),
        ("one", 3004, 7),
        ("three", 3000, 1000, 2000, 7),
    ]


def test_loops_move_what_advances_and_start_over_in_the_next_run():
    loop = LoopStep(
        3,
        (
            kernel("im2col", Operand("x", offset=8, advance=100), Operand(WORKSPACE)),
            GemmStep(GEMM, Operand("w"), Operand(WORKSPACE), Operand("y", advance=40)),
            ClearStep(Operand("y", advance=-1), 4),
        ),
    )
    one_run = [
        call
        for turn in range(3)
        for call in (
            ("im2col", 1008 + 100 * turn, 4000, 0),
            ("gemm", 2000, 4000, 3000 + 40 * turn, 0),
            ("set", 3000 - turn, 4, 0, 0),
        )
    ]
    device = Recorder()
    invoker = build(solution(loop, kernel("last", Operand("y", advance=5))), device, ROLES)
    for _ in range(2):
        invoker.run(ADDRESSES)
    assert device.ran == 2 * [*one_run, ("last", 3000, 0)]
    assert len(device.prepared) == 3, "a loop's body is prepared once"


operands = st.builds(Operand, st.sampled_from(PLACES), st.integers(0, 99) | st.just(0), st.integers(0, 9) | st.just(0))
plain_steps = st.one_of(
    st.builds(lambda ops: kernel("k", *ops), st.lists(operands, min_size=1, max_size=5)),
    st.builds(GemmStep, st.just(GEMM), operands, operands, operands),
    st.builds(ClearStep, operands, st.integers(0, 99)),
)
loops = st.builds(LoopStep, st.integers(0, 4), st.lists(plain_steps, min_size=1, max_size=3).map(tuple))


def expected_calls(step: Any, turn: int = 0) -> list[Any]:
    """What the definition of the steps says that runs."""
    if isinstance(step, LoopStep):
        return [call for number in range(step.count) for inner in step.body for call in expected_calls(inner, number)]

    def at(operand: Operand) -> int:
        return ADDRESSES[PLACES.index(operand.buffer)] + operand.offset + turn * operand.advance

    if isinstance(step, KernelStep):
        return [("k", *map(at, step.operands), 0)]
    if isinstance(step, GemmStep):
        return [("gemm", at(step.a), at(step.b), at(step.c), 0)]
    return [("set", at(step.target), step.nbytes, 0, 0)]


@given(steps=st.lists(plain_steps | loops, max_size=4))
def test_any_steps_run_as_they_are_defined(steps: Sequence[Step]) -> None:
    calls = [call for step in steps for call in expected_calls(step)]
    assert run(*steps) == calls
    assert len(calls) == sum(count for count, _ in flat(tuple(steps)))


def test_a_solution_without_steps_does_nothing():
    assert run() == []


def test_a_step_on_an_unknown_buffer_is_an_error_that_names_the_known_ones():
    with pytest.raises(HipfindError, match=r"x, w, y, workspace .got dx"):
        build(solution(kernel("k", Operand("dx"))), Recorder(), ROLES)


def test_parameters_and_items_reach_the_device():
    device = Recorder()
    build(solution(kernel("k", Operand("x"), params=(1, 2.5), items=77)), device, ROLES)
    assert device.prepared == [(KernelSpec("some.hip", "k"), (1, 2.5), 77)]


def test_workspace_bytes_are_the_solutions():
    assert build(solution(workspace=123), Recorder(), ROLES).workspace_bytes == 123


def test_a_solution_read_back_from_data_runs_the_same():
    steps = (LoopStep(2, (kernel("k", Operand("x", 8, 4), params=(3, 0.5)),)), GemmStep(GEMM, *map(Operand, ROLES)))
    first, second = Recorder(), Recorder()
    build(solution(*steps), first, ROLES).run(ADDRESSES)
    build(Solution.from_dict(solution(*steps).to_dict()), second, ROLES).run(ADDRESSES)
    assert first.ran == second.ran and first.prepared == second.prepared


def test_a_kernel_that_does_not_compile_fails_when_it_is_built():
    device = HostDevice()
    bad = KernelStep(KernelSpec("cast.hip", "cast_from_fp32", (("ELEM", "nonsense"),)), (Operand("x"),), (), 1, 0, 0)
    with pytest.raises(CompileError):
        build(solution(bad), device, ROLES)


def test_one_invoker_runs_from_many_threads_on_other_buffers():
    device = HostDevice()
    gemm = GemmStep(GemmSpec(8, 8, 8, DType.FP32, DType.FP32, 8, 8, 8), *map(Operand, ROLES))
    invoker = build(solution(gemm), device, ROLES)
    failures: list[int] = []

    def work(seed: int) -> None:
        x, w = np.random.default_rng(seed).integers(-5, 6, (2, 8, 8)).astype(np.float32)
        y = np.empty((8, 8), np.float32)
        for _ in range(100):
            y.fill(np.nan)
            invoker.run([x.ctypes.data, w.ctypes.data, y.ctypes.data, 0])
            if not np.array_equal(y, x @ w):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
