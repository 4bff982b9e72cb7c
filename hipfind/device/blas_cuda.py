"""Matrix products on NVIDIA GPUs: cuBLASLt, and cuBLAS for what it cannot do, through nvmath-python's bindings."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

import numpy as np
from nvmath import CudaDataType
from nvmath.bindings import cublas, cublasLt

from hipfind.device import gpu_products
from hipfind.device.gpu import GpuDevice
from hipfind.device.gpu_blas import Algorithm, AlgorithmRefused, GpuBlas, LtBlas, NoAlgorithmError, Product, Scalars
from hipfind.device.gpu_driver import Driver, text_of
from hipfind.device.gpu_products import PlainBlas
from hipfind.errors import DeviceError
from hipfind.problem.dtypes import DType

_TYPES = {
    DType.FP64: CudaDataType.CUDA_R_64F,
    DType.FP32: CudaDataType.CUDA_R_32F,
    DType.FP16: CudaDataType.CUDA_R_16F,
    DType.BF16: CudaDataType.CUDA_R_16BF,
}
_NOT_SUPPORTED = 15  # CUBLAS_STATUS_NOT_SUPPORTED
_TRANS = (cublas.Operation.N, cublas.Operation.T)
_FAILURES = (
    cublasLt.cuBLASLtError,
    cublas.cuBLASError,
    RuntimeError,
)  # RuntimeError: the library or a symbol is missing
_MIN_ALIGNMENTS = (
    cublasLt.MatmulPreferenceAttribute.MIN_ALIGNMENT_A_BYTES,
    cublasLt.MatmulPreferenceAttribute.MIN_ALIGNMENT_B_BYTES,
    cublasLt.MatmulPreferenceAttribute.MIN_ALIGNMENT_C_BYTES,
    cublasLt.MatmulPreferenceAttribute.MIN_ALIGNMENT_D_BYTES,
)


def make_blas(device: GpuDevice) -> GpuBlas:
    """cuBLASLt and cuBLAS, or whichever is there. Raises DeviceError with both reasons when neither is."""
    return gpu_products.make_blas(device, CublasLt, Cublas)


class CublasLt(LtBlas):
    """cuBLASLt."""

    def __init__(self, device: GpuDevice, driver: Driver) -> None:
        super().__init__(device, driver)
        self._handle = _call(cublasLt, "create")
        self.version = f"cuBLASLt {_call(cublasLt, 'get_version')}"

    def describe(self, product: Product) -> tuple[Any, ...]:
        scale = _TYPES[DType.FP64 if product.a.dtype is DType.FP64 else DType.FP32]
        compute = _compute_type(product.a.dtype, tf32=product.tf32)
        operation = _call(cublasLt, "matmul_desc_create", compute, scale)
        made = [operation]
        try:
            for attribute, trans in (
                (cublasLt.MatmulDescAttribute.TRANSA, product.trans_a),
                (cublasLt.MatmulDescAttribute.TRANSB, product.trans_b),
            ):
                _set("matmul_desc_set_attribute", operation, attribute, ctypes.c_int32(_TRANS[trans]))
            for matrix in (product.a, product.b, product.c):
                shape = (_TYPES[matrix.dtype], matrix.rows, matrix.cols, matrix.ld)
                made.append(_call(cublasLt, "matrix_layout_create", *shape))
                self._set_batch(made[-1], product.batch, matrix.stride)
        except DeviceError:
            self.release(tuple(made))
            raise
        return tuple(made)

    def _set_batch(self, layout: int, batch: int, stride: int) -> None:
        if batch > 1:
            for attribute, value in (
                (cublasLt.MatrixLayoutAttribute.BATCH_COUNT, ctypes.c_int32(batch)),
                (cublasLt.MatrixLayoutAttribute.STRIDED_BATCH_OFFSET, ctypes.c_int64(stride)),
            ):
                _set("matrix_layout_set_attribute", layout, attribute, value)

    @staticmethod
    def release(descriptors: tuple[Any, ...]) -> None:
        operation, *layouts = descriptors
        with contextlib.suppress(DeviceError):  # nobody can do anything about it
            _call(cublasLt, "matmul_desc_destroy", operation)
        for layout in layouts:
            with contextlib.suppress(DeviceError):
                _call(cublasLt, "matrix_layout_destroy", layout)

    def rank(self, descriptors: tuple[Any, ...], budget: int, alignment: int, count: int) -> list[Algorithm]:
        operation, a, b, c = descriptors
        found = np.zeros(count, cublasLt.matmul_heuristic_result_dtype)
        length = ctypes.c_int32()
        preference = _call(cublasLt, "matmul_preference_create")
        try:
            limit = cublasLt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
            _set("matmul_preference_set_attribute", preference, limit, ctypes.c_uint64(budget))
            for attribute in _MIN_ALIGNMENTS:
                _set("matmul_preference_set_attribute", preference, attribute, ctypes.c_uint32(alignment))
            # Partial sums of a split reduction stay in fp32; some algorithms would round each to the type of C.
            schemes = ctypes.c_uint32(cublasLt.ReductionScheme.COMPUTE_TYPE)
            reduction = cublasLt.MatmulPreferenceAttribute.REDUCTION_SCHEME_MASK
            _set("matmul_preference_set_attribute", preference, reduction, schemes)
            cublasLt.matmul_algo_get_heuristic(
                self._handle, operation, a, b, c, c, preference, count, found.ctypes.data, ctypes.addressof(length)
            )
        except cublasLt.cuBLASLtError as error:
            if error.status == _NOT_SUPPORTED:
                return []
            raise DeviceError("matmul_algo_get_heuristic failed", got=text_of(error)) from error
        finally:
            _call(cublasLt, "matmul_preference_destroy", preference)
        ranked = found[: length.value]
        # An entry begins with the algorithm, so its address is the algorithm's.
        return [
            Algorithm(found.ctypes.data + index * found.itemsize, int(one["workspace_size"]), found)
            for index, one in enumerate(ranked)
            if one["state"] == 0
        ]

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
        try:
            cublasLt.matmul(
                self._handle, operation, scalars.alpha, a, a_layout, b, b_layout, scalars.beta, c, c_layout, c,
                c_layout, algorithm.handle, workspace, algorithm.workspace_bytes, stream,
            )  # fmt: skip
        except cublasLt.cuBLASLtError as error:
            kind = AlgorithmRefused if error.status == _NOT_SUPPORTED else DeviceError
            raise kind("cublasLtMatmul failed", got=text_of(error)) from error


class Cublas(PlainBlas):
    """cuBLAS. It takes its workspace itself, and computes in full precision."""

    def __init__(self, device: GpuDevice, driver: Driver) -> None:
        super().__init__(device, driver)
        self._handle = _call(cublas, "create")
        self.version = f"cuBLAS {_call(cublas, 'get_version', self._handle)}"

    def multiply(self, product: Product, scalars: Scalars, operands: tuple[int, int, int], stream: int) -> None:
        p, (a, b, c) = product, (product.a, product.b, product.c)
        types = [_TYPES[matrix.dtype] for matrix in (a, b, c)]
        _call(cublas, "set_stream", self._handle, stream)
        try:
            cublas.gemm_strided_batched_ex_64(
                self._handle, _TRANS[p.trans_a], _TRANS[p.trans_b], p.m, p.n, p.k, scalars.alpha, operands[0],
                types[0], a.ld, a.stride, operands[1], types[1], b.ld, b.stride, scalars.beta, operands[2], types[2],
                c.ld, c.stride, p.batch, _compute_type(a.dtype, tf32=False), cublas.GemmAlgo.DEFAULT,
            )  # fmt: skip
        except _FAILURES as error:
            is_refused = isinstance(error, cublas.cuBLASError) and error.status == _NOT_SUPPORTED
            kind = NoAlgorithmError if is_refused else DeviceError
            raise kind("cublasGemmStridedBatchedEx_64 failed", got=text_of(error)) from error


def _compute_type(dtype: DType, *, tf32: bool) -> int:
    types = cublas.ComputeType
    if dtype is DType.FP64:
        return int(types.COMPUTE_64F)
    return int(types.COMPUTE_32F_FAST_TF32 if tf32 else types.COMPUTE_32F)


def _set(setter: str, target: int, attribute: int, value: Any) -> None:
    _call(cublasLt, setter, target, attribute, ctypes.addressof(value), ctypes.sizeof(value))


def _call(library: Any, name: str, *arguments: Any) -> Any:
    try:
        return getattr(library, name)(*arguments)
    except _FAILURES as error:
        raise DeviceError(f"{library.__name__.rpartition('.')[2]}'s {name} failed", got=text_of(error)) from error
