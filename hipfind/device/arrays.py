"""Users' arrays as addresses: numpy, torch, and whatever speaks an array interface or DLPack, never copied.

torch is not imported: its tensors are known by their methods. Other libraries' GPU arrays: see gpu_arrays.py.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hipfind.device import gpu_arrays
from hipfind.device.array_ref import ArrayRef, tensor_dtype, whole_strides
from hipfind.device.devices import NULL
from hipfind.device.host_outputs import OutputMemory
from hipfind.errors import ArrayError
from hipfind.problem.dtypes import DType
from hipfind.problem.tensor import TensorDescriptor

HOST = "host"
_MOST_KEPT = 32
_MOST_WORK = 10_000
"""Candidates that a search for a shared byte of two arrays may look at."""
_outputs = OutputMemory()


def _numpy_address_reader() -> Callable[[Any], int | None]:
    """A function from a numpy array to its address, in a quarter of the time that ``array.ctypes`` takes on CPython.

    There ``data`` follows the object's head: extension modules are compiled with that place, so it is as stable as
    numpy's C interface. Where a probe finds another place (other interpreters), numpy is asked.
    """
    pointer_at, head = ctypes.c_void_p.from_address, object.__basicsize__
    probe = np.zeros(4, np.uint8)[1:]
    is_cpython = sys.implementation.name == "cpython" and np.ndarray.__basicsize__ > head
    if is_cpython and pointer_at(id(probe) + head).value == probe.ctypes.data:
        return lambda array: pointer_at(id(array) + head).value
    return lambda array: int(array.ctypes.data)


_numpy_address = _numpy_address_reader()


class ArraySlot:
    """A role's place in a plan's call: tells whether an array fits, and where it lies, in about a microsecond."""

    __slots__ = ("_device", "_itemsize", "_known", "_make", "_tensor_types", "descriptor", "nbytes", "role")

    def __init__(self, descriptor: TensorDescriptor, device: str, role: str) -> None:
        self.descriptor = descriptor
        self.role = role
        self.nbytes = descriptor.span_bytes
        """From the first element's start to the last one's end."""
        self._device = device
        self._itemsize = descriptor.dtype.itemsize
        self._known: set[tuple[Any, ...]] = set()  # dtype, shape, strides (and device) that were found to fit
        self._tensor_types: set[type] = set()  # torch's Tensor, once one was seen
        self._make = _numpy_maker(descriptor)

    def address(self, array: Any, stream: int = 0) -> int:
        """Address of an array that ``stream`` is going to use. Raises ArrayError when it does not fit."""
        kind = type(array)
        address = -1
        if kind is np.ndarray:
            if (array.dtype, array.shape, array.strides) in self._known:
                address = _numpy_address(array) or 0
        elif (
            kind in self._tensor_types
            and (array.dtype, array.shape, array.stride(), array.device) in self._known
            and not array.is_neg()
        ):
            address = array.data_ptr()
        if address >= 0 and address % self._itemsize == 0:
            return address
        return self._checked(array, stream).address

    def output_address(self, array: Any, stream: int = 0) -> int:
        """Address of an array that is written. Raises ArrayError when it does not fit or is read-only."""
        kind = type(array)
        if kind in self._tensor_types or (kind is np.ndarray and array.flags.writeable):
            return self.address(array, stream)
        ref = self._checked(array, stream)
        if ref.is_readonly:
            raise ArrayError(f"{self.role} is written and must not be read-only", got="a read-only array")
        return ref.address

    def shares_elements(self, address: int, other: ArraySlot, other_address: int) -> bool:
        """Whether arrays of these slots at these addresses have a byte in common; False where that is hard to say."""
        views = []
        for slot, start in ((self, address), (other, other_address)):
            descriptor = slot.descriptor
            # Never read: only addresses count.
            memory: Any = (ctypes.c_char * max(slot.nbytes, 1)).from_address(start)
            strides = tuple(stride * slot._itemsize for stride in descriptor.strides)
            views.append(np.ndarray(descriptor.lengths, f"V{slot._itemsize}", memory, strides=strides))
        shares_memory: Any = np.shares_memory  # numpy's annotations know two bounds only
        try:
            return bool(shares_memory(*views, max_work=_MOST_WORK))
        except np.exceptions.TooHardError:
            return False

    def new(self, example: Any, stream: int = 0) -> tuple[Any, int]:
        """A new array for this slot, of the example's kind, and its address. Raises ArrayError."""
        if type(example) is np.ndarray:
            array = self._make()
            return array, _numpy_address(array) or 0
        array = empty_like_kind(example, self.descriptor)
        return array, self.output_address(array, stream)

    def _checked(self, array: Any, stream: int) -> ArrayRef:
        ref = array_ref(array, self.descriptor, self._device, self.role, stream)
        kind = type(array)
        if kind is np.ndarray:
            self._remember((array.dtype, array.shape, array.strides))
        elif _is_torch(array):
            self._tensor_types.add(kind)
            self._remember((array.dtype, array.shape, array.stride(), array.device))
        return ref

    def _remember(self, fitting: tuple[Any, ...]) -> None:
        if len(self._known) >= _MOST_KEPT:
            self._known.clear()
        self._known.add(fitting)


