"""Tables of weights in the workspace: what one small kernel makes for the kernels that take them from memory."""

from __future__ import annotations

from typing import NamedTuple

from hipfind.invokers.steps import WORKSPACE, KernelStep, Operand
from hipfind.kernels.spec import KernelSpec
from hipfind.problem.upsample import UpsampleProblem
from hipfind.solvers.upsample.coordinates import coordinates
from hipfind.solvers.upsample.sums import sum_bytes

_ALIGNMENT = 256
_INT = 4


class Tables(NamedTuple):
    """Where the tables lie in the workspace, the bytes that they take, and the step that makes them."""

    weights: Operand
    bounds: Operand
    nbytes: int
    step: KernelStep


def tables_of(problem: UpsampleProblem) -> Tables:
    """Tables at the workspace's start; ``nbytes`` leaves what follows aligned."""
    h, w = (coordinates(axis) for axis in problem.axes)
    weights_bytes = _aligned(2 * (h.out + w.out) * sum_bytes(problem.dtype))
    bounds_bytes = _aligned(2 * (h.size + w.size + 2) * _INT)
    weights, bounds = Operand(WORKSPACE), Operand(WORKSPACE, weights_bytes)
    items = h.size + h.out + w.size + w.out + 2
    step = KernelStep(
        KernelSpec("upsample_steps.hip", "upsample_tables", (("ELEM", problem.dtype.value),)),
        (weights, bounds),
        (*h, *w),
        items=items,
        flops=10 * items,
        bytes=weights_bytes + bounds_bytes,
    )
    return Tables(weights, bounds, weights_bytes + bounds_bytes, step)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
