"""Matrix products of every kind, and the comparison of one with float64: poison in all gaps of the operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hipfind.kernels.spec import GemmSpec
from hipfind.problem.dtypes import DType

FLOATS = (DType.FP64, DType.FP32, DType.FP16, DType.BF16)
LIMITS = {DType.FP64: 1e-14, DType.FP32: 2e-6, DType.FP16: 1e-3, DType.BF16: 8e-3}
Array = Any


def spec_of(m: int, n: int, k: int, dtype: DType = DType.FP64, dtype_c: DType | None = None, **more: Any) -> GemmSpec:
    """A product of packed row-major matrices, changed by ``more``."""
    is_ta, is_tb = more.get("trans_a", False), more.get("trans_b", False)
    packed = {"lda": m if is_ta else k, "ldb": k if is_tb else n, "ldc": n}
    return GemmSpec(m, n, k, dtype, dtype_c or dtype, **{**packed, **more})


@st.composite
def product_specs(draw: st.DrawFn) -> GemmSpec:
    """Products with every combination of transposition, row strides, batches, scaling and dtypes."""
    size = st.sampled_from((1, 1, 2, 3, 5, 16, 33))
    m, n, k, batch = draw(size), draw(size), draw(st.sampled_from((0, 1, 1, 2, 7, 40))), draw(st.integers(1, 3))
    dtype = draw(st.sampled_from(FLOATS))
    dtype_c = draw(st.sampled_from((dtype, DType.FP32))) if dtype.is_half else dtype
    gap = st.integers(0, 3)
    is_ta, is_tb = draw(st.booleans()), draw(st.booleans())
    rows_a, rows_b = (k if is_ta else m), (n if is_tb else k)
    lda, ldb, ldc = (max(x, 1) + draw(gap) for x in (m if is_ta else k, k if is_tb else n, n))
    numbers = st.sampled_from((1.0, 0.0, -0.5, 2.0))
    return GemmSpec(
        m, n, k, dtype, dtype_c, lda, ldb, ldc, is_ta, is_tb, batch,
        stride_a=draw(st.sampled_from((0, 1))) * (rows_a * lda + draw(gap)),
        stride_b=draw(st.sampled_from((0, 1))) * (rows_b * ldb + draw(gap)),
        stride_c=m * ldc + draw(gap), alpha=draw(numbers), beta=draw(numbers),
    )  # fmt: skip


class Operands:
    """A, B and C in poisoned buffers, as views [batch, rows, columns] of what the spec means."""

    def __init__(self, spec: GemmSpec, seed: int) -> None:
        rng = np.random.default_rng(seed)
        s = spec
        self.buffers: list[Array] = []
        shapes = (
            (s.m, s.k, s.lda, s.stride_a, s.trans_a, s.dtype),
            (s.k, s.n, s.ldb, s.stride_b, s.trans_b, s.dtype),
            (s.m, s.n, s.ldc, s.stride_c, False, s.dtype_c),
        )
        self.a, self.b, self.c = (self._view(s.batch, *shape) for shape in shapes)
        for view in (self.a, self.b, *((self.c,) if s.beta else ())):
            view[...] = rng.standard_normal(view.shape).astype(view.dtype)

    def _view(
        self, batch: int, rows: int, columns: int, step: int, stride: int, is_transposed: bool, dtype: DType
    ) -> Array:
        lines = columns if is_transposed else rows
        buffer = np.full((batch - 1) * stride + lines * step + 3, np.nan, dtype.numpy)
        self.buffers.append(buffer)
        size = buffer.itemsize
        inner = (size, step * size) if is_transposed else (step * size, size)
        return np.ndarray((batch, rows, columns), buffer.dtype, buffer, 0, (stride * size, *inner))

    @property
    def addresses(self) -> tuple[int, int, int]:
        a, b, c = (buffer.ctypes.data for buffer in self.buffers)
        return a, b, c


def check_product(spec: GemmSpec, multiply: Callable[[int, int, int, int], None], seed: int = 0) -> None:
    """Run a product on operands in host memory; its result must be right, and the gaps of C as they were."""
    operands = Operands(spec, seed)
    expected = spec.alpha * np.matmul(operands.a.astype(np.float64), operands.b.astype(np.float64))
    if spec.beta:
        expected += spec.beta * operands.c.astype(np.float64)
    size = np.abs(spec.alpha) * np.matmul(*(np.abs(x.astype(np.float64)) for x in (operands.a, operands.b)))
    if spec.beta:
        size += np.abs(spec.beta * operands.c.astype(np.float64))
    multiply(*operands.addresses, 0)
    error = np.abs(operands.c.astype(np.float64) - expected)
    smallest = 2.0**-24 if spec.dtype_c is DType.FP16 else 0.0  # results may be subnormal
    assert (error <= LIMITS[spec.dtype_c] * size + smallest).all(), error.max()
    operands.c[...] = np.nan
    assert np.isnan(operands.buffers[2].astype(np.float64)).all(), "gaps of C were written"
