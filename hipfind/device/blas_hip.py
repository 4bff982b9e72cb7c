"""Matrix products on AMD GPUs: hipBLASLt, and hipBLAS for what it cannot do (and for GPUs that it does not know)."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, NoReturn

from rocm.bindings import hip, hipblas, hipblaslt

from hipfind.device import gpu_products
from hipfind.device.gpu import GpuDevice
from hipfind.device.gpu_blas import Algorithm, AlgorithmRefused, GpuBlas, LtBlas, NoAlgorithmError, Product, Scalars
from hipfind.device.gpu_driver import Driver, text_of
from hipfind.device.gpu_products import PlainBlas
from hipfind.errors import DeviceError
from hipfind.problem.dtypes import DType

_TYPES = {
    DType.FP64: hip.hipDataType.HIP_R_64F,
    DType.FP32: hip.hipDataType.HIP_R_32F,
    DType.FP16: hip.hipDataType.HIP_R_16F,
    DType.BF16: hip.hipDataType.HIP_R_16BF,
}
_TRANS = (hipblas.hipblasOperation_t.HIPBLAS_OP_N, hipblas.hipblasOperation_t.HIPBLAS_OP_T)
_NOT_SUPPORTED = hipblas.hipblasStatus_t.HIPBLAS_STATUS_NOT_SUPPORTED
_INT32_MAX = 2**31 - 1


def make_blas(device: GpuDevice) -> GpuBlas:
    """hipBLASLt and hipBLAS, or whichever is there. Raises DeviceError with both reasons when neither is."""
    return gpu_products.make_blas(device, HipblasLt, Hipblas)


class HipblasLt(LtBlas):
    """hipBLASLt."""

    def __init__(self, device: GpuDevice, driver: Driver) -> None:
        super().__init__(device, driver)
        self._handle = _call(hipblaslt, "hipblasLtCreate")
        self.version = f"hipBLASLt {_call(hipblaslt, 'hipblasLtGetVersion', self._handle)}"

    def describe(self, product: Product) -> tuple[Any, ...]:
        attributes = hipblaslt.hipblasLtMatmulDescAttributes_t
        scale = _TYPES[DType.FP64 if product.a.dtype is DType.FP64 else DType.FP32]
        compute = _compute_type(product.a.dtype, tf32=product.tf32)
        operation = _call(hipblaslt, "hipblasLtMatmulDescCreate", compute, scale)
        made = [operation]
        try:
            for attribute, trans in (
                (attributes.HIPBLASLT_MATMUL_DESC_TRANSA, product.trans_a),
                (attributes.HIPBLASLT_MATMUL_DESC_TRANSB, product.trans_b),
            ):
                _set("hipblasLtMatmulDescSetAttribute", operation, attribute, ctypes.c_int32(_TRANS[trans]))
            for matrix in (product.a, product.b, product.c):
                shape = (_TYPES[matrix.dtype], matrix.rows, matrix.cols, matrix.ld)
                made.append(_call(hipblaslt, "hipblasLtMatrixLayoutCreate", *shape))
                self._set_batch(made[-1], product.batch, matrix.stride)
        except DeviceError:
            self.release(tuple(made))
            raise
        return tuple(made)

    def _set_batch(self, layout: Any, batch: int, stride: int) -> None:
        if batch > 1:
            attributes = hipblaslt.hipblasLtMatrixLayoutAttribute_t
            for attribute, value in (
                (attributes.HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT, ctypes.c_int32(batch)),
                (attributes.HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, ctypes.c_int64(stride)),
            ):
                _set("hipblasLtMatrixLayoutSetAttribute", layout, attribute, value)

    @staticmethod
    def release(descriptors: tuple[Any, ...]) -> None:
        operation, *layouts = descriptors
        with contextlib.suppress(DeviceError):  # nobody can do anything about it
            _call(hipblaslt, "hipblasLtMatmulDescDestroy", operation)
        for layout in layouts:
            with contextlib.suppress(DeviceError):
                _call(hipblaslt, "hipblasLtMatrixLayoutDestroy", layout)

    def rank(self, descriptors: tuple[Any, ...], budget: int, alignment: int, count: int) -> list[Algorithm]:
        operation, a, b, c = descriptors
        result = hipblaslt.hipblasLtMatmulHeuristicResult_t
        size = result().c_sizeof()
        found = (ctypes.c_char * (size * count))()
        preference = _call(hipblaslt, "hipblasLtMatmulPreferenceCreate")
        try:
            limit = hipblaslt.hipblasLtMatmulPreferenceAttributes_t.HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
            _set("hipblasLtMatmulPreferenceSetAttribute", preference, limit, ctypes.c_uint64(budget))
            places = (preference, count, ctypes.addressof(found))
            status, length = _answer(
                hipblaslt, "hipblasLtMatmulAlgoGetHeuristic", self._handle, operation, a, b, c, c, *places
            )
        finally:
            _call(hipblaslt, "hipblasLtMatmulPreferenceDestroy", preference)
        if status == _NOT_SUPPORTED:
            return []
        if status:
            _fail("hipblasLtMatmulAlgoGetHeuristic", status)
        entries = [(ctypes.addressof(found) + size * index) for index in range(length)]
        # An entry begins with the algorithm, so its address is the algorithm's.
        ranked = [(entry, result.fromObj(entry)) for entry in entries]
        return [Algorithm(entry, int(one.workspaceSize), found) for entry, one in ranked if not one.state]

    def multiply(
        self,
        descriptors: tuple[Any, ...],
        scalars: Scalars,
        operands: tuple[int, int, int],
        algorithm: Algorithm,
        workspace: int,
        stream: int,
    ) -> None:
        operation, a_layout, b_layout, c_layout = descriptors
        a, b, c = operands
        status, *_ = _answer(
            hipblaslt, "hipblasLtMatmul", self._handle, operation, scalars.alpha, a, a_layout, b, b_layout,
            scalars.beta, c, c_layout, c, c_layout, algorithm.handle, workspace, algorithm.workspace_bytes, stream,
        )  # fmt: skip
        if status == _NOT_SUPPORTED:
            raise AlgorithmRefused("hipblasLtMatmul failed", got=f"{status.name} ({int(status)})")
        if status:
            _fail("hipblasLtMatmul", status)


class Hipblas(PlainBlas):
    """hipBLAS. It takes its workspace itself, and computes in full precision."""

    def __init__(self, device: GpuDevice, driver: Driver) -> None:
        super().__init__(device, driver)
        self._handle = _call(hipblas, "hipblasCreate")
        self.version = "hipBLAS"

    def multiply(self, product: Product, scalars: Scalars, operands: tuple[int, int, int], stream: int) -> None:
        p, (a, b, c) = product, (product.a, product.b, product.c)
        numbers = (p.m, p.n, p.k, a.ld, b.ld, c.ld, p.batch)
        name = "hipblasGemmStridedBatchedEx" + ("_64" if max(numbers) > _INT32_MAX else "")
        types = [_TYPES[matrix.dtype] for matrix in (a, b, c)]
        _call(hipblas, "hipblasSetStream", self._handle, stream)
        status, *_ = _answer(
            hipblas, name, self._handle, _TRANS[p.trans_a], _TRANS[p.trans_b], p.m, p.n, p.k, scalars.alpha,
            operands[0], types[0], a.ld, a.stride, operands[1], types[1], b.ld, b.stride, scalars.beta,
            operands[2], types[2], c.ld, c.stride, p.batch, _compute_type(a.dtype, tf32=False),
            hipblas.hipblasGemmAlgo_t.HIPBLAS_GEMM_DEFAULT,
        )  # fmt: skip
        if status == _NOT_SUPPORTED:
            raise NoAlgorithmError(f"{name} failed", got=f"{status.name} ({int(status)})")
        if status:
            _fail(name, status)


def _compute_type(dtype: DType, *, tf32: bool) -> Any:
    types = hipblas.hipblasComputeType_t
    if dtype is DType.FP64:
        return types.HIPBLAS_COMPUTE_64F
    return types.HIPBLAS_COMPUTE_32F_FAST_TF32 if tf32 else types.HIPBLAS_COMPUTE_32F


def _set(setter: str, target: Any, attribute: Any, value: Any) -> None:
    _call(hipblaslt, setter, target, attribute, ctypes.addressof(value), ctypes.sizeof(value))


def _call(library: Any, name: str, *arguments: Any) -> Any:
    """Call a BLAS library; returns its result, if it has one, without the status."""
    status, *results = _answer(library, name, *arguments)
    if status:
        _fail(name, status)
    return results[0] if results else None


def _answer(library: Any, name: str, *arguments: Any) -> Any:
    """Status and results of a call. Raises DeviceError for a missing library and for a status that nobody knows."""
    try:
        return getattr(library, name)(*arguments)
    except (RuntimeError, ValueError) as error:
        raise DeviceError(f"{name} failed", got=text_of(error)) from error


def _fail(call: str, status: Any) -> NoReturn:
    raise DeviceError(f"{call} failed", got=f"{status.name} ({int(status)})")
