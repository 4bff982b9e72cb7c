"""ConvDirectDepthwiseWrw: weight gradient of depthwise convolution, with the sums of all taps in registers.

dw[c, t] = sum over n and o of dy[n, c, o] * x[n, c, o * stride + t * dilation - pad].

A thread keeps the sums of a channel's taps and takes tiles of dy, each with the rows of x that it meets. Groups of
threads add up their sums in shared memory and write them to the workspace, in as many parts a channel as occupy the
device; a second kernel adds up the parts. One order always, no atomics.

Source: our own; split sums as in matrix products with a long reduction.
"""

from __future__ import annotations

from hipfind.invokers.steps import WORKSPACE, KernelStep, Operand, Step
from hipfind.kernels.spec import KernelSpec
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.depthwise.base import DepthwiseSolver, definitions, geometry, rate
from hipfind.solvers.depthwise.config import DepthwiseConfig
from hipfind.solvers.depthwise.shape import most_parts, parts_of, shape_of
from hipfind.target import Target

_WEIGHTS = 16
"""Weights that a group of depthwise_sum takes."""


class ConvDirectDepthwiseWrw(DepthwiseSolver):
    """Weight gradient, 2D, one filter a channel, images channel-first or channel-last; workspace for parts of sums."""

    __slots__ = ()

    solver_id = "ConvDirectDepthwiseWrw"
    direction = "wrw"

    def GetWorkspaceSize(self, target: Target, problem: ConvProblem) -> int:
        shape = shape_of(problem)
        return most_parts(target, shape) * problem.w.elements * shape.sum_bytes

    def steps(self, target: Target, problem: ConvProblem, config: DepthwiseConfig) -> tuple[Step, ...]:
        shape, grid, extents = geometry(target, problem, config)
        parts = parts_of(target, shape, config)
        tiles = shape.images * grid.rows * grid.columns
        partials, weights = Operand(WORKSPACE), problem.w.elements
        sums = KernelStep(
            KernelSpec("depthwise_wrw.hip", "depthwise_wrw", definitions(target, problem, config)),
            (*(Operand(role) for role in problem.inputs), partials),
            (*extents, grid.columns, grid.rows, grid.chunks, tiles, parts),
            items=grid.chunks * parts * grid.members,
            flops=problem.flops,
            bytes=problem.min_bytes + parts * weights * shape.sum_bytes,
            efficiency=rate(target, problem),
        )
        defines = (("ELEM", problem.dtype.value), ("HF_GROUP", str(grid.members)))
        total = KernelStep(
            KernelSpec("depthwise_sum.hip", "depthwise_sum", defines),
            (partials, Operand("w")),
            (weights, parts),
            items=-(-weights // _WEIGHTS) * grid.members,
            flops=parts * weights,
            bytes=weights * (parts * shape.sum_bytes + problem.dtype.itemsize),
        )
        return (sums, total)
