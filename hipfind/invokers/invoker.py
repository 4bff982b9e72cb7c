"""Invokers: a solution's steps, compiled for one device and bound to the places of its buffers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TypeAlias

from hipfind.device.base import Device
from hipfind.errors import HipfindError
from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import WORKSPACE, GemmStep, KernelStep, LoopStep, Operand, PlainStep

Addresses: TypeAlias = Sequence[int]
Run: TypeAlias = Callable[[Addresses, int], None]
"""A bound step: called with the buffers' addresses and a stream."""
RunTurn: TypeAlias = Callable[[Addresses, int, int], None]
"""A bound step of a loop's body: called with the addresses, the number of the turn, and a stream."""


class Invoker:
    """A solution ready to run. Holds no buffers, so that several threads may run it at once, each with its own."""

    __slots__ = ("_runs", "solution")

    def __init__(self, solution: Solution, runs: tuple[Run, ...]) -> None:
        self.solution = solution
        self._runs = runs

    @property
    def workspace_bytes(self) -> int:
        """Bytes of workspace that ``run`` needs."""
        return self.solution.workspace_bytes

    def run(self, addresses: Addresses, stream: int = 0) -> None:
        """Queue every step on the stream. ``addresses``: the buffers in the order of the roles, the workspace last."""
        for run in self._runs:
            run(addresses, stream)


def build(solution: Solution, device: Device, roles: Sequence[str]) -> Invoker:
    """Compile a solution's kernels for a device and bind its steps to buffers in the order of ``roles``.

    Raises CompileError, DeviceError, and HipfindError for a step that names a buffer which is not a role.
    """
    device.compile_ahead(solution.kernels)
    binder = _Binder(device, roles)
    return Invoker(solution, tuple(binder.bind(step) for step in solution.steps))


class _Binder:
    """Turns steps into functions of addresses."""

    def __init__(self, device: Device, roles: Sequence[str]) -> None:
        self._device = device
        self._slots = {name: slot for slot, name in enumerate((*roles, WORKSPACE))}

    def bind(self, step: PlainStep | LoopStep) -> Run:
        if isinstance(step, LoopStep):
            return _loop(step.count, tuple(self._turn(inner) for inner in step.body))
        run, operands = self._prepared(step)
        return _at_offsets(run, [(self._slot(operand), operand.offset) for operand in operands])

    def _turn(self, step: PlainStep) -> RunTurn:
        run, operands = self._prepared(step)
        places = [(self._slot(operand), operand.offset, operand.advance) for operand in operands]

        def turn(addresses: Addresses, number: int, stream: int) -> None:
            run([addresses[slot] + offset + number * advance for slot, offset, advance in places], stream)

        return turn

    def _prepared(self, step: PlainStep) -> tuple[Run, tuple[Operand, ...]]:
        """A step as a function of its operands' addresses, and the operands."""
        device = self._device
        if isinstance(step, KernelStep):
            return device.prepare_kernel(step.kernel, step.params, step.items), step.operands
        if isinstance(step, GemmStep):
            multiply = device.prepare_gemm(step.gemm)
            return lambda places, stream: multiply(places[0], places[1], places[2], stream), (step.a, step.b, step.c)
        nbytes = step.nbytes
        return lambda places, stream: device.set_bytes(places[0], nbytes, 0, stream), (step.target,)

    def _slot(self, operand: Operand) -> int:
        slot = self._slots.get(operand.buffer)
        if slot is None:
            known = ", ".join(self._slots)
            raise HipfindError(f"a step's buffer must be one of {known}", got=operand.buffer)
        return slot


def _at_offsets(run: Run, places: list[tuple[int, int]]) -> Run:
    if len(places) > 1 and not any(offset for _, offset in places):
        pick = operator.itemgetter(*(slot for slot, _ in places))  # the common case, without a loop
        return lambda addresses, stream: run(pick(addresses), stream)
    return lambda addresses, stream: run([addresses[slot] + offset for slot, offset in places], stream)


def _loop(count: int, turns: tuple[RunTurn, ...]) -> Run:
    def loop(addresses: Addresses, stream: int) -> None:
        for number in range(count):
            for turn in turns:
                turn(addresses, number, stream)

    return loop
