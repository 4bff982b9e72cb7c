"""Matrix products on the host through numpy's BLAS.

fp32 and fp64 are multiplied where they lie. 16-bit matrices are converted to fp32, in blocks where they are large,
multiplied, and rounded once, by portable kernels where there is a compiler, else by numpy and ml_dtypes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hipfind.device.host_kernel import no_such_stream
from hipfind.errors import DeviceError
from hipfind.kernels.spec import GemmSpec, KernelSpec
from hipfind.problem.dtypes import DType

FloatArray: TypeAlias = npt.NDArray[Any]
Prepare: TypeAlias = Callable[[KernelSpec, tuple[int | float, ...], int], Callable[..., None]]
"""A device's prepare_kernel."""
Convert: TypeAlias = Callable[[int, int], None]
"""Conversion of a block: called with the addresses to read and to write."""

_TEMPORARY_BYTES = 64 << 20
"""Most bytes of fp32 copies: of B's columns, and of A's and C's rows, that are made at a time."""
_MOST_IDLE = 2
CONVERSIONS = "convert_rows.hip"
"""The portable source of the conversions. No solver names it: it belongs to the host's products alone."""
_FEWEST_ROWS = 64
_MOST_VIEWS = 64
_SEGMENT = 4096
"""Elements of a row that one work item converts."""


class Raw:
    """Memory as numpy's array interface describes it."""

    __slots__ = ("__array_interface__",)

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], typestr: str) -> None:
        self.__array_interface__ = {
            "data": (address, False), "shape": shape, "strides": strides, "typestr": typestr, "version": 3,
        }  # fmt: skip


def matrix(
    address: int, batch: int, rows: int, columns: int, step: int, stride: int, is_transposed: bool, dtype: Any
) -> FloatArray:
    """[batch, rows, columns] in memory; transposed when it is stored as [columns, rows]. Steps in elements.

    A step that is never taken is set to what BLAS expects, or numpy would multiply without BLAS.
    """
    kind = np.dtype(dtype)
    lines, length = (columns, rows) if is_transposed else (rows, columns)
    step = max(step if lines > 1 else length, 1) * kind.itemsize
    inner = (kind.itemsize, step) if is_transposed else (step, kind.itemsize)
    raw = Raw(address, (batch, rows, columns), (stride * kind.itemsize, *inner), kind.str)
    return np.asarray(raw)


def prepare_gemm(spec: GemmSpec, prepare: Prepare | None, pool: ScratchPool) -> Callable[[int, int, int, int], None]:
    """The product, ready to run. ``prepare`` compiles the conversions; None where there is no compiler.

    Raises DeviceError for dtypes that it does not multiply.
    """
    wide = spec.dtype in (DType.FP32, DType.FP64) and spec.dtype_c is spec.dtype
    half = spec.dtype.is_half and spec.dtype_c in (spec.dtype, DType.FP32)
    if not wide and not half:
        raise DeviceError(
            "the host multiplies fp64, fp32, fp16 and bf16 (the last two into themselves or fp32)",
            got=f"{spec.dtype.value} into {spec.dtype_c.value}",
        )
    if 0 in (spec.m, spec.n, spec.batch):
        return _nothing
    spec = _one_product(spec)
    return DirectGemm(spec) if wide else ConvertingGemm(spec, Conversions(spec.dtype, prepare), pool)


def _nothing(a: int, b: int, c: int, stream: int = 0) -> None:
    """A product without a result."""


def _one_product(spec: GemmSpec) -> GemmSpec:
    """A batch of products with one B and A's rows in a sequence is one product: one call, and better blocks."""
    is_sequence = (
        spec.batch > 1
        and spec.stride_b == 0
        and not spec.trans_a
        and spec.stride_a == spec.m * spec.lda
        and spec.stride_c == spec.m * spec.ldc
    )
    return dataclasses.replace(spec, m=spec.m * spec.batch, batch=1) if is_sequence else spec


