"""GemmWrwUniversal: weight gradient with any filter as matrix products, by im2col or, for point output, without it.

Point output (see is_point_output): dw[K, C*taps] = dy^T[K, N] x[N, C*taps], one product that overwrites dw, no
workspace, channel-first and channel-last. Otherwise, channel-first, the sum over images of dy[n] im2col(x[n])^T, a
batch over groups, the first product overwriting; 16-bit types are summed in fp32 and rounded once. Leaves 1x1 with
stride 1 to the solver that needs no im2col.

Source: MIOpen, src/solver/conv/gemm_wrw.cpp (GemmWrwUniversal); point output is rocm-libraries PR #10912, without its
test that the stride equals the filter; sums in fp32 are its PR #5859.
"""

from __future__ import annotations

from hipfind.invokers.steps import WORKSPACE, GemmStep, Operand, PlainStep, Step
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import rules
from hipfind.solvers.gemm.base import GemmSolver
from hipfind.solvers.gemm.products import Stack, batched, summed_over_images, weight_sum, weight_sum_bytes
from hipfind.solvers.gemm.wrw_1x1_stride1 import GemmWrw1x1_stride1
from hipfind.solvers.geometry import is_point_output, sizes_of
from hipfind.solvers.kernel_steps import im2col_step
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target

_ALIGNMENT = 256  # of the fp32 sums behind the columns, as BLAS likes it


class GemmWrwUniversal(GemmSolver):
    """Weight gradient, any filter; 2D and 3D, channel-first with groups, or point output in either layout."""

    __slots__ = ()

    solver_id = "GemmWrwUniversal"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        answer = rules.common(target, problem, "wrw")
        if answer and not is_point_output(problem):
            answer = rules.left_over(target, problem, GemmWrw1x1_stride1()) and rules.channel_first(problem)
        return answer and rules.feasible(target, self.GetSolution(target, problem))

    def GetWorkspaceSize(self, target: Target, problem: ConvProblem) -> int:
        if is_point_output(problem):
            return 0
        sums = weight_sum_bytes(problem)
        return _sums_offset(problem) + sums if sums else _columns_bytes(problem)

    def steps(self, target: Target, problem: ConvProblem) -> tuple[Step, ...]:
        return _point_output(problem) if is_point_output(problem) else _image_by_image(target, problem)


def _columns_bytes(problem: ConvProblem) -> int:
    sizes = sizes_of(problem)
    return sizes.columns * sizes.itemsize


def _sums_offset(problem: ConvProblem) -> int:
    return -(-_columns_bytes(problem) // _ALIGNMENT) * _ALIGNMENT


def _point_output(problem: ConvProblem) -> tuple[Step, ...]:
    sizes = sizes_of(problem)
    gemm = GemmSpec(
        m=sizes.k, n=sizes.row, k=sizes.n, dtype=problem.dtype, dtype_c=problem.dtype,
        lda=sizes.k, ldb=sizes.row, ldc=sizes.row, trans_a=True,
    )  # fmt: skip
    return (GemmStep(gemm, Operand("y"), Operand("x"), Operand("w")),)


def _image_by_image(target: Target, problem: ConvProblem) -> tuple[Step, ...]:
    sizes = sizes_of(problem)
    columns, total = Operand(WORKSPACE), weight_sum(problem, _sums_offset(problem))
    x_bytes, y_bytes = sizes.x_image * sizes.itemsize, sizes.y_image * sizes.itemsize
    groups = Stack(sizes.groups, a=sizes.k_group * sizes.output, b=sizes.row * sizes.output, c=sizes.w_group)

    def image_steps(image: int, beta: float) -> tuple[PlainStep, ...]:
        gemm = GemmSpec(
            m=sizes.k_group, n=sizes.row, k=sizes.output, dtype=problem.dtype, dtype_c=total.dtype,
            lda=sizes.output, ldb=sizes.output, ldc=sizes.row, trans_b=True, beta=beta,
        )  # fmt: skip
        y_image, x_image = Operand("y", image * y_bytes, y_bytes), Operand("x", image * x_bytes, x_bytes)
        return (
            im2col_step(target, problem, x_image, columns),
            GemmStep(batched(gemm, groups), y_image, columns, total.target),
        )

    return (*summed_over_images(sizes.n, image_steps), *total.finish)
