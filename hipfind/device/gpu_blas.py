"""Matrix products on GPUs: what cuBLASLt, hipBLASLt and hipBLAS have in common.

BLAS libraries see matrices column by column, hipfind row by row. A row-major matrix is its own transpose read by
columns, and ``C = A B`` is ``C^T = B^T A^T``: so the operands change places and nothing is moved.
"""

from __future__ import annotations

import abc
import ctypes
import dataclasses
import functools
import threading
import weakref
from typing import TYPE_CHECKING, Any

from hipfind.device.base import Memory, RunGemm
from hipfind.device.gpu_driver import Driver
from hipfind.errors import DeviceError
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.dtypes import DType

if TYPE_CHECKING:
    from hipfind.device.gpu import GpuDevice

WORKSPACE_BYTES = 32 << 20
"""Scratch memory a product may use, for each stream. What split-K of a long reduction needs; cuBLAS takes as much."""
ALIGNMENT = 256
"""Largest alignment of operands that libraries tell apart, in bytes."""
_KEPT_PRODUCTS = 1024
_PER_THREAD_STREAM = 2
"""The one stream handle, in both runtimes, that stands for another stream in each thread."""


@dataclasses.dataclass(frozen=True)
class Matrix:
    """A stored matrix, column-major: ``ld`` elements from a column to the next, ``stride`` from a batch entry to the
    next."""

    dtype: DType
    rows: int
    cols: int
    ld: int
    stride: int


@dataclasses.dataclass(frozen=True)
class Product:
    """C[m, n] = op(A)[m, k] op(B)[k, n] on column-major matrices; ``a`` and ``b`` as stored."""

    m: int
    n: int
    k: int
    batch: int
    trans_a: bool
    trans_b: bool
    a: Matrix
    b: Matrix
    c: Matrix
    tf32: bool


def column_major(spec: GemmSpec) -> Product:
    """The product that a column-major library must compute for ``spec``: its A is our B, its B our A."""

    def stored(rows: int, cols: int, trans: bool) -> tuple[int, int]:
        return (rows, cols) if trans else (cols, rows)

    a = Matrix(spec.dtype, *stored(spec.k, spec.n, spec.trans_b), spec.ldb, spec.stride_b)
    b = Matrix(spec.dtype, *stored(spec.m, spec.k, spec.trans_a), spec.lda, spec.stride_a)
    c = Matrix(spec.dtype_c, spec.n, spec.m, spec.ldc, spec.stride_c)
    return Product(spec.n, spec.m, spec.k, spec.batch, spec.trans_b, spec.trans_a, a, b, c, spec.tf32)


class Scalars:
    """alpha and beta where a library can read them: in fp64 for fp64 products, else in fp32."""

    def __init__(self, spec: GemmSpec) -> None:
        kind = ctypes.c_double if spec.dtype is DType.FP64 else ctypes.c_float
        self._values = (kind * 2)(spec.alpha, spec.beta)
        self.alpha = ctypes.addressof(self._values)
        self.beta = self.alpha + ctypes.sizeof(kind)


class GpuBlas(abc.ABC):
    """A BLAS library on one device. Safe from several threads."""

    version: str

    def __init__(self, device: GpuDevice, driver: Driver) -> None:
        self.device = device
        self.driver = driver
        self._product = functools.lru_cache(maxsize=_KEPT_PRODUCTS)(self.make_product)

    def prepare(self, spec: GemmSpec) -> RunGemm:
        """A product ready to run. Raises DeviceError for one that the library cannot compute."""
        if not (spec.m and spec.n and spec.batch):
            return _nothing
        if not spec.k:
            return self._of_no_terms(spec)
        legal = {DType.FP32, spec.dtype} if spec.dtype.is_half else {spec.dtype}
        if not spec.dtype.is_float or spec.dtype_c not in legal:
            got = f"{spec.dtype.value} to {spec.dtype_c.value}"
            raise DeviceError(f"{self.device.name} has no product of these types", got=got)
        return self._product(spec)

    @abc.abstractmethod
    def make_product(self, spec: GemmSpec) -> RunGemm:
        """``prepare`` for a product that has something to compute."""

    def _of_no_terms(self, spec: GemmSpec) -> RunGemm:
        """A sum over k = 0 terms is 0, so C becomes beta * C."""
        if spec.beta == 1.0:
            return _nothing
        if spec.beta != 0.0:
            raise DeviceError("a product of k = 0 needs a beta of 0 or 1", got=f"{spec.beta}")
        size, device = spec.dtype_c.itemsize, self.device
        rows = [entry * spec.stride_c + row * spec.ldc for entry in range(spec.batch) for row in range(spec.m)]

        def clear(a: int, b: int, c: int, stream: int) -> None:
            for row in rows:
                device.set_bytes(c + row * size, spec.n * size, 0, stream)

        return clear


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """One way to compute a product. ``handle`` is what the library calls it, valid while ``owner`` lives."""

    handle: int
    workspace_bytes: int
    owner: Any = dataclasses.field(repr=False, compare=False, default=None)


