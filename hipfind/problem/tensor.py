"""TensorDescriptor: dtype, lengths and strides of a tensor, without storage.

Lengths are always in logical order ``N, C, [D,] H, W``; the layout lives in the strides. Strides are in elements.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

from hipfind.errors import ArrayError, ProblemError
from hipfind.problem.dtypes import DType

LAYOUTS = {2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
"""Packed layouts by number of spatial dimensions, channel-first before channel-last."""
_INNERMOST_FIRST = {
    name: tuple(names[0].index(axis) for axis in reversed(name)) for names in LAYOUTS.values() for name in names
}


def whole_numbers(name: str, values: Sequence[Any]) -> tuple[int, ...]:
    """``values`` as Python ints. Raises ProblemError, naming ``name``, for what is not a sequence of whole numbers."""
    try:
        numbers = tuple(int(value) for value in values)
        exact = all(number == value for number, value in zip(numbers, values, strict=True))
    except (TypeError, ValueError, OverflowError):
        exact = False
    if not exact:
        raise ProblemError(f"{name} must be whole numbers", got=f"{values!r}")
    return numbers


def packed_strides(lengths: Sequence[int], layout: str) -> tuple[int, ...]:
    """Strides in elements, in logical order, of a packed tensor of ``lengths`` stored in ``layout``.

    Raises ProblemError for a layout that is not one of LAYOUTS or has another rank.
    """
    if layout not in LAYOUTS.get(len(lengths) - 2, ()):
        legal = ", ".join(name for names in LAYOUTS.values() for name in names)
        raise ProblemError(
            f"unknown layout for a tensor of {len(lengths)} dimensions", got=layout, remedy=f"legal: {legal}"
        )
    strides = [0] * len(lengths)
    step = 1
    for axis in _INNERMOST_FIRST[layout]:
        strides[axis] = step
        step *= lengths[axis] or 1
    return tuple(strides)


@dataclasses.dataclass(frozen=True)
class TensorDescriptor:
    """A tensor's dtype, lengths (elements an axis) and strides (elements), both in logical order N, C, [D,] H, W.

    Strides of axes of length 1 carry no meaning; ``canonical`` gives them one. Raises ProblemError on construction
    for wrong ranks, negative lengths, or negative strides.
    """

    dtype: DType
    lengths: tuple[int, ...]
    strides: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.lengths) not in (4, 5):
            raise ProblemError(
                "a tensor has 4 dimensions (N, C, H, W) or 5 (N, C, D, H, W)", got=f"lengths {self.lengths}"
            )
        if len(self.strides) != len(self.lengths):
            raise ProblemError(
                f"a tensor of {len(self.lengths)} lengths needs as many strides", got=f"strides {self.strides}"
            )
        if any(length < 0 for length in self.lengths):
            raise ProblemError("lengths must not be negative", got=f"lengths {self.lengths}")
        if any(stride < 0 for stride in self.strides):
            raise ProblemError(
                "negative strides are not supported", got=f"strides {self.strides}", remedy="copy the array first"
            )

    @classmethod
    def packed(cls, lengths: Sequence[int], dtype: object = "fp32", layout: str = "") -> TensorDescriptor:
        """A packed tensor; ``layout`` "" means channel-first. Raises ProblemError for an unknown dtype or layout."""
        sizes = whole_numbers("lengths", lengths)
        if len(sizes) not in (4, 5):
            raise ProblemError("a tensor has 4 dimensions (N, C, H, W) or 5 (N, C, D, H, W)", got=f"lengths {sizes}")
        name = layout or LAYOUTS[len(sizes) - 2][0]
        return cls(DType.parse(dtype), sizes, packed_strides(sizes, name))

    @classmethod
    def of(cls, array: Any) -> TensorDescriptor:
        """Descriptor of a numpy, cupy or torch array as it lies in memory, without touching its data.

        Raises ArrayError for what is no array, ProblemError for a dtype or a shape that no problem has.
        """
        try:
            dtype, shape = array.dtype, tuple(array.shape)
        except AttributeError as error:
            what = "an array or a tensor is needed (of numpy, torch, cupy or the like)"
            remedy = "numpy.asarray makes an array of numbers"
            raise ArrayError(what, got=type(array).__name__, remedy=remedy) from error
        stride = getattr(array, "stride", None)  # torch's, in elements
        if callable(stride):
            return _described(dtype, shape, tuple(stride()), in_bytes=False)
        strides = getattr(array, "strides", None)
        if strides is None:
            return cls.packed(shape, dtype)
        return _described(dtype, shape, tuple(strides), in_bytes=True)

    @property
    def ndim_spatial(self) -> int:
        return len(self.lengths) - 2

    @property
    def elements(self) -> int:
        """Number of elements, an exact Python int."""
        return math.prod(self.lengths)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements themselves, gaps not counted."""
        return self.elements * self.dtype.itemsize

    @property
    def span_bytes(self) -> int:
        """Bytes from the first element's start to the last element's end; 0 when empty."""
        if self.elements == 0:
            return 0
        last = sum((length - 1) * stride for length, stride in zip(self.lengths, self.strides, strict=True))
        return (last + 1) * self.dtype.itemsize

    def is_packed_as(self, layout: str) -> bool:
        """True when the memory order is exactly ``layout`` without gaps (axes of length 1 do not matter)."""
        if self.elements == 0:
            return True
        want = packed_strides(self.lengths, layout)
        return all(
            length == 1 or stride == expected
            for length, stride, expected in zip(self.lengths, self.strides, want, strict=True)
        )

    def layouts(self) -> tuple[str, ...]:
        """Every packed layout that describes this memory, channel-first first; empty for a tensor with gaps."""
        return tuple(name for name in LAYOUTS[self.ndim_spatial] if self.is_packed_as(name))

    def canonical(self, layout: str) -> TensorDescriptor:
        """The same memory with the strides of length-1 axes set by rule: the layout's, or 1 when ``layout`` is ""."""
        if layout:
            strides = packed_strides(self.lengths, layout)
        else:
            strides = tuple(1 if length == 1 else s for length, s in zip(self.lengths, self.strides, strict=True))
        return self if strides == self.strides else dataclasses.replace(self, strides=strides)

    def overlaps_itself(self) -> bool:
        """True when two indices may address one element (a broadcast or a sliding window): not legal for outputs.

        Sufficient test: sorted by stride, each axis must step over all that the smaller ones reach.
        """
        if self.elements == 0:
            return False
        axes = sorted((s, length) for s, length in zip(self.strides, self.lengths, strict=True) if length > 1)
        reach = 0
        for stride, length in axes:
            if stride <= reach:
                return True
            reach += stride * (length - 1)
        return False


