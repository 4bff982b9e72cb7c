"""GemmWrwPointPadded: weight gradient of point output as one matrix product on aligned rows, copied back to dw.

dw'[K, R] = dy^T[K, N] x'[N, R] with R = C*taps rounded up to 16 bytes, then the first C*taps values of each row go to
dw. Wins on GPUs for 16-bit types where C*taps*itemsize is not a multiple of 16; see padded_rows.

Source: measured on vendor BLAS; the product is GemmWrwUniversal's.
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


class GemmWrwPointPadded(GemmSolver):
    """Weight gradient, point output with rows that are not multiples of 16 bytes; 2D and 3D, either layout; GPUs."""

    __slots__ = ()

    solver_id = "GemmWrwPointPadded"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        return applies(target, problem, "wrw") and rules.feasible(target, self.GetSolution(target, problem))

    def GetWorkspaceSize(self, target: Target, problem: ConvProblem) -> int:
        rows = rows_of(problem)
        return rows.x_bytes + rows.w_bytes

    def steps(self, target: Target, problem: ConvProblem) -> tuple[Step, ...]:
        rows = rows_of(problem)
        x, dw = Operand(WORKSPACE), Operand(WORKSPACE, rows.x_bytes)
        gemm = GemmSpec(
            m=problem.k, n=rows.aligned, k=problem.n, dtype=problem.dtype, dtype_c=problem.dtype,
            lda=problem.k, ldb=rows.aligned, ldc=rows.aligned, trans_a=True,
        )  # fmt: skip
        return (
            row_copy(problem, problem.n, Operand("x"), rows.packed, x, rows.aligned),
            GemmStep(gemm, Operand("y"), x, dw),
            row_copy(problem, problem.k, dw, rows.aligned, Operand("w"), rows.packed),
        )
