"""GemmBwd1x1_stride1: data gradient of a 1x1 convolution with stride 1 as a matrix product on the tensors as they lie.

Channel-last: dx[N*S, C] = dy[N*S, K] w, one product (a batch over groups). Channel-first: dx[n] = w^T dy[n], a batch
over images (and groups). No workspace, no copy: nothing is faster where it applies.

Source: MIOpen, src/solver/conv/gemm_bwd.cpp (GemmBwd1x1_stride1), with channel-last as in its newest state.
"""

from __future__ import annotations

from hipfind.invokers.steps import GemmStep, Operand, Step
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import rules
from hipfind.solvers.gemm.base import GemmSolver
from hipfind.solvers.gemm.products import Stack, batched, batched_twice
from hipfind.solvers.geometry import lies_channel_last, sizes_of
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target


class GemmBwd1x1_stride1(GemmSolver):
    """Data gradient, 1x1 filter, stride 1, no padding; 2D and 3D, either layout, groups."""

    __slots__ = ()

    solver_id = "GemmBwd1x1_stride1"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        return (
            rules.common(target, problem, "bwd")
            and rules.pointwise(problem, stride=1)
            and rules.one_layout(problem)
            and rules.feasible(target, self.GetSolution(target, problem))
        )

    def steps(self, target: Target, problem: ConvProblem) -> tuple[Step, ...]:
        return _all_pixels(problem) if lies_channel_last(problem) else _image_by_image(problem)


def _all_pixels(problem: ConvProblem) -> tuple[Step, ...]:
    sizes = sizes_of(problem)
    gemm = GemmSpec(
        m=sizes.n * sizes.output, n=sizes.c_group, k=sizes.k_group, dtype=problem.dtype, dtype_c=problem.dtype,
        lda=sizes.k, ldb=sizes.c_group, ldc=sizes.c,
    )  # fmt: skip
    groups = Stack(sizes.groups, a=sizes.k_group, b=sizes.w_group, c=sizes.c_group)
    return (GemmStep(batched(gemm, groups), Operand("y"), Operand("w"), Operand("x")),)


def _image_by_image(problem: ConvProblem) -> tuple[Step, ...]:
    sizes = sizes_of(problem)
    gemm = GemmSpec(
        m=sizes.c_group, n=sizes.output, k=sizes.k_group, dtype=problem.dtype, dtype_c=problem.dtype,
        lda=sizes.c_group, ldb=sizes.output, ldc=sizes.image, trans_a=True,
    )  # fmt: skip
    images = Stack(sizes.n, a=0, b=sizes.y_image, c=sizes.x_image)
    groups = Stack(sizes.groups, a=sizes.w_group, b=sizes.k_group * sizes.output, c=sizes.c_group * sizes.image)
    return batched_twice(gemm, Operand("w"), Operand("y"), Operand("x"), images, groups)