class DirectGemm:
    """fp32 and fp64: one numpy call on the operands themselves."""

    def __init__(self, spec: GemmSpec) -> None:
        self._spec = spec
        self._views: dict[tuple[int, int, int], tuple[FloatArray, FloatArray, FloatArray]] = {}
        self._is_plain = spec.alpha == 1.0 and spec.beta == 0.0

    def __call__(self, a: int, b: int, c: int, stream: int = 0) -> None:
        if stream:
            raise no_such_stream(stream)
        left, right, out = self._views.get((a, b, c)) or self._view(a, b, c)
        if self._is_plain:
            np.matmul(left, right, out=out)
        else:
            self._scaled(left, right, out)

    def _view(self, a: int, b: int, c: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The operands as arrays. They own nothing: kept only to be found again under the same addresses."""
        s, dtype = self._spec, self._spec.dtype.numpy
        views = (
            matrix(a, s.batch, s.m, s.k, s.lda, s.stride_a, s.trans_a, dtype),
            matrix(b, s.batch, s.k, s.n, s.ldb, s.stride_b, s.trans_b, dtype),
            matrix(c, s.batch, s.m, s.n, s.ldc, s.stride_c, False, dtype),
        )
        if s.batch == 1:
            views = (views[0][0], views[1][0], views[2][0])
        if len(self._views) >= _MOST_VIEWS:
            self._views.clear()
        self._views[a, b, c] = views
        return views

    def _scaled(self, left: FloatArray, right: FloatArray, out: FloatArray) -> None:
        alpha, beta = self._spec.alpha, self._spec.beta
        if beta == 0.0:
            np.matmul(left, right, out=out)
            np.multiply(out, alpha, out=out)
            return
        rows = max(_FEWEST_ROWS, _TEMPORARY_BYTES // max(out.itemsize * self._spec.n * self._spec.batch, 1))
        for first in range(0, self._spec.m, rows):
            part = out[..., first : first + rows, :]
            product = np.matmul(left[..., first : first + rows, :], right)
            if alpha != 1.0:
                np.multiply(product, alpha, out=product)
            if beta != 1.0:
                np.multiply(part, beta, out=part)
            np.add(part, product, out=part)


class ScratchPool:
    """fp32 buffers that the products of a device share, so that a call allocates nothing once it has run before."""

    def __init__(self) -> None:
        self._idle: list[FloatArray] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def borrow(self, elements: int) -> Iterator[FloatArray]:
        """A buffer of at least so many elements, for one call."""
        with self._lock:
            fitting = [buffer for buffer in self._idle if buffer.size >= elements]
            taken = min(fitting, key=len) if fitting else None
            if taken is not None:
                self._idle = [buffer for buffer in self._idle if buffer is not taken]
        if taken is None:
            taken = np.empty(elements, np.float32)
        try:
            yield taken
        finally:
            with self._lock:
                self._idle = sorted((*self._idle, taken), key=len)[-_MOST_IDLE:]


class Block:
    """Room for one matrix block in a scratch buffer."""

    __slots__ = ("address", "array")

    def __init__(self, buffer: FloatArray, start: int, elements: int) -> None:
        self.array = buffer[start : start + elements]
        self.address: int = buffer.ctypes.data + start * buffer.itemsize

    def matrix(self, rows: int, columns: int) -> FloatArray:
        """The first elements as a packed matrix."""
        return self.array[: rows * columns].reshape(rows, columns)


class ConvertingGemm:
    """16-bit inputs: blocks of the operands are converted to fp32, multiplied, and rounded into C."""

    def __init__(self, spec: GemmSpec, conversions: Conversions, pool: ScratchPool) -> None:
        self._spec = spec
        self._conversions = conversions
        self._pool = pool
        self._columns = min(spec.n, max(1, _TEMPORARY_BYTES // (4 * max(spec.k, 1))))
        rows = _TEMPORARY_BYTES // (4 * max(spec.k + self._columns, 1))
        self._rows = min(spec.m, max(_FEWEST_ROWS, rows))
        self._sizes = (self._rows * spec.k, spec.k * self._columns, self._rows * self._columns)

    def __call__(self, a: int, b: int, c: int, stream: int = 0) -> None:
        if stream:
            raise no_such_stream(stream)
        size_a, size_b, size_c = self._sizes
        with self._pool.borrow(sum(self._sizes)) as buffer:
            blocks = Block(buffer, 0, size_a), Block(buffer, size_a, size_b), Block(buffer, size_a + size_b, size_c)
            for j in range(0, self._spec.n, self._columns):
                self._multiply_columns(a, b, c, j, blocks)

    def _multiply_columns(self, a: int, b: int, c: int, j: int, blocks: tuple[Block, Block, Block]) -> None:
        """All products of the batch, for one block of B's columns. What the batch shares is converted once."""
        s, size, size_c = self._spec, self._spec.dtype.itemsize, self._spec.dtype_c.itemsize
        columns = min(self._columns, s.n - j)
        keeps_a = s.stride_a == 0 and self._rows == s.m
        for index in range(s.batch):
            if index == 0 or s.stride_b:
                at = b + size * (index * s.stride_b + j * (s.ldb if s.trans_b else 1))
                wide_b = self._widen(blocks[1], at, s.k, columns, s.ldb, s.trans_b)
            for i in range(0, s.m, self._rows):
                rows = min(self._rows, s.m - i)
                if index == 0 or not keeps_a:
                    at = a + size * (index * s.stride_a + i * (1 if s.trans_a else s.lda))
                    wide_a = self._widen(blocks[0], at, rows, s.k, s.lda, s.trans_a)
                self._write(wide_a, wide_b, blocks[2], c + size_c * (index * s.stride_c + i * s.ldc + j))

    def _widen(self, to: Block, address: int, rows: int, columns: int, step: int, is_transposed: bool) -> FloatArray:
        """A block [rows, columns] of an operand in fp32."""
        lines, length = (columns, rows) if is_transposed else (rows, columns)
        self._conversions.widen(lines, length, step)(address, to.address)
        packed = to.matrix(lines, length)
        return packed.T if is_transposed else packed

    def _write(self, a: FloatArray, b: FloatArray, product: Block, c: int) -> None:
        """C's block = alpha * a @ b + beta * C's block, rounded once."""
        s, rows, columns = self._spec, a.shape[0], b.shape[1]
        if s.dtype_c is DType.FP32 and s.beta == 0.0:
            out = matrix(c, 1, rows, columns, s.ldc, 0, False, np.float32)[0]
            np.matmul(a, b, out=out)
            if s.alpha != 1.0:
                np.multiply(out, s.alpha, out=out)
            return
        np.matmul(a, b, out=product.matrix(rows, columns))
        self._conversions.narrow(s.dtype_c, rows, columns, s.ldc, s.alpha, s.beta)(product.address, c)


class Conversions:
    """Conversions of blocks between a 16-bit type and packed fp32."""

    def __init__(self, dtype: DType, prepare: Prepare | None) -> None:
        self._dtype = dtype
        self._prepare = prepare
        self.widen = functools.lru_cache(maxsize=16)(self._make_widen)
        self.narrow = functools.lru_cache(maxsize=16)(self._make_narrow)

    def _make_widen(self, rows: int, columns: int, step: int) -> Convert:
        """Rows of the 16-bit type, ``step`` elements apart, to packed fp32."""
        if self._prepare is None:
            return self._numpy_widen(rows, columns, step)
        return self._kernel("widen_rows", self._dtype, rows, columns, step, 1.0, 0.0)

    def _make_narrow(self, dtype: DType, rows: int, columns: int, step: int, alpha: float, beta: float) -> Convert:
        """``to = alpha * from + beta * to`` from packed fp32 to rows of ``dtype``, ``step`` elements apart."""
        if self._prepare is None:
            return self._numpy_narrow(dtype, rows, columns, step, alpha, beta)
        return self._kernel("narrow_rows", dtype, rows, columns, step, alpha, beta)

    def _kernel(
        self, name: str, dtype: DType, rows: int, columns: int, step: int, alpha: float, beta: float
    ) -> Convert:
        assert self._prepare is not None
        segments = -(-columns // _SEGMENT)
        params = (columns, step, _SEGMENT, segments, alpha, beta)
        run = self._prepare(KernelSpec(CONVERSIONS, name, (("ELEM", dtype.value),)), params, rows * segments)
        return lambda source, to: run((source, to))

    def _numpy_widen(self, rows: int, columns: int, step: int) -> Convert:
        def widen(source: int, to: int) -> None:
            np.copyto(_rows(to, rows, columns, columns, DType.FP32), _rows(source, rows, columns, step, self._dtype))

        return widen

    def _numpy_narrow(self, dtype: DType, rows: int, columns: int, step: int, alpha: float, beta: float) -> Convert:
        def narrow(source: int, to: int) -> None:
            wide, out = _rows(source, rows, columns, columns, DType.FP32), _rows(to, rows, columns, step, dtype)
            if alpha != 1.0:
                np.multiply(wide, alpha, out=wide)
            if beta != 0.0:
                np.add(wide, np.float32(beta) * out.astype(np.float32), out=wide)
            with np.errstate(over="ignore", invalid="ignore"):
                np.copyto(out, wide, casting="unsafe")

        return narrow


def _rows(address: int, rows: int, columns: int, step: int, dtype: DType) -> FloatArray:
    bits = {2: np.uint16, 4: np.uint32}[dtype.itemsize]
    view: FloatArray = matrix(address, 1, rows, columns, step, 0, False, bits)[0].view(dtype.numpy)
    return view
