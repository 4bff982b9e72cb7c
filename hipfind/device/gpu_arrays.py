"""Arrays of GPU libraries other than torch (cupy, jax, numba, ...) as addresses, and new ones of the same kind.

They are read through the CUDA array interface, which AMD's libraries speak too, or through DLPack; nothing is copied.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from hipfind.device.array_ref import ArrayRef, capsule_pointer, tensor_dtype, whole_strides
from hipfind.errors import ArrayError
from hipfind.problem.dtypes import DType

Storage: TypeAlias = tuple[tuple[int, ...], tuple[int, ...] | None]
"""Lengths in memory order, and the axes that bring them into logical order (None where they are)."""
_DLPACK_KINDS = {2: "cuda", 13: "cuda", 10: "hip"}
"""kDLCUDA, kDLCUDAManaged, kDLROCM."""
_DLPACK_DEFAULT_STREAM = {"cuda": 1, "hip": 0}
"""What DLPack calls the default stream."""
_DLPACK_DTYPES = {(2, 64): DType.FP64, (2, 32): DType.FP32, (2, 16): DType.FP16, (4, 16): DType.BF16,
                  (0, 8): DType.INT8, (0, 32): DType.INT32}  # fmt: skip
"""By type code (0 integer, 2 float, 4 bfloat) and bits."""


class _DLTensor(ctypes.Structure):
    """The head of DLPack's DLManagedTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def dlpack_device(array: Any) -> str:
    """hipfind's name of the device that DLPack names, "" for another kind of device or no DLPack."""
    if not hasattr(array, "__dlpack_device__"):
        return ""
    kind, index = array.__dlpack_device__()
    name = _DLPACK_KINDS.get(int(kind))
    return f"{name}:{index}" if name else ""


def interface_ref(array: Any, role: str, device: str) -> ArrayRef:
    """An array by its CUDA array interface. One that does not tell its device is taken to lie on ``device`` when that
    device's runtime says so."""
    interface = array.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise ArrayError(f"{role} must not be a masked array", got="a mask")
    address, is_readonly = interface["data"]
    kind = np.dtype(getattr(array, "dtype", interface["typestr"]))
    shape = tuple(interface["shape"])
    raw = interface.get("strides")
    strides = _packed(shape) if raw is None else whole_strides(shape, tuple(raw), kind.itemsize, role)
    name = dlpack_device(array) or _owner(int(address or 0), device)
    return ArrayRef(
        int(address or 0), shape, strides, tensor_dtype(kind), kind.itemsize, name, bool(is_readonly), array
    )


def _owner(address: int, device: str) -> str:
    from hipfind.device.devices import get_device
    from hipfind.device.gpu import GpuDevice

    wanted = None if device == "host" else get_device(device)
    if isinstance(wanted, GpuDevice):
        return wanted.name if not address or wanted.holds(address) else "another device"
    return "a GPU"


def dlpack_ref(array: Any, role: str, stream: int) -> ArrayRef:
    """An array on a GPU by DLPack; its library makes ``stream`` wait until the array is ready."""
    device = dlpack_device(array)
    wait = stream or _DLPACK_DEFAULT_STREAM[device.partition(":")[0]]
    try:
        capsule = array.__dlpack__(stream=wait)
    except (BufferError, RuntimeError, TypeError) as error:
        raise ArrayError(f"{role} cannot be shared through DLPack", got=str(error)) from error
    tensor = _DLTensor.from_address(capsule_pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _packed(shape)
    dtype = _DLPACK_DTYPES.get((tensor.type_code, tensor.type_bits)) if tensor.type_lanes == 1 else None
    address = (tensor.data or 0) + tensor.byte_offset
    return ArrayRef(address, shape, strides, dtype, tensor.type_bits // 8, device, False, array)


def _packed(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def interface_stream(array: Any) -> int:
    """The stream on which an array's library works now, 0 for the default one."""
    stream = int(getattr(array, "__cuda_array_interface__", {}).get("stream") or 0)
    return 0 if stream == 1 else stream  # 1 is the default stream in the array interface


def stream_handle(stream: Any) -> int:
    """The handle of a stream of torch, cupy or another library (``__cuda_stream__``), or an int as it is.

    Raises ArrayError for what is no stream.
    """
    if isinstance(stream, int) and stream >= 0:
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr"):  # torch's and cupy's older streams
        if isinstance(getattr(stream, name, None), int):
            return int(getattr(stream, name))
    raise ArrayError("stream must be a stream's handle or a stream of torch or cupy", got=f"{stream!r}")


def is_on_gpu(array: Any) -> bool:
    """Whether this is an array of a GPU library (other than torch)."""
    return bool(dlpack_device(array)) or hasattr(array, "__cuda_array_interface__")


def empty(example: Any, storage: Storage | None, dtype: DType) -> Any:
    """A new array of the example's library on its device; None for ``storage`` means a layout with gaps.

    Raises ArrayError for a library that hipfind cannot ask for one, and where it has no such layout.
    """
    lengths, axes = storage or ((), None)
    cupy = sys.modules.get("cupy")
    if storage and cupy is not None and isinstance(example, cupy.ndarray):
        with example.device:
            made = cupy.empty(lengths, dtype.numpy)
        return made if axes is None else made.transpose(axes)
    if storage and axes is None and hasattr(example, "__array_namespace__"):
        return example.__array_namespace__().empty(lengths, dtype=dtype.numpy, device=example.device)
    raise ArrayError("no output of this kind and layout can be made", got=type(example).__name__, remedy="pass out=")


def is_outside_streams(array: Any) -> bool:
    """True for arrays of a library that does not queue on streams (jax): it must find its output finished."""
    return hasattr(array, "__array_namespace__") and not hasattr(array, "data_ptr")