def array_ref(array: Any, descriptor: TensorDescriptor | None, device: str, role: str, stream: int = 0) -> ArrayRef:
    """Where an array lies, checked against a descriptor unless that is None.

    ``device`` is the name of the device that is going to use it, on ``stream``; ``role`` names the array in messages.
    Raises ArrayError for an object that is no array, and for another device, dtype, lengths or strides than needed;
    DeviceError for a null device, which has no arrays.
    """
    ref = _ref(array, role, device, stream)
    if ref.device != device:
        if device.partition(":")[0] == NULL:
            from hipfind.device.null import never_runs

            raise never_runs(device)
        raise ArrayError(f"{role} must be on {device}", got=f"an array on {ref.device}", remedy="move it there first")
    if ref.itemsize and ref.address % ref.itemsize:
        raise ArrayError(f"{role} must start at a multiple of its element size", got=f"address {ref.address:#x}",
                         remedy="copy the array")  # fmt: skip
    if descriptor is not None:
        _check(ref, descriptor, role)
    return ref


def _check(ref: ArrayRef, descriptor: TensorDescriptor, role: str) -> None:
    if ref.dtype is not descriptor.dtype:
        got = ref.dtype.value if ref.dtype is not None else str(getattr(ref.owner, "dtype", "an unknown type"))
        raise ArrayError(f"{role} must be {descriptor.dtype.value}", got=got)
    if ref.lengths != descriptor.lengths:
        raise ArrayError(f"{role} must have lengths {descriptor.lengths}", got=f"{ref.lengths}")
    if descriptor.elements and any(
        length > 1 and stride != wanted
        for length, stride, wanted in zip(ref.lengths, ref.strides, descriptor.strides, strict=True)
    ):
        raise ArrayError(
            f"{role} must have strides {descriptor.strides} (in elements)",
            got=f"{ref.strides}",
            remedy="make the problem from this array's strides, or copy the array into the problem's layout",
        )


def device_of(array: Any) -> str:
    """Name of the device that an array lies on, "" for one that does not tell."""
    if isinstance(array, np.ndarray) or hasattr(array, "__array_interface__"):
        return HOST
    if _is_torch(array):
        return HOST if array.device.type == "cpu" else _gpu_name(array)
    return gpu_arrays.dlpack_device(array)


def current_stream(array: Any) -> int:
    """The stream on which the array's library queues its work now; 0 for the default one and for the host."""
    if not _is_torch(array):
        return gpu_arrays.interface_stream(array)
    if array.device.type == "cpu":
        return 0
    torch = sys.modules["torch"]
    index = array.device.index
    # What torch's compiler calls; the public way makes an object each time and takes ten times as long.
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return int(raw(index) if raw is not None else torch.cuda.current_stream(index).cuda_stream)


def _ref(array: Any, role: str, device: str, stream: int) -> ArrayRef:
    if isinstance(array, np.ndarray):
        return _numpy_ref(array, array, role)
    if _is_torch(array):
        return _torch_ref(array, role)
    if hasattr(array, "__array_interface__"):
        return _numpy_ref(np.asarray(array), array, role)
    if gpu_arrays.dlpack_device(array):
        return gpu_arrays.dlpack_ref(array, role, stream)
    if hasattr(array, "__cuda_array_interface__"):
        return gpu_arrays.interface_ref(array, role, device)
    if hasattr(array, "__dlpack__"):
        return _dlpack_ref(array, role)
    raise ArrayError(f"{role} must be an array (numpy, torch, array interface or DLPack)", got=type(array).__name__)


def _numpy_ref(array: np.ndarray[Any, Any], owner: Any, role: str) -> ArrayRef:
    if isinstance(array, np.ma.MaskedArray):
        raise ArrayError(f"{role} must not be a masked array", got="a masked array", remedy="fill it first")
    if not array.dtype.isnative:
        raise ArrayError(f"{role} must have this machine's byte order", got=str(array.dtype), remedy="copy the array")
    strides = whole_strides(array.shape, array.strides, array.itemsize, role)
    address: int = array.ctypes.data
    dtype = tensor_dtype(array.dtype)
    return ArrayRef(address, array.shape, strides, dtype, array.itemsize, HOST, not array.flags.writeable, owner)


