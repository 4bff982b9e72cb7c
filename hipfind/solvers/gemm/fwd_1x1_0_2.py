"""GemmFwd1x1_0_2: forward 1x1 convolution with stride 2, 2D: a copy of the pixels that are used, then one product.

Channel-first: x as X[C, N*O], P[K, N*O] = w X, P back to images; a single image is written in place. Channel-last: x as
X[N*O, C], y[N*O, K] = X w^T. Wins over im2col by one large product instead of one an image.

Source: MIOpen, src/solver/conv/gemm.cpp (GemmFwd1x1_0_2), which does the channel-first part.
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


class GemmFwd1x1_0_2(GemmSolver):
    """Forward, 1x1 filter, stride 2, no padding; 2D, either layout, groups."""

    __slots__ = ()

    solver_id = "GemmFwd1x1_0_2"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        return (
            rules.common(target, problem, "fwd")
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
        m=sizes.n * sizes.output, n=sizes.k_group, k=sizes.c_group, dtype=problem.dtype, dtype_c=problem.dtype,
        lda=sizes.c, ldb=sizes.c_group, ldc=sizes.k, trans_b=True,
    )  # fmt: skip
    groups = Stack(sizes.groups, a=sizes.c_group, b=sizes.w_group, c=sizes.k_group)
    return (
        copy_step(target, problem.dtype, used.lengths, Operand("x"), used.in_x, rows, used.packed),
        GemmStep(batched(gemm, groups), rows, Operand("w"), Operand("y")),
    )


def _by_channels(target: Target, problem: ConvProblem) -> tuple[Step, ...]:
    sizes = sizes_of(problem)
    used, x_channels = pixels.used_as_channels(problem), Operand(WORKSPACE)
    y_channels = Operand("y") if sizes.n == 1 else Operand(WORKSPACE, pixels.used_bytes(problem))
    positions = sizes.n * sizes.output
    gemm = GemmSpec(
        m=sizes.k_group, n=positions, k=sizes.c_group, dtype=problem.dtype, dtype_c=problem.dtype,
        lda=sizes.c_group, ldb=positions, ldc=positions,
    )  # fmt: skip
    groups = Stack(sizes.groups, a=sizes.w_group, b=sizes.c_group * positions, c=sizes.k_group * positions)
    scatter = () if sizes.n == 1 else (pixels.channels_to_y(target, problem, y_channels, Operand("y")),)
    return (
        copy_step(target, problem.dtype, used.lengths, Operand("x"), used.in_x, x_channels, used.packed),
        GemmStep(batched(gemm, groups), Operand("w"), x_channels, y_channels),
        *scatter,
    )
