"""Sums in the type that they are kept in, packed as [chunk, plane, height, width, inner], and the way to dx."""

from __future__ import annotations

from hipfind.invokers.steps import KernelStep, Operand
from hipfind.kernels.spec import KernelSpec
from hipfind.problem.dtypes import DType
from hipfind.problem.upsample import UpsampleProblem
from hipfind.solvers.upsample.planes import Planes, Steps


def sum_bytes(dtype: DType) -> int:
    """Size of the type that sums are kept in: fp32, or fp64 for fp64."""
    return max(dtype.itemsize, DType.FP32.itemsize)


def steps_of_sums(problem: UpsampleProblem, planes: Planes) -> Steps:
    """How one chunk of such sums lies."""
    height, width = problem.x.lengths[2:]
    plane = height * width * planes.inner
    return Steps(planes.per_image * plane, plane, width * planes.inner, planes.inner)


def sum_step(problem: UpsampleProblem, planes: Planes, sums: Operand, chunks: int = 1) -> KernelStep:
    """dx as the total of ``chunks`` sums of each element, rounded once."""
    elements = problem.x.elements
    return KernelStep(
        KernelSpec("upsample_steps.hip", "sum_partials", (("ELEM", problem.dtype.value),)),
        (sums, Operand("dx")),
        (chunks, elements, planes.per_image, *problem.x.lengths[2:], planes.inner, *planes.x),
        items=elements,
        flops=chunks * elements,
        bytes=elements * (chunks * sum_bytes(problem.dtype) + problem.dtype.itemsize),
    )