def _torch_ref(tensor: Any, role: str) -> ArrayRef:
    device = HOST if tensor.device.type == "cpu" else _gpu_name(tensor)
    if tensor.is_neg() or tensor.is_conj():
        raise ArrayError(f"{role} must not be a lazy negative or conjugate", got="such a tensor",
                         remedy="call resolve_neg() or resolve_conj()")  # fmt: skip
    try:
        address = int(tensor.data_ptr())
    except RuntimeError as error:  # sparse, meta and the like
        raise ArrayError(f"{role} must be a tensor with plain storage", got=str(error)) from error
    lengths, strides = tuple(tensor.shape), tuple(tensor.stride())
    return ArrayRef(address, lengths, strides, tensor_dtype(tensor.dtype), tensor.element_size(), device, False, tensor)


def _dlpack_ref(array: Any, role: str) -> ArrayRef:
    kind, index = array.__dlpack_device__()
    if int(kind) != 1:
        return ArrayRef(0, (), (), None, 0, f"DLPack device type {int(kind)}, index {index}", False, array)
    try:
        view = np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError) as error:
        raise ArrayError(f"{role} cannot be shared through DLPack", got=str(error)) from error
    return _numpy_ref(view, array, role)._replace(owner=(array, view))


def _is_torch(array: Any) -> bool:
    return hasattr(array, "data_ptr") and hasattr(array, "new_empty_strided")


def _gpu_name(tensor: Any) -> str:
    """hipfind's name of a torch device: torch calls AMD GPUs "cuda" too."""
    torch = sys.modules.get("torch")
    is_hip = getattr(getattr(torch, "version", None), "hip", None) is not None
    kind = "hip" if tensor.device.type == "cuda" and is_hip else tensor.device.type
    return f"{kind}:{tensor.device.index or 0}"


def empty_like_kind(example: Any, descriptor: TensorDescriptor) -> Any:
    """A new array with the descriptor's dtype, lengths and strides, contents undefined.

    Of the example's library, on its device, where that is torch's or a GPU's; else numpy's. Raises ArrayError where
    that library cannot make such an array.
    """
    if _is_torch(example):
        if tensor_dtype(example.dtype) is descriptor.dtype:
            return example.new_empty_strided(descriptor.lengths, descriptor.strides)
        torch = sys.modules[type(example).__module__.partition(".")[0]]
        dtype = getattr(torch, _TORCH_NAMES[descriptor.dtype])
        return example.new_empty_strided(descriptor.lengths, descriptor.strides, dtype=dtype)
    if gpu_arrays.is_on_gpu(example):
        return gpu_arrays.empty(example, _storage(descriptor), descriptor.dtype)
    return _numpy_maker(descriptor)()


_TORCH_NAMES = {
    DType.FP64: "float64",
    DType.FP32: "float32",
    DType.FP16: "float16",
    DType.BF16: "bfloat16",
    DType.INT8: "int8",
    DType.INT32: "int32",
}


@functools.lru_cache(maxsize=1024)
def _numpy_maker(descriptor: TensorDescriptor) -> Callable[[], Any]:
    """A function that makes numpy arrays as the descriptor says: in memory order without gaps, else from bytes."""
    dtype = descriptor.dtype.numpy
    storage = _storage(descriptor)
    if storage is None:
        strides = tuple(stride * descriptor.dtype.itemsize for stride in descriptor.strides)
        return lambda: np.ndarray(descriptor.lengths, dtype, np.empty(descriptor.span_bytes, np.uint8), strides=strides)
    in_order, axes = storage
    if axes is None:
        return lambda: _outputs.empty(in_order, dtype)
    return lambda: _outputs.empty(in_order, dtype).transpose(axes)


def _storage(descriptor: TensorDescriptor) -> gpu_arrays.Storage | None:
    """Lengths in memory order, and the axes that bring them into logical order if they are not; None with gaps."""
    lengths, strides = descriptor.lengths, descriptor.strides
    order = sorted(range(len(lengths)), key=lambda axis: (-strides[axis], axis))
    expected = 1
    for axis in reversed(order):
        if lengths[axis] > 1 and strides[axis] != expected:
            return None
        expected *= max(lengths[axis], 1)
    axes = None if order == sorted(order) else tuple(order.index(axis) for axis in range(len(order)))
    return tuple(lengths[axis] for axis in order), axes
