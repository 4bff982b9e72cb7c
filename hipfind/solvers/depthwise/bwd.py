"""ConvDirectDepthwiseBwd: data gradient of depthwise convolution, by tiles of results in registers.

dx[n, c, i] = sum over those taps t for which o = (i + pad - t * dilation) / stride is whole, of dy[n, c, o] * w[c, t].
A gather: pixels a stride apart meet the same taps, which are known to the compiler.

A thread keeps a channel's filter and a tile of sums in registers, reads each row of the source once in packs, and
multiplies it by all taps that it meets, so that nearly all instructions are multiply-adds. Wins wherever it applies:
all other solvers take such a problem apart into single channels.

Source: our own; register tiles as in matrix products.
"""

from __future__ import annotations

from hipfind.invokers.steps import Step
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.depthwise.base import DepthwiseSolver
from hipfind.solvers.depthwise.config import DepthwiseConfig
from hipfind.solvers.depthwise.images import image_steps
from hipfind.target import Target


class ConvDirectDepthwiseBwd(DepthwiseSolver):
    """Data gradient, 2D, one filter a channel, images channel-first or channel-last; no workspace."""

    __slots__ = ()

    solver_id = "ConvDirectDepthwiseBwd"
    direction = "bwd"

    def steps(self, target: Target, problem: ConvProblem, config: DepthwiseConfig) -> tuple[Step, ...]:
        return image_steps(target, problem, config)
