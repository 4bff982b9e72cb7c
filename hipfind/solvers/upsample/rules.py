"""Applicability rules and estimates that the upsampling solvers share."""

from __future__ import annotations

from collections.abc import Sequence

from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import KernelStep, flat
from hipfind.problem.dtypes import DType
from hipfind.problem.upsample import UpsampleProblem
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.solvers.upsample.coordinates import Coordinates
from hipfind.target import Target

_DTYPES = (DType.FP32, DType.FP16, DType.BF16, DType.FP64)
_MEMORY_PERCENT = 85
_MAX_EXTENT = 2**30 - 1
_NARROW = (2, 5)
"""Widths of windows that kernels are compiled for: so many weights are kept in registers."""


def common(target: Target, problem: UpsampleProblem, direction: str = "bwd") -> Applicability:
    """What every upsampling solver asks for: its operation and direction, work, a float dtype, a compiler, sizes."""
    if problem.operation != "upsample":
        return no(Reason.OPERATION, problem.operation)
    if problem.direction != direction:
        return no(Reason.DIRECTION, problem.direction)
    if problem.is_empty:
        return no(Reason.EMPTY)
    if problem.dtype not in _DTYPES:
        return no(Reason.DTYPE, problem.dtype.value)
    if not target.kernels:
        return no(Reason.NO_COMPILER)
    largest = max(*problem.x.lengths[2:], *problem.y.lengths[2:])
    if largest > _MAX_EXTENT:
        return no(Reason.TOO_LARGE, f"height or width {largest}")
    return APPLICABLE


def no_neighbours(problem: UpsampleProblem) -> Applicability:
    """The answer of a solver that reads rows of neighbours."""
    strides = f"strides dy {problem.y.strides}, dx {problem.x.strides}"
    return no(Reason.LAYOUT, f"neither pixels of a row nor channels are neighbours, or too few are: {strides}")


def feasible(target: Target, solution: Solution) -> Applicability:
    """Workspace that the device can have, and launches that it can count."""
    if solution.workspace_bytes * 100 > target.memory_bytes * _MEMORY_PERCENT:
        return no(Reason.WORKSPACE_TOO_LARGE, f"{solution.workspace_bytes} bytes")
    for _, step in flat(solution.steps):
        if isinstance(step, KernelStep) and step.items > target.max_items:
            return no(Reason.TOO_LARGE, f"{step.items} work items")
    return APPLICABLE


def taps_of(w: Coordinates, widths: Sequence[int] = _NARROW) -> int:
    """Columns of the widest window, rounded up to one of the ``widths`` that kernels are compiled for, else 0."""
    return next((taps for taps in widths if w.span(1) <= taps), 0)


def pack_of(elements: int, most: int) -> int:
    """Neighbouring elements that a thread takes: ``most`` where ``elements`` are a multiple of them, else 1."""
    return most if elements % most == 0 else 1
