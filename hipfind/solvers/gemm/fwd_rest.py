"""GemmFwdRest: forward convolution with any filter as matrix products, by im2col or, for point output, without it.

Point output (see is_point_output): y[N, K] = x[N, C*taps] w^T, one product, no workspace, channel-first and
channel-last. Otherwise, channel-first, image by image: P[C*taps, O] = im2col(x[n]), y[n] = w P, a batch over groups.
Wins over the naive kernel for all but tiny problems; leaves to the 1x1 solvers what they do without im2col.

Source: MIOpen, src/solver/conv/gemm.cpp (GemmFwdRest); point output is rocm-libraries PR #10912, without its test that
the stride equals the filter.
"""

from __future__ import annotations

from hipfind.invokers.steps import WORKSPACE, GemmStep, Operand, Step
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import rules
from hipfind.solvers.gemm.base import GemmSolver
from hipfind.solvers.gemm.fwd_1x1_0_1 import GemmFwd1x1_0_1
from hipfind.solvers.gemm.fwd_1x1_0_2 import GemmFwd1x1_0_2
from hipfind.solvers.gemm.products import Stack, batched, repeated
from hipfind.solvers.geometry import is_point_output, sizes_of
from hipfind.solvers.kernel_steps import im2col_step
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target


class GemmFwdRest(GemmSolver):
    """Forward, any filter; 2D and 3D, channel-first with groups, or point output in either layout."""

    __slots__ = ()

    solver_id = "GemmFwdRest"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        answer = rules.common(target, problem, "fwd")
        if answer and not is_point_output(problem):
            special = (GemmFwd1x1_0_1(), GemmFwd1x1_0_2())
            answer = rules.left_over(target, problem, *special) and rules.channel_first(problem)
        return answer and rules.feasible(target, self.GetSolution(target, problem))

    def GetWorkspaceSize(self, target: Target, problem: ConvProblem) -> int:
        sizes = sizes_of(problem)
        return 0 if is_point_output(problem) else sizes.columns * sizes.itemsize

    def steps(self, target: Target, problem: ConvProblem) -> tuple[Step, ...]:
        return _point_output(problem) if is_point_output(problem) else _image_by_image(target, problem)


def _point_output(problem: ConvProblem) -> tuple[Step, ...]:
    sizes = sizes_of(problem)
    gemm = GemmSpec(
        m=sizes.n, n=sizes.k, k=sizes.row, dtype=problem.dtype, dtype_c=problem.dtype,
        lda=sizes.row, ldb=sizes.row, ldc=sizes.k, trans_b=True,
    )  # fmt: skip
    return (GemmStep(gemm, Operand("x"), Operand("w"), Operand("y")),)


def _image_by_image(target: Target, problem: ConvProblem) -> tuple[Step, ...]:
    sizes = sizes_of(problem)
    x_image = Operand("x", advance=sizes.x_image * sizes.itemsize)
    y_image = Operand("y", advance=sizes.y_image * sizes.itemsize)
    columns = Operand(WORKSPACE)
    gemm = GemmSpec(
        m=sizes.k_group, n=sizes.output, k=sizes.row, dtype=problem.dtype, dtype_c=problem.dtype,
        lda=sizes.row, ldb=sizes.output, ldc=sizes.output,
    )  # fmt: skip
    groups = Stack(sizes.groups, a=sizes.w_group, b=sizes.row * sizes.output, c=sizes.k_group * sizes.output)
    return repeated(
        sizes.n,
        im2col_step(target, problem, x_image, columns),
        GemmStep(batched(gemm, groups), Operand("w"), columns, y_image),
    )
