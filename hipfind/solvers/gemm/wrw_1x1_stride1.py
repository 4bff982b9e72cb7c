"""GemmWrw1x1_stride1: weight gradient of a 1x1 convolution with stride 1 as matrix products on the tensors as they lie.

Channel-last: dw[K, C] = dy^T[K, N*S] x[N*S, C], one product (a batch over groups). Channel-first: the sum over images
of dy[n] x[n]^T, the first product overwriting dw; 16-bit types are summed in fp32 and rounded once.

Source: MIOpen, src/solver/conv/gemm_wrw.cpp (GemmWrw1x1_stride1), with channel-last as in its newest state.
"""

from __future__ import annotations

from hipfind.invokers.steps import GemmStep, Operand, Step
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import rules
from hipfind.solvers.gemm.base import GemmSolver
from hipfind.solvers.gemm.products import Stack, batched, summed_over_images, weight_sum, weight_sum_bytes
from hipfind.solvers.geometry import lies_channel_last, sizes_of
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target


class GemmWrw1x1_stride1(GemmSolver):
    """Weight gradient, 1x1 filter, stride 1, no padding; 2D and 3D, either layout, groups."""

    __slots__ = ()

    solver_id = "GemmWrw1x1_stride1"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        return (
            rules.common(target, problem, "wrw")
            and rules.pointwise(problem, stride=1)
            and rules.one_layout(problem)
            and rules.feasible(target, self.GetSolution(target, problem))
        )

    def GetWorkspaceSize(self, target: Target, problem: ConvProblem) -> int:
        return 0 if lies_channel_last(problem) else weight_sum_bytes(problem)

    def steps(self, target: Target, problem: ConvProblem) -> tuple[Step, ...]:
        return _all_pixels(problem) if lies_channel_last(problem) else _image_by_image(problem)


def _all_pixels(problem: ConvProblem) -> tuple[Step, ...]:
    sizes = sizes_of(problem)
    gemm = GemmSpec(
        m=sizes.k_group, n=sizes.c_group, k=sizes.n * sizes.output, dtype=problem.dtype, dtype_c=problem.dtype,
        lda=sizes.k, ldb=sizes.c, ldc=sizes.c_group, trans_a=True,
    )  # fmt: skip
    groups = Stack(sizes.groups, a=sizes.k_group, b=sizes.c_group, c=sizes.w_group)
    return (GemmStep(batched(gemm, groups), Operand("y"), Operand("x"), Operand("w")),)


def _image_by_image(problem: ConvProblem) -> tuple[Step, ...]:
    sizes = sizes_of(problem)
    total = weight_sum(problem, offset=0)
    x_bytes, y_bytes = sizes.x_image * sizes.itemsize, sizes.y_image * sizes.itemsize
    groups = Stack(sizes.groups, a=sizes.k_group * sizes.output, b=sizes.c_group * sizes.image, c=sizes.w_group)

    def product(image: int, beta: float) -> tuple[GemmStep]:
        gemm = GemmSpec(
            m=sizes.k_group, n=sizes.c_group, k=sizes.output, dtype=problem.dtype, dtype_c=total.dtype,
            lda=sizes.output, ldb=sizes.image, ldc=sizes.c_group, trans_b=True, beta=beta,
        )  # fmt: skip
        y_image, x_image = Operand("y", image * y_bytes, y_bytes), Operand("x", image * x_bytes, x_bytes)
        return (GemmStep(batched(gemm, groups), y_image, x_image, total.target),)

    return (*summed_over_images(sizes.n, product), *total.finish)
