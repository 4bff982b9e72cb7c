"""Descriptors: packed layouts, gaps, ambiguous memory, legal strides; arrays are described as they lie in memory."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipfind.errors import ArrayError, ProblemError
from hipfind.problem import DType, TensorDescriptor
from hipfind.problem.tensor import LAYOUTS, packed_strides, whole_numbers


def addresses(tensor: TensorDescriptor) -> list[int]:
    """Offset of every element, in logical order."""
    ranges = [range(length) for length in tensor.lengths]
    return [sum(i * s for i, s in zip(index, tensor.strides, strict=True)) for index in itertools.product(*ranges)]


@pytest.mark.parametrize(
    ("lengths", "layout", "strides"),
    [
        ((2, 3, 4, 5), "NCHW", (60, 20, 5, 1)),
        ((2, 3, 4, 5), "NHWC", (60, 1, 15, 3)),
        ((2, 3, 4, 5, 6), "NCDHW", (360, 120, 30, 6, 1)),
        ((2, 3, 4, 5, 6), "NDHWC", (360, 1, 90, 18, 3)),
    ],
)
def test_packed_strides(lengths: tuple[int, ...], layout: str, strides: tuple[int, ...]) -> None:
    assert packed_strides(lengths, layout) == strides
    tensor = TensorDescriptor.packed(lengths, "fp16", layout)
    assert sorted(addresses(tensor)) == list(range(tensor.elements))
    assert tensor.layouts() == (layout,)
    assert tensor.nbytes == tensor.span_bytes == 2 * math.prod(lengths)


@pytest.mark.parametrize("layout", ["NCDHW", "CHWN", "nchw", "", "HCNW"])
def test_unknown_layout_of_four_dimensions(layout: str) -> None:
    with pytest.raises(ProblemError, match="unknown layout"):
        packed_strides((1, 2, 3, 4), layout)


@pytest.mark.parametrize("lengths", [(3, 1, 4, 5), (3, 7, 1, 1), (0, 3, 4, 5)])
def test_memory_that_fits_both_layouts(lengths: tuple[int, ...]) -> None:
    for layout in LAYOUTS[2]:
        assert TensorDescriptor.packed(lengths, layout=layout).layouts() == LAYOUTS[2]


def test_strides_of_axes_of_length_one_do_not_matter() -> None:
    tensor = TensorDescriptor(DType.FP32, (1, 3, 1, 5), (99, 5, 77, 1))
    assert tensor.is_packed_as("NCHW")
    assert tensor.canonical("NCHW") == TensorDescriptor.packed((1, 3, 1, 5))


def test_a_tensor_with_gaps_has_no_layout_and_spans_them() -> None:
    tensor = TensorDescriptor(DType.FP32, (2, 4, 2, 2), (32, 4, 2, 1))
    assert tensor.layouts() == ()
    assert tensor.nbytes == 2 * 4 * 2 * 2 * 4
    assert tensor.span_bytes == (max(addresses(tensor)) + 1) * 4


@given(st.lists(st.integers(1, 3), min_size=4, max_size=5), st.data())
def test_an_output_that_overlaps_itself_is_found(lengths: list[int], data: st.DataObject) -> None:
    strides = [data.draw(st.integers(0, 12)) for _ in lengths]
    tensor = TensorDescriptor(DType.FP32, tuple(lengths), tuple(strides))
    places = addresses(tensor)
    if len(set(places)) < len(places):
        assert tensor.overlaps_itself()


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_permuted_memory_does_not_overlap(order: tuple[int, ...]) -> None:
    lengths, strides, step = (2, 3, 4, 5), [0] * 4, 1
    for axis in order:
        strides[axis] = step
        step *= lengths[axis] + 1
    assert not TensorDescriptor(DType.FP32, lengths, tuple(strides)).overlaps_itself()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.int32])
def test_an_array_is_described_as_it_lies(dtype: type) -> None:
    array = np.zeros((4, 6, 8, 10), dtype)[::2, 1:4].transpose(0, 3, 1, 2)
    tensor = TensorDescriptor.of(array)
    assert tensor.dtype is DType.parse(np.dtype(dtype))
    assert tensor.lengths == (2, 10, 3, 8)
    assert tensor.strides == (960, 1, 80, 10)


def test_arrays_that_are_refused() -> None:
    with pytest.raises(ProblemError, match="negative strides"):
        TensorDescriptor.of(np.zeros((1, 1, 4, 4), np.float32)[:, :, ::-1])
    with pytest.raises(ProblemError, match="unknown dtype"):
        TensorDescriptor.of(np.zeros((1, 1, 4, 4), np.complex64))
    with pytest.raises(ProblemError, match="whole elements"):
        TensorDescriptor.of(np.zeros((1, 1, 4, 4), [("a", "f4"), ("b", "i1")])["a"])
    with pytest.raises(ProblemError, match="4 dimensions"):
        TensorDescriptor.of(np.zeros((4, 4), np.float32))
    for other, name in (([1.0], "list"), (None, "NoneType"), (2.0, "float")):
        with pytest.raises(ArrayError, match=rf"an array or a tensor is needed .*\(got {name}\)"):
            TensorDescriptor.of(other)


@pytest.mark.parametrize(
    ("lengths", "strides", "message"),
    [
        ((1, 2, 3), (6, 3, 1), "4 dimensions"),
        ((1, 2, 3, 4), (1, 1, 1), "as many strides"),
        ((1, -2, 3, 4), (1, 1, 1, 1), "lengths must not be negative"),
        ((1, 2, 3, 4), (1, 1, -1, 1), "negative strides"),
    ],
)
def test_descriptors_that_are_refused(lengths: tuple[int, ...], strides: tuple[int, ...], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        TensorDescriptor(DType.FP32, lengths, strides)


@pytest.mark.parametrize("values", [(1.5,), ("3",), (None,), 7, (float("inf"),), ((1, 2),), "12"])
def test_numbers_that_are_not_whole(values: object) -> None:
    with pytest.raises(ProblemError, match="stride must be whole numbers"):
        whole_numbers("stride", values)


def test_whole_numbers_of_other_types_become_ints() -> None:
    numbers = whole_numbers("stride", (np.int64(3), 2.0, True))
    assert numbers == (3, 2, 1)
    assert all(type(number) is int for number in numbers)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("fp32", DType.FP32), ("float32", DType.FP32), ("torch.float16", DType.FP16), ("HALF", DType.FP16),
        ("torch.bfloat16", DType.BF16), ("double", DType.FP64), (np.dtype("int8"), DType.INT8),
        (ml_dtypes.bfloat16, DType.BF16), (np.float16, DType.FP16), (DType.BF16, DType.BF16),
        (float, None), (int, None), ("fp8", None), (None, None), (np.dtype("complex64"), None),
    ],
)  # fmt: skip
def test_names_of_dtypes(name: object, dtype: DType | None) -> None:
    if dtype is None:
        with pytest.raises(ProblemError, match="unknown dtype"):
            DType.parse(name)
    else:
        assert DType.parse(name) is dtype


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype.is_float])
def test_epsilon_is_the_step_after_one(dtype: DType) -> None:
    one, step = np.ones((), dtype.numpy), np.array(dtype.epsilon, dtype.numpy)
    assert one + step != one
    assert float(one + step) == 1.0 + dtype.epsilon
    assert one + step / one.dtype.type(4) == one
    assert dtype.numpy.itemsize == dtype.itemsize
