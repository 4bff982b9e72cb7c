"""ConvDirectDepthwiseFwd: forward depthwise convolution, by tiles of results in registers.

y[n, c, o] = sum over taps t of x[n, c, o * stride + t * dilation - pad] * w[c, t].

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


class ConvDirectDepthwiseFwd(DepthwiseSolver):
    """Forward, 2D, one filter a channel, images channel-first or channel-last; no workspace."""

    __slots__ = ()

    solver_id = "ConvDirectDepthwiseFwd"
    direction = "fwd"

    def steps(self, target: Target, problem: ConvProblem, config: DepthwiseConfig) -> tuple[Step, ...]:
        return image_steps(target, problem, config)
