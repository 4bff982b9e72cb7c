"""Arrays on the host as addresses: what is taken without copying, what is refused and why, what outputs are made."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

from hipfind.device.arrays import ArraySlot, array_ref, empty_like_kind
from hipfind.errors import ArrayError
from hipfind.problem.dtypes import DType
from hipfind.problem.tensor import TensorDescriptor
from tests.helpers.strategies import conv_problems

LENGTHS = (2, 3, 4, 5)
X = TensorDescriptor.packed(LENGTHS, "fp32")


def slot(descriptor: TensorDescriptor = X) -> ArraySlot:
    return ArraySlot(descriptor, "host", "x")


def zeros(dtype: Any = np.float32) -> Any:
    return np.zeros(LENGTHS, dtype)


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "fp16", "bf16", "int8", "int32"])
def test_numpy_arrays_are_found_again_without_a_check(dtype):
    descriptor = TensorDescriptor.packed(LENGTHS, dtype)
    one = slot(descriptor)
    arrays = [np.zeros(LENGTHS, descriptor.dtype.numpy) for _ in range(3)]
    for array in (*arrays, *arrays):
        assert one.address(array) == one.output_address(array) == array.ctypes.data


@given(problem=conv_problems(empty=False))
def test_a_made_output_fits_its_slot(problem):
    for role in problem.roles:
        descriptor = problem.tensor(role)
        if descriptor.overlaps_itself():
            continue
        one = slot(descriptor)
        for example in (np.zeros(1, np.float32), np.float32(3)):
            made, address = one.new(example)
            assert address == one.output_address(made) == made.ctypes.data
            made[...] = 1  # all of it is there
            ref = array_ref(made, descriptor, "host", role)
            assert (ref.lengths, ref.dtype) == (descriptor.lengths, descriptor.dtype)
            assert TensorDescriptor.of(made).span_bytes == descriptor.span_bytes


def test_outputs_without_gaps_own_no_more_than_their_elements():
    for layout in ("NCHW", "NHWC"):
        made = empty_like_kind(zeros(), TensorDescriptor.packed(LENGTHS, "bf16", layout))
        base = made if made.base is None else made.base
        assert base.nbytes == made.nbytes == 2 * 120


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: zeros(np.float16), "x must be fp32 .got fp16"),
        (lambda: zeros(np.uint8), "x must be fp32 .got uint8"),
        (lambda: zeros(ml_dtypes.bfloat16), "x must be fp32 .got bf16"),
        (lambda: zeros(np.dtype(np.float32).newbyteorder()), "byte order"),
        (lambda: np.zeros((2, 3, 20), np.float32), r"lengths \(2, 3, 4, 5\) .got \(2, 3, 20\)"),
        (lambda: np.zeros((2, 3, 5, 4), np.float32), "lengths"),
        (lambda: np.zeros((2, 4, 5, 3), np.float32).transpose(0, 3, 1, 2), r"strides \(60, 20, 5, 1\)"),
        (lambda: zeros()[::-1], "strides"),
        (lambda: np.zeros((4, 3, 4, 5), np.float32)[::2], "strides"),
        (lambda: np.ma.zeros(LENGTHS, np.float32), "masked"),
        (lambda: np.zeros(481, np.uint8)[1:].view(np.float32).reshape(LENGTHS), "multiple of its element size"),
        (lambda: np.zeros(LENGTHS, [("a", np.int16), ("b", np.float32)])["b"], "whole elements"),
        (lambda: zeros().tolist(), "must be an array .* .got list"),
        (lambda: None, "must be an array"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(make, message):
    array, one = make(), slot()
    for _ in range(2):
        with pytest.raises(ArrayError, match=message):
            one.address(array)
    good = zeros()
    assert one.address(good) == good.ctypes.data
    with pytest.raises(ArrayError, match=message):
        one.address(array)


def test_an_array_that_is_misaligned_is_refused_also_when_its_like_fitted():
    one, good = slot(), zeros()
    one.address(good)
    bad = np.zeros(481, np.uint8)[1:].view(np.float32).reshape(LENGTHS)
    with pytest.raises(ArrayError, match="multiple"):
        one.address(bad)


def test_strides_of_axes_of_length_1_do_not_matter():
    descriptor = TensorDescriptor.packed((2, 3, 1, 1), "fp32", "NHWC")
    array = np.zeros((2, 3, 1, 1), np.float32)
    other = np.ndarray((2, 3, 1, 1), np.float32, array, strides=(12, 4, 444, 4))
    one = slot(descriptor)
    assert one.address(array) == one.address(other) == array.ctypes.data


def test_read_only_arrays_are_read_but_not_written():
    array, one = zeros(), slot()
    one.output_address(array)
    array.flags.writeable = False
    assert one.address(array) == array.ctypes.data
    for _ in range(2):
        with pytest.raises(ArrayError, match="read-only"):
            one.output_address(array)


def test_empty_arrays_fit():
    descriptor = TensorDescriptor.packed((0, 3, 4, 5), "fp32")
    one = slot(descriptor)
    for array in (np.zeros((0, 3, 4, 5), np.float32), one.new(np.zeros(1))[0]):
        assert one.output_address(array) == array.ctypes.data
        assert array_ref(array, descriptor, "host", "x").nbytes == 0


def test_a_slot_remembers_a_bounded_number_of_layouts():
    descriptor = TensorDescriptor.packed((2, 3, 1, 1), "fp32")
    one, storage = slot(descriptor), np.zeros((2, 3), np.float32)
    for stride in range(0, 4000, 4):
        one.address(np.ndarray((2, 3, 1, 1), np.float32, storage, strides=(12, 4, stride, 4)))
    assert len(one._known) <= 32


def test_objects_with_an_array_interface_are_not_copied():
    array = zeros()

    class Holder:
        __array_interface__ = array.__array_interface__

    assert slot().address(Holder()) == array.ctypes.data
    buffer = (ctypes.c_float * 120)()
    view = np.ctypeslib.as_array(buffer).reshape(LENGTHS)
    assert slot().address(view) == ctypes.addressof(buffer)


def test_subclasses_of_numpys_array_fit(tmp_path):
    mapped = np.memmap(tmp_path / "data", np.float32, "w+", shape=LENGTHS)
    assert slot().output_address(mapped) == mapped.ctypes.data


def test_objects_with_dlpack_are_not_copied():
    array = zeros()

    class Capsule:
        def __dlpack__(self, **options: Any) -> Any:
            return array.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    assert slot().address(Capsule()) == array.ctypes.data


def test_a_workspace_may_have_any_type():
    ref = array_ref(np.zeros(100, np.uint8), None, "host", "workspace")
    assert ref.nbytes == 100 and ref.dtype is None


def test_host_arrays_are_refused_by_other_devices():
    with pytest.raises(ArrayError, match=r"x must be on hip:0 \(got an array on host\)"):
        ArraySlot(X, "hip:0", "x").address(zeros())


# torch ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_torch_tensors_are_not_copied_and_beget_torch_tensors(torch, dtype, layout):
    tensor = torch.zeros(LENGTHS, dtype=getattr(torch, dtype))
    if layout == "NHWC":
        tensor = tensor.to(memory_format=torch.channels_last)
    descriptor = TensorDescriptor.of(tensor)
    assert descriptor.layouts() == (layout,)
    one = slot(descriptor)
    assert one.address(tensor) == one.output_address(tensor) == tensor.data_ptr()
    made = one.new(tensor)[0]
    assert isinstance(made, torch.Tensor) and made.dtype == tensor.dtype and made.stride() == tensor.stride()
    wider = empty_like_kind(tensor, TensorDescriptor.packed(LENGTHS, "fp64"))
    assert wider.dtype == torch.float64


def test_torch_parameters_are_read(torch):
    parameter = torch.nn.Parameter(torch.zeros(LENGTHS))
    assert slot().address(parameter) == parameter.data_ptr()


def test_torch_tensors_without_plain_memory_are_refused(torch):
    one = slot()
    with pytest.raises(ArrayError):
        one.address(torch.zeros(LENGTHS, device="meta"))
    with pytest.raises(ArrayError):
        one.address(torch.zeros(LENGTHS).to_sparse())
    with pytest.raises(ArrayError, match="resolve_neg"):
        one.address(torch.zeros(LENGTHS, dtype=torch.complex64).conj().imag)


def test_int8_tensors_beget_the_output_type(torch):
    made = empty_like_kind(torch.zeros(LENGTHS, dtype=torch.int8), TensorDescriptor.packed(LENGTHS, DType.INT32))
    assert made.dtype == torch.int32
