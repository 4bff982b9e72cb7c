"""Matrix products on NVIDIA GPUs: cuBLASLt through nvmath-python's low-level bindings."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from nvmath import CudaDataType
from nvmath.bindings import cublas, cublasLt

from hipfind.device.gpu import GpuDevice
from hipfind.device.gpu_blas import Algorithm, AlgorithmRefused, LtBlas, Matrix, Product, Scalars
from hipfind.device.gpu_driver import Driver
from hipfind.errors import DeviceError
from hipfind.problem.dtypes import DType

_TYPES = {
    DType.FP64: CudaDataType.CUDA_R_64F,
    DType.FP32: CudaDataType.CUDA_R_32F,
    DType.FP16: CudaDataType.CUDA_R_16F,
    DType.BF16: CudaDataType.CUDA_R_16BF,
}
_NOT_SUPPORTED = 15  # CUBLAS_STATUS_NOT_SUPPORTED
_FAILURES = (cublasLt.cuBLASLtError, RuntimeError)  # RuntimeError: the library or a symbol is missing
_MIN_ALIGNMENTS = (
    cublasLt.MatmulPreferenceAttribute.MIN_ALIGNMENT_A_BYTES,
    cublasLt.MatmulPreferenceAttribute.MIN_ALIGNMENT_B_BYTES,
    cublasLt.MatmulPreferenceAttribute.MIN_ALIGNMENT_C_BYTES,
    cublasLt.MatmulPreferenceAttribute.MIN_ALIGNMENT_D_BYTES,
)


def make_blas(device: GpuDevice) -> CublasLt:
    """cuBLASLt. Raises DeviceError where it cannot be used."""
    return CublasLt(device, device.driver)


class CublasLt(LtBlas):
    """cuBLASLt. fp32 products are computed in fp32 (no TF32)."""

    def __init__(self, device: GpuDevice, driver: Driver) -> None:
        super().__init__(device, driver)
        self._handle = _call("create")
        self.version = f"cuBLASLt {_call('get_version')}"

    def describe(self, product: Product) -> tuple[Any, ...]:
        is_double = product.a.dtype is DType.FP64
        compute = cublas.ComputeType.COMPUTE_64F if is_double else cublas.ComputeType.COMPUTE_32F
        operation = _call("matmul_desc_create", compute, _TYPES[DType.FP64 if is_double else DType.FP32])
        for attribute, trans in (
            (cublasLt.MatmulDescAttribute.TRANSA, product.trans_a),
            (cublasLt.MatmulDescAttribute.TRANSB, product.trans_b),
        ):
            value = ctypes.c_int32(cublas.Operation.T if trans else cublas.Operation.N)
            _set("matmul_desc_set_attribute", operation, attribute, value)
        return (operation, *(self._layout(matrix, product.batch) for matrix in (product.a, product.b, product.c)))

    def _layout(self, matrix: Matrix, batch: int) -> int:
        layout: int = _call("matrix_layout_create", _TYPES[matrix.dtype], matrix.rows, matrix.cols, matrix.ld)
        if batch > 1:
            for attribute, value in (
                (cublasLt.MatrixLayoutAttribute.BATCH_COUNT, ctypes.c_int32(batch)),
                (cublasLt.MatrixLayoutAttribute.STRIDED_BATCH_OFFSET, ctypes.c_int64(matrix.stride)),
            ):
                _set("matrix_layout_set_attribute", layout, attribute, value)
        return layout

    @staticmethod
    def release(descriptors: tuple[Any, ...]) -> None:
        operation, *layouts = descriptors
        cublasLt.matmul_desc_destroy(operation)
        for layout in layouts:
            cublasLt.matrix_layout_destroy(layout)

    def rank(self, descriptors: tuple[Any, ...], budget: int, alignment: int, count: int) -> list[Algorithm]:
        operation, a, b, c = descriptors
        found = np.zeros(count, cublasLt.matmul_heuristic_result_dtype)
        length = ctypes.c_int32()
        preference = _call("matmul_preference_create")
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
            raise DeviceError("matmul_algo_get_heuristic failed", got=str(error)) from error
        finally:
            _call("matmul_preference_destroy", preference)
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
            raise kind("cublasLtMatmul failed", got=str(error)) from error


def _set(setter: str, target: int, attribute: int, value: Any) -> None:
    _call(setter, target, attribute, ctypes.addressof(value), ctypes.sizeof(value))


def _call(name: str, *arguments: Any) -> Any:
    try:
        return getattr(cublasLt, name)(*arguments)
    except _FAILURES as error:
        raise DeviceError(f"cuBLASLt's {name} failed", got=str(error)) from error
