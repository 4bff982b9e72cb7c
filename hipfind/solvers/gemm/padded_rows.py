"""Point output with rows copied to a length that vendor BLAS runs at full speed.

Matrix-core kernels of vendor BLAS load 16 bytes at a time. A row length that is not a multiple of 16 bytes (588 bf16
values of a 3x14x14 patch) sends them to kernels three times slower, and a longer row stride alone does not help: the
reduction length must be aligned too. So rows are copied to aligned ones, zero behind the data, which adds nothing to
a product.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from hipfind.invokers.steps import KernelStep, Operand
from hipfind.kernels.spec import KernelSpec
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import rules
from hipfind.solvers.geometry import is_point_output, sizes_of
from hipfind.solvers.kernel_steps import BITS, VECTOR_BYTES
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.target import Target

_ALIGNMENT = 16
_WORKSPACE_ALIGNMENT = 256


class Rows(NamedTuple):
    """Lengths of a packed and of an aligned row, in elements, and the aligned matrices' places in the workspace."""

    packed: int
    aligned: int
    x_bytes: int
    w_bytes: int


def rows_of(problem: ConvProblem) -> Rows:
    """The rows of x and w (C * taps elements) and their aligned copies; w's lies behind x's in the workspace."""
    sizes = sizes_of(problem)
    per_unit = _ALIGNMENT // sizes.itemsize
    aligned = -(-sizes.row // per_unit) * per_unit
    return Rows(sizes.row, aligned, _padded(sizes.n * aligned * sizes.itemsize), sizes.k * aligned * sizes.itemsize)


def applies(target: Target, problem: ConvProblem, direction: str) -> Applicability:
    """Point output on a GPU whose rows are not aligned. A CPU's BLAS packs its operands itself."""
    answer = rules.common(target, problem, direction)
    if not answer:
        return answer
    if not is_point_output(problem):
        return no(Reason.FILTER, "not point output")
    if target.is_host:
        return no(Reason.SPECIALIZED, "the host's BLAS needs no aligned rows")
    rows = rows_of(problem)
    if rows.aligned == rows.packed:
        return no(Reason.SPECIALIZED, "rows are aligned already")
    return APPLICABLE


def row_copy(problem: ConvProblem, count: int, source: Operand, length: int, to: Operand, to_length: int) -> KernelStep:
    """Copy of ``count`` rows of ``length`` elements to rows of ``to_length``, the rest of a longer row 0."""
    size = problem.dtype.itemsize
    unit = math.gcd(length, to_length, VECTOR_BYTES // size)
    return KernelStep(
        KernelSpec("copy_rows.hip", "copy_rows", (("ELEM", BITS[size]), ("UNIT", str(unit)))),
        (source, to),
        (length // unit, to_length // unit),
        items=count * to_length // unit,
        flops=0,
        bytes=count * (min(length, to_length) + to_length) * size,
    )


def _padded(nbytes: int) -> int:
    return -(-nbytes // _WORKSPACE_ALIGNMENT) * _WORKSPACE_ALIGNMENT
