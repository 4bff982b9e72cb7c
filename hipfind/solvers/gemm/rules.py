"""Applicability rules that the GEMM solvers share.

Each rule returns an Applicability, so that ``rule and rule and rule`` is the first refusal, or APPLICABLE.
"""

from __future__ import annotations

from collections.abc import Sequence

from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import GemmStep, KernelStep, flat
from hipfind.problem.conv import ConvProblem
from hipfind.problem.dtypes import DType
from hipfind.solvers.base import Solver
from hipfind.solvers.geometry import lies_channel_last
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.target import Target

_DTYPES = (DType.FP32, DType.FP16, DType.BF16, DType.FP64)
_MAX_DIMENSION = 2**31 - 1
_MEMORY_PERCENT = 85


def common(target: Target, problem: ConvProblem, direction: str) -> Applicability:
    """What every GEMM solver asks for: its direction, work to do, a float dtype, no scaling, packed tensors."""
    if problem.operation != "conv":
        return no(Reason.OPERATION, problem.operation)
    if problem.direction != direction:
        return no(Reason.DIRECTION, problem.direction)
    if problem.is_empty:
        return no(Reason.EMPTY)
    if problem.dtype not in _DTYPES:
        return no(Reason.DTYPE, problem.dtype.value)
    if problem.dtype.value not in dict(target.peak_tflops):
        return no(Reason.DEVICE_DTYPE, problem.dtype.value)
    if not problem.has_default_scaling:
        return no(Reason.SCALING, f"alpha={problem.alpha:g}, beta={problem.beta:g}")
    if not problem.is_packed:
        return no(Reason.NOT_PACKED, ", ".join(role for role in "xwy" if not problem.tensor(role).layouts()))
    return APPLICABLE


def pointwise(problem: ConvProblem, stride: int) -> Applicability:
    """A 1x1 filter without padding and with this stride on every axis. Its dilation never matters."""
    if any(extent != 1 for extent in problem.filter):
        return no(Reason.FILTER, _text(problem.filter))
    if any(problem.pad) or any(problem.pad_end):
        return no(Reason.PADDING, f"{_text(problem.pad)} before, {_text(problem.pad_end)} after")
    if any(step != stride for step in problem.stride):
        return no(Reason.STRIDE, _text(problem.stride))
    return APPLICABLE


def two_dimensional(problem: ConvProblem) -> Applicability:
    """2D only."""
    return APPLICABLE if problem.ndim == 2 else no(Reason.NDIM, f"{problem.ndim}")


def channel_first(problem: ConvProblem) -> Applicability:
    """All tensors channel-first."""
    return APPLICABLE if problem.is_channel_first else _layout(problem)


def channel_last(problem: ConvProblem) -> Applicability:
    """All tensors channel-last, and not channel-first as well."""
    return APPLICABLE if problem.is_channel_last else _layout(problem)


def one_layout(problem: ConvProblem) -> Applicability:
    """All tensors channel-first, or all channel-last."""
    return APPLICABLE if problem.is_channel_first or lies_channel_last(problem) else _layout(problem)


def left_over(target: Target, problem: ConvProblem, *special: Solver[ConvProblem]) -> Applicability:
    """None of the solvers for special cases applies: they do better than a general one."""
    for solver in special:
        if solver.IsApplicable(target, problem):
            return no(Reason.SPECIALIZED, solver.SolverDbId())
    return APPLICABLE


def feasible(target: Target, solution: Solution) -> Applicability:
    """Sizes that the target can hold and its libraries can count, and a compiler where a kernel is needed.

    BLAS interfaces take matrix dimensions, row strides and batch counts of 32 bits; distances between the matrices of a
    batch are 64-bit numbers, so a tensor may well hold more than 2^31 elements. Kernels count in 64 bits.
    """
    if solution.workspace_bytes * 100 > target.memory_bytes * _MEMORY_PERCENT:
        return no(Reason.WORKSPACE_TOO_LARGE, f"{solution.workspace_bytes} bytes")
    for _, step in flat(solution.steps):
        if isinstance(step, KernelStep):
            if not target.kernels:
                return no(Reason.NO_COMPILER)
            if step.items > target.max_items:
                return no(Reason.TOO_LARGE, f"{step.items} work items")
        elif isinstance(step, GemmStep):
            gemm = step.gemm
            largest = max(gemm.m, gemm.n, gemm.k, gemm.lda, gemm.ldb, gemm.ldc, gemm.batch)
            if largest > _MAX_DIMENSION:
                return no(Reason.TOO_LARGE, f"matrix dimension {largest}")
    return APPLICABLE


def _layout(problem: ConvProblem) -> Applicability:
    return no(Reason.LAYOUT, ", ".join(f"{role} {name}" for role, name in zip("xwy", problem.layouts, strict=True)))


def _text(values: Sequence[int]) -> str:
    return "x".join(str(value) for value in values)
