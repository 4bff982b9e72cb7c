"""Invokers: a solution bound to a device, ready to run on buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from hipfind.device.base import Device
from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import WORKSPACE, ClearStep, GemmStep, KernelStep, LoopStep, Operand, Step

_Bound: TypeAlias = Callable[[Sequence[int], int, int], None]
"""A step ready to run: called with the buffers' addresses, the loop iteration, and a stream."""


class Invoker:
    """Runs a solution's steps in order on a stream. Holds no buffer, allocates nothing; safe from several threads."""

    def __init__(self, solution: Solution, steps: Sequence[_Bound]) -> None:
        self.solution = solution
        self.workspace_bytes = solution.workspace_bytes
        self._steps = tuple(steps)

    def run(self, addresses: Sequence[int], stream: int = 0) -> None:
        """Queue every step. ``addresses``: one a role in the problem's order, the workspace's last (0 without one)."""
        for step in self._steps:
            step(addresses, 0, stream)


def build(solution: Solution, device: Device, roles: Sequence[str]) -> Invoker:
    """Compile the solution's kernels, prepare its products, and bind all steps to ``device``.

    ``roles`` is the problem's role order. Raises CompileError, DeviceError.
    """
    slots = {name: index for index, name in enumerate((*roles, WORKSPACE))}
    return Invoker(solution, [_bind(step, device, slots) for step in solution.steps])


def _bind(step: Step, device: Device, slots: dict[str, int]) -> _Bound:
    if isinstance(step, LoopStep):
        return _bind_loop(step, device, slots)
    if isinstance(step, KernelStep):
        return _bind_kernel(step, device, slots)
    if isinstance(step, GemmStep):
        return _bind_gemm(step, device, slots)
    return _bind_clear(step, device, slots)


def _bind_loop(step: LoopStep, device: Device, slots: dict[str, int]) -> _Bound:
    body = [_bind(inner, device, slots) for inner in step.body]

    def run(addresses: Sequence[int], iteration: int, stream: int) -> None:
        for index in range(step.count):
            for inner in body:
                inner(addresses, index, stream)

    return run


def _bind_kernel(step: KernelStep, device: Device, slots: dict[str, int]) -> _Bound:
    launch = device.prepare_kernel(step.kernel, step.params, step.items)
    places = [_place(operand, slots) for operand in step.operands]

    def run(addresses: Sequence[int], iteration: int, stream: int) -> None:
        launch([addresses[slot] + offset + iteration * advance for slot, offset, advance in places], stream)

    return run


def _bind_gemm(step: GemmStep, device: Device, slots: dict[str, int]) -> _Bound:
    multiply = device.prepare_gemm(step.gemm)
    (a, a_offset, a_advance), (b, b_offset, b_advance), (c, c_offset, c_advance) = (
        _place(operand, slots) for operand in (step.a, step.b, step.c)
    )

    def run(addresses: Sequence[int], iteration: int, stream: int) -> None:
        multiply(
            addresses[a] + a_offset + iteration * a_advance,
            addresses[b] + b_offset + iteration * b_advance,
            addresses[c] + c_offset + iteration * c_advance,
            stream,
        )

    return run


def _bind_clear(step: ClearStep, device: Device, slots: dict[str, int]) -> _Bound:
    slot, offset, advance = _place(step.target, slots)

    def run(addresses: Sequence[int], iteration: int, stream: int) -> None:
        device.set_bytes(addresses[slot] + offset + iteration * advance, step.nbytes, 0, stream)

    return run


def _place(operand: Operand, slots: dict[str, int]) -> tuple[int, int, int]:
    return slots[operand.buffer], operand.offset, operand.advance