class AlgorithmRefused(DeviceError):
    """The library does not compute this product with the algorithm that it ranked."""


class NoAlgorithmError(DeviceError):
    """The library ranks no algorithm, or not as many as asked for, for a product of operands aligned like these."""


class LtBlas(GpuBlas):
    """A library of the "Lt" kind: descriptors, a list of algorithms for a workspace budget, and one call to multiply.

    The algorithm at the product's ``rank`` in the library's own ranking is taken, for the alignment that the operands
    turn out to have; one that the library ranks and then refuses is passed over.
    """

    def __init__(self, device: GpuDevice, driver: Driver) -> None:
        super().__init__(device, driver)
        self._workspaces: dict[tuple[int, int], Memory] = {}
        self.lock = threading.Lock()

    @abc.abstractmethod
    def describe(self, product: Product) -> tuple[Any, ...]:
        """The library's descriptors of the operation and of A, B and C."""

    @staticmethod
    @abc.abstractmethod
    def release(descriptors: tuple[Any, ...]) -> None:
        """Give descriptors back. Static: a finalizer that knew its library would keep it and all its products alive."""

    @abc.abstractmethod
    def rank(self, descriptors: tuple[Any, ...], budget: int, alignment: int, count: int) -> list[Algorithm]:
        """At most ``count`` algorithms, best first, for operands aligned to ``alignment`` bytes."""

    @abc.abstractmethod
    def multiply(
        self,
        descriptors: tuple[Any, ...],
        scalars: Scalars,
        operands: tuple[int, int, int],
        algorithm: Algorithm,
        workspace: int,
        stream: int,
    ) -> None:
        """Queue the product; ``operands`` are the addresses of the library's A, B and C. The device is current.

        Raises AlgorithmRefused where the library says that it does not support this.
        """

    def make_product(self, spec: GemmSpec) -> RunGemm:
        product = _LtProduct(self, spec)
        product.choose(ALIGNMENT)
        return product

    def workspace(self, stream: int) -> int:
        """Address of the stream's scratch memory. It stays: a captured graph may hold the address."""
        key = (stream, threading.get_ident() if stream == _PER_THREAD_STREAM else 0)
        memory = self._workspaces.get(key)
        if memory is None:
            with self.lock:
                memory = self._workspaces.get(key)
                if memory is None:
                    memory = self._workspaces[key] = self.device.allocate(WORKSPACE_BYTES)
        return memory.address


class _LtProduct:
    """A described product with the algorithm chosen for each alignment seen so far."""

    def __init__(self, blas: LtBlas, spec: GemmSpec) -> None:
        self._blas = blas
        self._spec = spec
        self._scalars = Scalars(spec)
        self._descriptors = blas.describe(column_major(spec))
        self._chosen: dict[int, Algorithm] = {}
        self._refused: dict[int, int] = {}
        weakref.finalize(self, type(blas).release, self._descriptors).atexit = False

    def choose(self, alignment: int) -> Algorithm:
        """The algorithm at the wanted place, of those that were not refused, for operands of this alignment.

        For badly aligned operands the ranking can be short: then its last one.
        """
        passed_over = self._refused.get(alignment, 0)
        place = passed_over + self._spec.rank
        ranked = self._blas.rank(self._descriptors, WORKSPACE_BYTES, alignment, place + 1)
        if len(ranked) <= (place if alignment == ALIGNMENT else passed_over):
            what = f"the BLAS of {self._blas.device.name} has no algorithm of rank {self._spec.rank} for this product"
            raise NoAlgorithmError(what, got=f"{self._spec}, operands aligned to {alignment} bytes")
        self._chosen[alignment] = ranked[-1]
        return ranked[-1]

    def __call__(self, a: int, b: int, c: int, stream: int) -> None:
        blas = self._blas
        blas.device.check_stream(stream)
        alignment = alignment_of(a, b, c)
        while True:
            algorithm = self._chosen.get(alignment) or self.choose(alignment)
            workspace = blas.workspace(stream) if algorithm.workspace_bytes else 0
            try:
                with blas.driver.active():
                    blas.multiply(self._descriptors, self._scalars, (b, a, c), algorithm, workspace, stream)
                return
            except AlgorithmRefused:
                self._pass_over(alignment, algorithm)

    def _pass_over(self, alignment: int, algorithm: Algorithm) -> None:
        with self._blas.lock:
            if self._chosen.get(alignment) is algorithm:  # else another thread has done it
                del self._chosen[alignment]
                self._refused[alignment] = self._refused.get(alignment, 0) + 1


def alignment_of(a: int, b: int, c: int) -> int:
    """The largest power of two, up to ALIGNMENT, that divides all three addresses."""
    bits = a | b | c | ALIGNMENT
    return bits & -bits


def _nothing(a: int, b: int, c: int, stream: int) -> None:
    """The product without an element."""
