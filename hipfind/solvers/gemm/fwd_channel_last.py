"""GemmFwdChannelLast: forward convolution of channel-last tensors with any filter, one product for many images.

P[B*O, C*taps] = im2col(B images of x), y[B*O, K] = P w^T, a batch over groups: w and y as they lie. As many images at a
time as make a wide product within a sensible workspace. Wins over the naive kernel for all but tiny problems; leaves
to other solvers what they do without columns.

Source: the lowering of K. Chellapilla, S. Puri, P. Simard, "High Performance Convolutional Neural Networks for Document
Processing", 2006; MIOpen has it for channel-first only (GemmFwdRest).
"""

from __future__ import annotations

from hipfind.invokers.steps import WORKSPACE, GemmStep, Operand, PlainStep, Step
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import channel_last, rules
from hipfind.solvers.gemm.base import GemmSolver
from hipfind.solvers.gemm.channel_last import Blocks
from hipfind.solvers.gemm.fwd_1x1_0_1 import GemmFwd1x1_0_1
from hipfind.solvers.gemm.fwd_1x1_0_2 import GemmFwd1x1_0_2
from hipfind.solvers.gemm.fwd_rest import GemmFwdRest
from hipfind.solvers.gemm.products import Stack, batched, repeated
from hipfind.solvers.geometry import sizes_of
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target


class GemmFwdChannelLast(GemmSolver):
    """Forward, any filter; 2D and 3D, channel-last, groups."""

    __slots__ = ()

    solver_id = "GemmFwdChannelLast"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        special = (GemmFwd1x1_0_1(), GemmFwd1x1_0_2(), GemmFwdRest())
        return (
            channel_last.applies(target, problem, "fwd")
            and rules.left_over(target, problem, *special)
            and rules.feasible(target, self.GetSolution(target, problem))
        )

    def GetWorkspaceSize(self, target: Target, problem: ConvProblem) -> int:
        return channel_last.blocks_of(target, problem).columns_bytes

    def steps(self, target: Target, problem: ConvProblem) -> tuple[Step, ...]:
        blocks = channel_last.blocks_of(target, problem)
        whole = repeated(blocks.whole, *_block(target, problem, blocks, 0, blocks.images))
        if not blocks.rest:
            return whole
        return (*whole, *_block(target, problem, blocks, blocks.whole * blocks.images, blocks.rest))


def _block(
    target: Target, problem: ConvProblem, blocks: Blocks, first: int, images: int
) -> tuple[PlainStep, PlainStep]:
    sizes, columns = sizes_of(problem), Operand(WORKSPACE)
    y_bytes = sizes.y_image * sizes.itemsize
    gemm = GemmSpec(
        m=images * sizes.output, n=sizes.k_group, k=sizes.row, dtype=problem.dtype, dtype_c=problem.dtype,
        lda=blocks.pitch, ldb=sizes.row, ldc=sizes.k, trans_b=True,
    )  # fmt: skip
    groups = Stack(sizes.groups, a=sizes.row, b=sizes.w_group, c=sizes.k_group)
    y = Operand("y", first * y_bytes, blocks.images * y_bytes)
    return (
        channel_last.columns_of(target, problem, blocks, first, images, columns),
        GemmStep(batched(gemm, groups), columns, Operand("w"), y),
    )
