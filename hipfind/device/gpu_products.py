"""Products on GPUs by whoever takes them: a vendor's libraries, best first, and a portable kernel where none does."""

from __future__ import annotations

import abc
import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hipfind.device.base import RunGemm
from hipfind.device.gpu_blas import GpuBlas, LtBlas, NoAlgorithmError, Product, Scalars, alignment_of, column_major
from hipfind.device.gpu_driver import Driver
from hipfind.errors import CompileError, DeviceError
from hipfind.kernels.spec import GemmSpec, KernelSpec
from hipfind.problem.dtypes import DType

if TYPE_CHECKING:
    from hipfind.device.gpu import GpuDevice

PRODUCTS = "gemm.hip"
"""The portable source of products. No solver names it: it belongs to the devices' own products."""


class PlainBlas(GpuBlas):
    """A library of the older kind: one call a product, any alignment, a handle that remembers a stream."""

    def __init__(self, device: GpuDevice, driver: Driver) -> None:
        super().__init__(device, driver)
        self._lock = threading.Lock()

    @abc.abstractmethod
    def multiply(self, product: Product, scalars: Scalars, operands: tuple[int, int, int], stream: int) -> None:
        """Queue the product; ``operands`` are the addresses of the library's A, B and C. The device is current, and no
        other thread is here.

        Raises NoAlgorithmError where the library says that it does not support this, and DeviceError else.
        """

    def make_product(self, spec: GemmSpec) -> RunGemm:
        if spec.rank:
            raise NoAlgorithmError(f"the BLAS of {self.device.name} ranks no algorithms", got=f"rank {spec.rank}")
        product, scalars = column_major(spec), Scalars(spec)

        def run(a: int, b: int, c: int, stream: int) -> None:
            self.device.check_stream(stream)
            with self.driver.active(), self._lock:
                self.multiply(product, scalars, (b, a, c), stream)

        return run


class PreferredBlas(GpuBlas):
    """A vendor's libraries, best first, each for what those before it cannot do: operands of an odd alignment, say.

    Behind them comes the portable kernel: slow, but it takes everything of rank 0.
    """

    def __init__(self, libraries: Sequence[GpuBlas]) -> None:
        super().__init__(libraries[0].device, libraries[0].driver)
        self.libraries = tuple(libraries)
        self.version = ", ".join(library.version for library in libraries)

    def make_product(self, spec: GemmSpec) -> RunGemm:
        failure: DeviceError | None = None
        for place, library in enumerate(self.libraries):
            try:
                product = library.make_product(spec)
            except DeviceError as error:
                failure = error
            else:
                return _FirstThatTakesIt(product, self._others(place + 1, dataclasses.replace(spec, rank=0)))
        if spec.rank == 0 and self.device.target.kernels and isinstance(failure, NoAlgorithmError):
            return portable_product(self.device, spec)
        assert failure is not None
        raise failure

    def _others(self, place: int, spec: GemmSpec) -> list[Callable[[], RunGemm]]:
        """Ways to compute a product from this library on; they are made when they are needed."""
        makers: list[Callable[[], RunGemm]]
        makers = [functools.partial(library.make_product, spec) for library in self.libraries[place:]]
        if self.device.target.kernels:
            makers.append(functools.partial(portable_product, self.device, spec))
        return makers


class _FirstThatTakesIt:
    """A product in several ways, best first; what one does not take at some alignment goes to the next from then on."""

    __slots__ = ("_makers", "_passed_over", "_products")

    def __init__(self, product: RunGemm, others: Sequence[Callable[[], RunGemm]]) -> None:
        self._products = {0: product}
        self._makers = others
        self._passed_over: dict[int, int] = {}

    def __call__(self, a: int, b: int, c: int, stream: int) -> None:
        place = self._passed_over.get(alignment_of(a, b, c), 0) if self._passed_over else 0
        while True:
            try:
                self._product(place)(a, b, c, stream)
                return
            except NoAlgorithmError:
                place += 1
                if place > len(self._makers):
                    raise
                self._passed_over[alignment_of(a, b, c)] = place

    def _product(self, place: int) -> RunGemm:
        product = self._products.get(place)
        if product is None:
            product = self._products[place] = self._makers[place - 1]()
        return product


def portable_product(device: GpuDevice, spec: GemmSpec) -> RunGemm:
    """The product by the portable kernel; its calls allocate nothing. Raises DeviceError where it does not compile."""
    try:
        launch = device.prepare_kernel(*product_launch(spec))
    except CompileError as error:
        what = f"no BLAS library of {device.name} takes this product, and the kernel for it does not compile"
        raise DeviceError(what, got=f"{spec}: {error}") from error
    return lambda a, b, c, stream: launch((a, b, c), stream)


def product_kernel(dtype: DType, dtype_c: DType) -> KernelSpec:
    """The portable kernel for operands and a result of these types."""
    return KernelSpec(PRODUCTS, "gemm", (("ELEM", dtype.value), ("ELEM_C", dtype_c.value)))


def product_launch(spec: GemmSpec) -> tuple[KernelSpec, tuple[int | float, ...], int]:
    """Kernel, parameters and items of a product that has something to compute: one item an element of C."""
    a_steps = (1, spec.lda) if spec.trans_a else (spec.lda, 1)
    b_steps = (1, spec.ldb) if spec.trans_b else (spec.ldb, 1)
    params = (
        spec.m, spec.n, spec.k, spec.stride_a, *a_steps, spec.stride_b, *b_steps, spec.stride_c, spec.ldc,
        float(spec.alpha), float(spec.beta),
    )  # fmt: skip
    return product_kernel(spec.dtype, spec.dtype_c), params, spec.batch * spec.m * spec.n


def make_blas(
    device: GpuDevice, lt: Callable[[GpuDevice, Driver], LtBlas], plain: Callable[[GpuDevice, Driver], PlainBlas]
) -> GpuBlas:
    """Both libraries of a vendor, or whichever is there. Raises DeviceError with both reasons when neither is."""
    reasons: list[str] = []
    found: list[GpuBlas] = []
    for library in (lt, plain):
        try:
            found.append(library(device, device.driver))
        except DeviceError as error:
            reasons.append(str(error))
    if not found:
        raise DeviceError(f"{device.name} has no BLAS library that can be used", got="; ".join(reasons))
    return PreferredBlas(found)
