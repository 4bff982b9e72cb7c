"""ArrayRef: where somebody's array lies."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

from hipfind.errors import ArrayError, ProblemError
from hipfind.problem.dtypes import DType

capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
"""Address in a capsule of this name."""


class ArrayRef(NamedTuple):
    """Where an array lies. ``strides`` are in elements; ``dtype`` is None for a type that no tensor has."""

    address: int
    lengths: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType | None
    itemsize: int
    device: str
    is_readonly: bool
    owner: Any

    @property
    def nbytes(self) -> int:
        """Bytes from the first element's start to the last element's end."""
        if 0 in self.lengths:
            return 0
        last = sum((length - 1) * stride for length, stride in zip(self.lengths, self.strides, strict=True))
        return (last + 1) * self.itemsize


def whole_strides(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, role: str) -> tuple[int, ...]:
    """Strides in elements from strides in bytes. Raises ArrayError for parts of elements."""
    size = max(itemsize, 1)
    if any(length > 1 and stride % size for length, stride in zip(shape, strides, strict=True)):
        raise ArrayError(f"{role} must have strides of whole elements", got=f"{strides} bytes", remedy="copy the array")
    return tuple(stride // size for stride in strides)


@functools.lru_cache(maxsize=64)
def tensor_dtype(dtype: Any) -> DType | None:
    """A library's dtype as one of a tensor's, or None."""
    try:
        return DType.parse(dtype)
    except ProblemError:
        return None
