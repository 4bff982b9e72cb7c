"""The one step of the forward convolution and of its data gradient, which are the same but for the taps' places."""

from __future__ import annotations

from hipfind.invokers.steps import KernelStep, Operand, Step
from hipfind.kernels.spec import KernelSpec
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.depthwise.base import definitions, geometry, rate
from hipfind.solvers.depthwise.config import DepthwiseConfig
from hipfind.solvers.depthwise.shape import strips_of
from hipfind.target import Target


def image_steps(target: Target, problem: ConvProblem, config: DepthwiseConfig) -> tuple[Step, ...]:
    """The launch for y or dx."""
    shape, grid, extents = geometry(target, problem, config)
    strips = strips_of(config, grid)
    tiles = shape.images * (1 if shape.is_last else shape.channels) * strips * grid.columns
    defines = (*definitions(target, problem, config), ("BACKWARD", str(int(shape.h.is_backward))))
    step = KernelStep(
        KernelSpec("depthwise_fwd.hip", "depthwise_fwd", defines),
        tuple(Operand(role) for role in (*problem.inputs, problem.output)),
        (*extents, grid.columns, strips, config.depth, grid.chunks, tiles),
        items=grid.chunks * -(-tiles // grid.slots) * grid.members,
        flops=problem.flops,
        bytes=problem.min_bytes,
        efficiency=rate(target, problem),
    )
    return (step,)
