"""GemmWrwChannelLast: weight gradient of channel-last tensors with any filter, one product for many images.

The sum over blocks of B images of dy^T [K, B*O] im2col(x) [B*O, C*taps], a batch over groups: dy and dw as they lie. As
many images at a time as make a long sum within a sensible workspace. 16-bit types are summed in fp32 and rounded once.
Wins over the naive kernel for all but tiny problems; leaves to other solvers what they do without columns.

Source: as GemmFwdChannelLast; MIOpen has it for channel-first only (GemmWrwUniversal).
"""

from __future__ import annotations

from hipfind.invokers.steps import WORKSPACE, GemmStep, Operand, PlainStep, Step
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import channel_last, rules
from hipfind.solvers.gemm.base import GemmSolver
from hipfind.solvers.gemm.channel_last import Blocks
from hipfind.solvers.gemm.products import Stack, WeightSum, batched, summed_over_images, weight_sum, weight_sum_bytes
from hipfind.solvers.gemm.wrw_1x1_stride1 import GemmWrw1x1_stride1
from hipfind.solvers.gemm.wrw_universal import GemmWrwUniversal
from hipfind.solvers.geometry import sizes_of
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target

_ALIGNMENT = 256  # of the fp32 sums behind the columns, as BLAS likes it


class GemmWrwChannelLast(GemmSolver):
    """Weight gradient, any filter; 2D and 3D, channel-last, groups."""

    __slots__ = ()

    solver_id = "GemmWrwChannelLast"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        return (
            channel_last.applies(target, problem, "wrw")
            and rules.left_over(target, problem, GemmWrw1x1_stride1(), GemmWrwUniversal())
            and rules.feasible(target, self.GetSolution(target, problem))
        )

    def GetWorkspaceSize(self, target: Target, problem: ConvProblem) -> int:
        blocks = channel_last.blocks_of(target, problem)
        sums = weight_sum_bytes(problem) if blocks.images < problem.n else 0
        return _sums_offset(blocks) + sums if sums else blocks.columns_bytes

    def steps(self, target: Target, problem: ConvProblem) -> tuple[Step, ...]:
        blocks = channel_last.blocks_of(target, problem)
        if blocks.images == problem.n:
            total = WeightSum(Operand("w"), problem.dtype, ())
        else:
            total = weight_sum(problem, _sums_offset(blocks))

        def block(index: int, beta: float) -> tuple[PlainStep, ...]:
            return _block(target, problem, blocks, index * blocks.images, blocks.images, total, beta)

        whole = summed_over_images(blocks.whole, block)
        done = blocks.whole * blocks.images
        rest = _block(target, problem, blocks, done, blocks.rest, total, 1.0) if blocks.rest else ()
        return (*whole, *rest, *total.finish)


def _sums_offset(blocks: Blocks) -> int:
    return -(-blocks.columns_bytes // _ALIGNMENT) * _ALIGNMENT


def _block(
    target: Target, problem: ConvProblem, blocks: Blocks, first: int, images: int, total: WeightSum, beta: float
) -> tuple[PlainStep, ...]:
    sizes, columns = sizes_of(problem), Operand(WORKSPACE)
    y_bytes = sizes.y_image * sizes.itemsize
    gemm = GemmSpec(
        m=sizes.k_group, n=sizes.row, k=images * sizes.output, dtype=problem.dtype, dtype_c=total.dtype,
        lda=sizes.k, ldb=blocks.pitch, ldc=sizes.row, trans_a=True, beta=beta,
    )  # fmt: skip
    groups = Stack(sizes.groups, a=sizes.k_group, b=sizes.row, c=sizes.w_group)
    y = Operand("y", first * y_bytes, blocks.images * y_bytes)
    return (
        channel_last.columns_of(target, problem, blocks, first, images, columns),
        GemmStep(batched(gemm, groups), y, columns, total.target),
    )
