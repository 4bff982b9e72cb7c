"""The steps that solutions are made of: frozen data that says which operation reads and writes which bytes.

Buffers are named by the problem's roles, plus "workspace". A loop runs its body ``count`` times; an operand moves by
``advance`` bytes an iteration of the innermost loop around it.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

from hipfind.kernels.spec import AnyKernel, GemmSpec

WORKSPACE = "workspace"


@dataclasses.dataclass(frozen=True)
class Operand:
    """A place in a buffer: ``offset`` bytes from its start, plus ``advance`` bytes for each loop iteration."""

    buffer: str
    offset: int = 0
    advance: int = 0


@dataclasses.dataclass(frozen=True)
class KernelStep:
    """One launch. ``params`` are passed by value, ints as int64 and floats as double; ``items`` work items are run.

    A Triton kernel takes its params as int32, and ``items`` is the number of its programs.

    ``flops`` and ``bytes`` are what this step costs at least; ``efficiency`` is the fraction of the target's plain
    (vector) rate that such code reaches. They feed the time estimate only.
    """

    kernel: AnyKernel
    operands: tuple[Operand, ...]
    params: tuple[int | float, ...]
    items: int
    flops: int
    bytes: int
    efficiency: float = 0.5


@dataclasses.dataclass(frozen=True)
class GemmStep:
    """One matrix product through the device's BLAS."""

    gemm: GemmSpec
    a: Operand
    b: Operand
    c: Operand


@dataclasses.dataclass(frozen=True)
class ClearStep:
    """Set ``nbytes`` bytes to zero."""

    target: Operand
    nbytes: int


PlainStep: TypeAlias = KernelStep | GemmStep | ClearStep


@dataclasses.dataclass(frozen=True)
class LoopStep:
    """Run ``body`` ``count`` times, one after the other. Loops do not nest."""

    count: int
    body: tuple[PlainStep, ...]


Step: TypeAlias = PlainStep | LoopStep


def flat(steps: tuple[Step, ...]) -> tuple[tuple[int, PlainStep], ...]:
    """Every plain step with the number of times that it runs."""
    result: list[tuple[int, PlainStep]] = []
    for step in steps:
        if isinstance(step, LoopStep):
            result += [(step.count, inner) for inner in step.body]
        else:
            result.append((1, step))
    return tuple(result)
