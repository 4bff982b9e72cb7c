"""GemmFwd1x1_0_1: forward 1x1 convolution with stride 1 as a matrix product on the tensors as they lie.

Channel-last: y[N*S, K] = x[N*S, C] w^T, one product (a batch over groups). Channel-first: y[n] = w x[n], a batch over
images (and groups). No workspace, no copy: nothing is faster where it applies.

Source: MIOpen, src/solver/conv/gemm.cpp (GemmFwd1x1_0_1); the channel-last product is rocm-libraries PR #11517.
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


class GemmFwd1x1_0_1(GemmSolver):
    """Forward, 1x1 filter, stride 1, no padding; 2D and 3D, either layout, groups."""

    __slots__ = ()

    solver_id = "GemmFwd1x1_0_1"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        return (
            rules.common(target, problem, "fwd")
            and rules.pointwise(problem, stride=1)
            and rules.one_layout(problem)
            and rules.feasible(target, self.GetSolution(target, problem))
        )

    def steps(self, target: Target, problem: ConvProblem) -> tuple[Step, ...]:
        return _all_pixels(problem) if lies_channel_last(problem) else _image_by_image(problem)


def _all_pixels(problem: ConvProblem) -> tuple[Step, ...]:
    sizes = sizes_of(problem)
    gemm = GemmSpec(
        m=sizes.n * sizes.output, n=sizes.k_group, k=sizes.c_group, dtype=problem.dtype, dtype_c=problem.dtype,
        lda=sizes.c, ldb=sizes.c_group, ldc=sizes.k, trans_b=True,
    )  # fmt: skip
    groups = Stack(sizes.groups, a=sizes.c_group, b=sizes.w_group, c=sizes.k_group)
    return (GemmStep(batched(gemm, groups), Operand("x"), Operand("w"), Operand("y")),)


def _image_by_image(problem: ConvProblem) -> tuple[Step, ...]:
    sizes = sizes_of(problem)
    gemm = GemmSpec(
        m=sizes.k_group, n=sizes.output, k=sizes.c_group, dtype=problem.dtype, dtype_c=problem.dtype,
        lda=sizes.c_group, ldb=sizes.image, ldc=sizes.output,
    )  # fmt: skip
    images = Stack(sizes.n, a=0, b=sizes.x_image, c=sizes.y_image)
    groups = Stack(sizes.groups, a=sizes.w_group, b=sizes.c_group * sizes.image, c=sizes.k_group * sizes.output)
    return batched_twice(gemm, Operand("w"), Operand("x"), Operand("y"), images, groups)
