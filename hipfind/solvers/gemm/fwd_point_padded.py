"""GemmFwdPointPadded: forward point output as one matrix product on copies of x and w with aligned rows.

y[N, K] = x'[N, R] w'^T with R = C*taps rounded up to 16 bytes, zero behind the data. Wins on GPUs for 16-bit types
where C*taps*itemsize is not a multiple of 16, since a copy of x costs less than an unaligned product; see padded_rows.

Source: measured on vendor BLAS; the product is GemmFwdRest's.
"""

from __future__ import annotations

from hipfind.invokers.steps import WORKSPACE, GemmStep, Operand, Step
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import rules
from hipfind.solvers.gemm.base import GemmSolver
from hipfind.solvers.gemm.padded_rows import applies, row_copy, rows_of
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target


class GemmFwdPointPadded(GemmSolver):
    """Forward, point output with rows that are not multiples of 16 bytes; 2D and 3D, either layout; GPUs."""

    __slots__ = ()

    solver_id = "GemmFwdPointPadded"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        return applies(target, problem, "fwd") and rules.feasible(target, self.GetSolution(target, problem))

    def GetWorkspaceSize(self, target: Target, problem: ConvProblem) -> int:
        rows = rows_of(problem)
        return rows.x_bytes + rows.w_bytes

    def steps(self, target: Target, problem: ConvProblem) -> tuple[Step, ...]:
        rows = rows_of(problem)
        x, w = Operand(WORKSPACE), Operand(WORKSPACE, rows.x_bytes)
        gemm = GemmSpec(
            m=problem.n, n=problem.k, k=rows.aligned, dtype=problem.dtype, dtype_c=problem.dtype,
            lda=rows.aligned, ldb=rows.aligned, ldc=problem.k, trans_b=True,
        )  # fmt: skip
        return (
            row_copy(problem, problem.n, Operand("x"), rows.packed, x, rows.aligned),
            row_copy(problem, problem.k, Operand("w"), rows.packed, w, rows.aligned),
            GemmStep(gemm, x, w, Operand("y")),
        )
