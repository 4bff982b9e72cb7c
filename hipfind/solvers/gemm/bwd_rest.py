"""GemmBwdRest: data gradient with any filter as matrix products, by col2im or, for point output, without it.

Point output (see is_point_output): dx[N, C*taps] = dy[N, K] w, one product, no workspace, channel-first and
channel-last. One output position but a larger image, channel-first: the same product into the workspace, then one
col2im over all images. Otherwise, channel-first, image by image: P[C*taps, O] = w^T dy[n], a batch over groups, then
dx[n] = col2im(P). col2im is a gather, so dx is never cleared; P is fp32 for 16-bit types, so dx is rounded once. Leaves
to the 1x1 solvers what they do without it.

Source: MIOpen, src/solver/conv/gemm_bwd.cpp (GemmBwdRest), which rounds P to the type of dx; point output is
rocm-libraries PR #10912, without its test that the stride equals the filter, and with its scatter for 2D too.
"""

from __future__ import annotations

from hipfind.invokers.steps import WORKSPACE, GemmStep, Operand, Step
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.conv import ConvProblem
from hipfind.problem.dtypes import DType
from hipfind.solvers.gemm import rules
from hipfind.solvers.gemm.base import GemmSolver
from hipfind.solvers.gemm.bwd_1x1_stride1 import GemmBwd1x1_stride1
from hipfind.solvers.gemm.bwd_1x1_stride2 import GemmBwd1x1_stride2
from hipfind.solvers.gemm.products import Stack, batched, repeated
from hipfind.solvers.geometry import is_point_output, sizes_of
from hipfind.solvers.kernel_steps import col2im_step, column_dtype
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target


class GemmBwdRest(GemmSolver):
    """Data gradient, any filter; 2D and 3D, channel-first with groups, or point output in either layout."""

    __slots__ = ()

    solver_id = "GemmBwdRest"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        answer = rules.common(target, problem, "bwd")
        if answer and not is_point_output(problem):
            special = (GemmBwd1x1_stride1(), GemmBwd1x1_stride2())
            answer = rules.left_over(target, problem, *special) and rules.channel_first(problem)
        return answer and rules.feasible(target, self.GetSolution(target, problem))

    def GetWorkspaceSize(self, target: Target, problem: ConvProblem) -> int:
        if is_point_output(problem):
            return 0
        sizes = sizes_of(problem)
        images = sizes.n if _has_one_position(problem) else 1
        return images * sizes.columns * column_dtype(problem.dtype).itemsize

    def steps(self, target: Target, problem: ConvProblem) -> tuple[Step, ...]:
        if is_point_output(problem):
            return (_all_images(problem, Operand("x"), problem.dtype),)
        if _has_one_position(problem):
            columns = Operand(WORKSPACE)
            scatter = col2im_step(target, problem, columns, Operand("x"), images=problem.n)
            return (_all_images(problem, columns, column_dtype(problem.dtype)), scatter)
        return _image_by_image(target, problem)


def _has_one_position(problem: ConvProblem) -> bool:
    return problem.groups == 1 and sizes_of(problem).output == 1


def _all_images(problem: ConvProblem, to: Operand, dtype: DType) -> GemmStep:
    sizes = sizes_of(problem)
    gemm = GemmSpec(
        m=sizes.n, n=sizes.row, k=sizes.k, dtype=problem.dtype, dtype_c=dtype,
        lda=sizes.k, ldb=sizes.row, ldc=sizes.row,
    )  # fmt: skip
    return GemmStep(gemm, Operand("y"), Operand("w"), to)


def _image_by_image(target: Target, problem: ConvProblem) -> tuple[Step, ...]:
    sizes = sizes_of(problem)
    x_image = Operand("x", advance=sizes.x_image * sizes.itemsize)
    y_image = Operand("y", advance=sizes.y_image * sizes.itemsize)
    columns = Operand(WORKSPACE)
    gemm = GemmSpec(
        m=sizes.row, n=sizes.output, k=sizes.k_group, dtype=problem.dtype, dtype_c=column_dtype(problem.dtype),
        lda=sizes.row, ldb=sizes.output, ldc=sizes.output, trans_a=True,
    )  # fmt: skip
    groups = Stack(sizes.groups, a=sizes.w_group, b=sizes.k_group * sizes.output, c=sizes.row * sizes.output)
    return repeated(
        sizes.n,
        GemmStep(batched(gemm, groups), Operand("w"), y_image, columns),
        col2im_step(target, problem, columns, x_image),
    )
