"""GemmBwd1x1_stride2: data gradient of a 1x1 convolution with stride 2, 2D: one product, then a scatter into zeros.

Channel-first: dy as D[K, N*O], P[C, N*O] = w^T D, P to every second pixel of dx; a single image of dy needs no copy.
Channel-last: P[N*O, C] = dy w, rows of P to every second pixel. dx is cleared first, since the pixels between get no
gradient. Wins over col2im by one large product instead of one an image.

Source: MIOpen, src/solver/conv/gemm_bwd.cpp (GemmBwd1x1_stride2), which does the channel-first part.
"""

from __future__ import annotations

from hipfind.invokers.steps import WORKSPACE, GemmStep, Operand, Step
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import pixels, rules
from hipfind.solvers.gemm.base import GemmSolver
from hipfind.solvers.gemm.products import Stack, batched
from hipfind.solvers.geometry import lies_channel_last, sizes_of
from hipfind.solvers.kernel_steps import copy_step
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target


class GemmBwd1x1_stride2(GemmSolver):
    """Data gradient, 1x1 filter, stride 2, no padding; 2D, either layout, groups."""

    __slots__ = ()

    solver_id = "GemmBwd1x1_stride2"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        return (
            rules.common(target, problem, "bwd")
            and rules.pointwise(problem, stride=2)
            and rules.two_dimensional(problem)
            and rules.one_layout(problem)
            and rules.feasible(target, self.GetSolution(target, problem))
        )

    def GetWorkspaceSize(self, target: Target, problem: ConvProblem) -> int:
        is_direct = lies_channel_last(problem) or problem.n == 1
        return pixels.used_bytes(problem) + (0 if is_direct else problem.y.nbytes)

    def steps(self, target: Target, problem: ConvProblem) -> tuple[Step, ...]:
        return _by_rows(target, problem) if lies_channel_last(problem) else _by_channels(target, problem)


def _by_rows(target: Target, problem: ConvProblem) -> tuple[Step, ...]:
    sizes = sizes_of(problem)
    used, rows = pixels.used_as_rows(problem), Operand(WORKSPACE)
    gemm = GemmSpec(
        m=sizes.n * sizes.output, n=sizes.c_group, k=sizes.k_group, dtype=problem.dtype, dtype_c=problem.dtype,
        lda=sizes.k, ldb=sizes.c_group, ldc=sizes.c,
    )  # fmt: skip
    groups = Stack(sizes.groups, a=sizes.k_group, b=sizes.w_group, c=sizes.c_group)
    return (
        *pixels.clear_unused(problem),
        GemmStep(batched(gemm, groups), Operand("y"), Operand("w"), rows),
        copy_step(target, problem.dtype, used.lengths, rows, used.packed, Operand("x"), used.in_x),
    )


def _by_channels(target: Target, problem: ConvProblem) -> tuple[Step, ...]:
    sizes = sizes_of(problem)
    used, x_channels = pixels.used_as_channels(problem), Operand(WORKSPACE)
    y_channels = Operand("y") if sizes.n == 1 else Operand(WORKSPACE, pixels.used_bytes(problem))
    positions = sizes.n * sizes.output
    gemm = GemmSpec(
        m=sizes.c_group, n=positions, k=sizes.k_group, dtype=problem.dtype, dtype_c=problem.dtype,
        lda=sizes.c_group, ldb=positions, ldc=positions, trans_a=True,
    )  # fmt: skip
    groups = Stack(sizes.groups, a=sizes.w_group, b=sizes.k_group * positions, c=sizes.c_group * positions)
    gather = () if sizes.n == 1 else (pixels.y_to_channels(target, problem, Operand("y"), y_channels),)
    return (
        *pixels.clear_unused(problem),
        *gather,
        GemmStep(batched(gemm, groups), Operand("w"), y_channels, x_channels),
        copy_step(target, problem.dtype, used.lengths, x_channels, used.packed, Operand("x"), used.in_x),
    )
