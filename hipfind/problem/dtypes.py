"""Element types: hipfind's names, MIOpen's names, sizes, and the numpy types that hold them."""

from __future__ import annotations

import enum
from typing import Any

import ml_dtypes
import numpy as np

from hipfind.errors import ProblemError


class DType(enum.Enum):
    """An element type. ``value`` is hipfind's name; ``miopen`` is the name in MIOpen's keys."""

    FP64 = "fp64"
    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    INT32 = "int32"

    @property
    def miopen(self) -> str:
        return self.value.upper()

    @property
    def itemsize(self) -> int:
        """Size of one element in bytes."""
        return _SIZES[self]

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype (ml_dtypes' for bf16)."""
        return _NUMPY[self]

    @property
    def epsilon(self) -> float:
        """Distance from 1.0 to the next larger value; 0.0 for integers."""
        return _EPSILON[self]

    @property
    def is_float(self) -> bool:
        return self.epsilon > 0.0

    @property
    def is_half(self) -> bool:
        """True for the 16-bit float types, which accumulate in fp32."""
        return self in (DType.FP16, DType.BF16)

    @classmethod
    def parse(cls, name: object) -> DType:
        """DType from a DType, one of its names, or a numpy/torch/cupy dtype. Raises ProblemError for others."""
        if isinstance(name, cls):
            return name
        if isinstance(name, type) and name is not float:  # numpy's scalar types; Python's float is no size
            name = name.__name__
        text = str(getattr(name, "name", name)).rsplit(".", maxsplit=1)[-1].lower()
        text = _ALIASES.get(text, text)
        try:
            return cls(text)
        except ValueError:
            legal = ", ".join(dtype.value for dtype in cls)
            raise ProblemError("unknown dtype", got=str(name), remedy=f"legal: {legal}") from None


_SIZES = {DType.FP64: 8, DType.FP32: 4, DType.FP16: 2, DType.BF16: 2, DType.INT8: 1, DType.INT32: 4}
_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.FP64: np.dtype(np.float64),
    DType.FP32: np.dtype(np.float32),
    DType.FP16: np.dtype(np.float16),
    DType.BF16: np.dtype(ml_dtypes.bfloat16),
    DType.INT8: np.dtype(np.int8),
    DType.INT32: np.dtype(np.int32),
}
_EPSILON = {DType.FP64: 2.0**-52, DType.FP32: 2.0**-23, DType.FP16: 2.0**-10, DType.BF16: 2.0**-7,
            DType.INT8: 0.0, DType.INT32: 0.0}  # fmt: skip
_ALIASES = {
    "float64": "fp64",
    "double": "fp64",
    "float32": "fp32",
    "float": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "bfp16": "bf16",
}