def by_axis(numbers: Sequence[int]) -> str:
    """One number an axis as text, e.g. ``56x56``."""
    return "x".join(map(str, numbers))


def one_word(words: Sequence[str]) -> str:
    """The word that all are, else all of them joined by ``_``."""
    return words[0] if len(set(words)) == 1 else "_".join(words)


def joint_layouts(*tensors: TensorDescriptor) -> tuple[str, ...]:
    """Layout of each tensor: the first that all share, else the first that each has, "" for one with gaps.

    One tensor alone may be ambiguous (C = 1, or 1x1 spatial); the others decide, as in MIOpen.
    """
    each = [tensor.layouts() for tensor in tensors]
    for name in LAYOUTS[tensors[0].ndim_spatial]:
        if all(name in names for names in each):
            return (name,) * len(tensors)
    return tuple(names[0] if names else "" for names in each)


@functools.lru_cache(4096)
def _described(dtype: object, shape: tuple[int, ...], strides: tuple[int, ...], in_bytes: bool) -> TensorDescriptor:
    """Descriptor of an array of this look. Kept: it is asked for on every one-shot call."""
    parsed = DType.parse(dtype)
    unit = parsed.itemsize if in_bytes else 1
    if any(length > 1 and stride % unit for length, stride in zip(shape, strides, strict=True)):
        raise ProblemError(
            "strides must be whole elements", got=f"{strides} bytes of {parsed.value}", remedy="copy the array"
        )
    return TensorDescriptor(parsed, tuple(map(int, shape)), tuple(int(stride) // unit for stride in strides))
