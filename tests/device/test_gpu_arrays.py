"""Arrays of GPU libraries as addresses: the array interface, DLPack, streams, and outputs of the same kind."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from hipfind.device import devices
from hipfind.device.arrays import ArraySlot, array_ref, current_stream, empty_like_kind
from hipfind.device.gpu import GpuDevice
from hipfind.device.gpu_arrays import is_outside_streams, stream_handle
from hipfind.errors import ArrayError
from hipfind.problem.dtypes import DType
from hipfind.problem.tensor import TensorDescriptor
from tests.helpers.fake_driver import FakeDriver

LENGTHS = (2, 3, 4, 5)
X = TensorDescriptor.packed(LENGTHS, "fp32")


class InterfaceArray:
    """Speaks the CUDA array interface for a numpy array's memory."""

    def __init__(self, array, **changes):
        self.array = array
        self.dtype = array.dtype
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, not array.flags.writeable),
            "strides": None if array.flags.c_contiguous else array.strides,
            "version": 3,
            **changes,
        }


class DlpackArray:
    """Speaks DLPack for a numpy array's memory, as if it lay on a GPU."""

    def __init__(self, array, kind=2, index=0):
        self.array = array
        self.device = (kind, index)
        self.waited = []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        self.waited.append(stream)
        return self.array.__dlpack__()


class LocatedArray(InterfaceArray):
    """Speaks both; only DLPack tells where it lies."""

    def __init__(self, array, kind, index):
        super().__init__(array)
        self.device = (kind, index)

    __dlpack_device__ = DlpackArray.__dlpack_device__

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


@pytest.fixture
def fake(monkeypatch):
    """A fake GPU that get_device knows as hip:0, and an array in its memory."""
    FakeDriver.make_current(-1)
    driver = FakeDriver()
    driver.name = "hip:0"
    device = GpuDevice(driver, lambda device: None)
    monkeypatch.setattr(devices, "_open", {"hip:0": device})
    return device


def array_on(device, shape=LENGTHS):
    memory = device.allocate(4 * int(np.prod(shape)))
    raw = (np.ctypeslib.ctypes.c_char * memory.nbytes).from_address(memory.address)
    array = np.ndarray(shape, np.float32, raw)
    return array, memory


def test_an_interface_array_is_read_where_it_lies(fake):
    array, _memory = array_on(fake)
    ref = array_ref(InterfaceArray(array), X, "hip:0", "x")
    assert (ref.address, ref.lengths, ref.strides, ref.dtype) == (array.ctypes.data, LENGTHS, X.strides, DType.FP32)
    assert not ref.is_readonly and ref.device == "hip:0"


def test_an_interface_arrays_strides_are_its_own(fake):
    array, _memory = array_on(fake, (2, 4, 5, 3))
    moved = array.transpose(0, 3, 1, 2)
    nhwc = TensorDescriptor.packed(LENGTHS, "fp32", "NHWC")
    assert array_ref(InterfaceArray(moved), nhwc, "hip:0", "x").strides == nhwc.strides
    with pytest.raises(ArrayError, match="x must have strides"):
        array_ref(InterfaceArray(moved), X, "hip:0", "x")


def test_memory_that_the_device_does_not_know_is_not_on_it(fake):
    foreign = np.zeros(LENGTHS, np.float32)
    with pytest.raises(ArrayError, match=r"x must be on hip:0 \(got an array on another device\)"):
        array_ref(InterfaceArray(foreign), X, "hip:0", "x")
    with pytest.raises(ArrayError, match=r"x must be on host \(got an array on a GPU\)"):
        array_ref(InterfaceArray(foreign), X, "host", "x")


@pytest.mark.parametrize(("kind", "name"), [(2, "cuda:1"), (13, "cuda:1"), (10, "hip:1")])
def test_dlpack_tells_the_device(kind, name):
    array = np.zeros(LENGTHS, np.float32)
    for made in (DlpackArray(array, kind, 1), LocatedArray(array, kind, 1)):
        assert array_ref(made, X, name, "x").address == array.ctypes.data
        with pytest.raises(ArrayError, match=rf"x must be on cuda:0 \(got an array on {name}\)"):
            array_ref(made, X, "cuda:0", "x")


def test_dlpack_arrays_are_read_with_their_strides_and_type():
    array = np.zeros((2, 4, 5, 3), np.float16).transpose(0, 3, 1, 2)
    ref = array_ref(DlpackArray(array), None, "cuda:0", "x")
    assert ref.lengths == LENGTHS and ref.dtype is DType.FP16
    assert ref.strides == tuple(stride // 2 for stride in array.strides)
    part = array[:, 1:]
    assert array_ref(DlpackArray(part), None, "cuda:0", "x").address == part.ctypes.data
    odd = array_ref(DlpackArray(np.zeros(LENGTHS, np.uint8)), None, "cuda:0", "x")
    assert odd.dtype is None


@pytest.mark.parametrize(("kind", "stream", "waiting"), [(2, 0, 1), (2, 77, 77), (10, 0, 0), (10, 77, 77)], ids=str)
def test_dlpack_makes_the_plans_stream_wait(kind, stream, waiting):
    array = DlpackArray(np.zeros(LENGTHS, np.float32), kind)
    name = "cuda:0" if kind == 2 else "hip:0"
    ArraySlot(X, name, "x").address(array, stream)
    assert array.waited == [waiting]


def test_arrays_of_other_devices_than_gpus_are_refused():
    with pytest.raises(ArrayError, match=r"DLPack device type 8, index 0"):
        array_ref(DlpackArray(np.zeros(LENGTHS, np.float32), kind=8), X, "cuda:0", "x")


def test_a_failing_dlpack_export_is_an_array_error():
    class Failing(DlpackArray):
        def __dlpack__(self, stream=None):
            raise BufferError("not today")

    with pytest.raises(ArrayError, match=r"cannot be shared through DLPack.*not today"):
        array_ref(Failing(np.zeros(LENGTHS, np.float32)), X, "cuda:0", "x")


def test_bad_interface_arrays_are_refused(fake):
    array, _memory = array_on(fake)
    cases = {
        "must be bf16": (InterfaceArray(array), TensorDescriptor.packed(LENGTHS, "bf16")),
        "must have lengths": (InterfaceArray(array[:1]), X),
        "masked": (InterfaceArray(array, mask=InterfaceArray(array)), X),
        "strides of whole elements": (InterfaceArray(array, strides=(240, 80, 20, 2)), X),
        "must start at a multiple": (InterfaceArray(array, data=(array.ctypes.data + 2, False)), X),
    }
    for message, (made, descriptor) in cases.items():
        with pytest.raises(ArrayError, match=message):
            array_ref(made, descriptor, "hip:0", "x")


def test_readonly_arrays_are_read_but_not_written(fake):
    array, _memory = array_on(fake)
    made = InterfaceArray(array, data=(array.ctypes.data, True))
    slot = ArraySlot(X, "hip:0", "y")
    assert slot.address(made) == array.ctypes.data
    with pytest.raises(ArrayError, match="must not be read-only"):
        slot.output_address(made)


def test_empty_arrays_have_no_address_to_check(fake):
    empty = InterfaceArray(np.zeros((0, 3, 4, 5), np.float32), data=(0, False))
    assert array_ref(empty, TensorDescriptor.packed((0, 3, 4, 5), "fp32"), "hip:0", "x").nbytes == 0


def test_host_arrays_are_refused_by_gpus():
    for array in (np.zeros(LENGTHS, np.float32), memoryview(b"1234")):
        with pytest.raises(ArrayError):
            array_ref(array, X, "cuda:0", "x")


@pytest.mark.parametrize(("told", "stream"), [(None, 0), (1, 0), (2, 2), (0x5000, 0x5000)])
def test_the_current_stream_is_the_interfaces(told, stream):
    assert current_stream(InterfaceArray(np.zeros(3), stream=told)) == stream


def test_arrays_without_streams_are_on_the_default_one():
    assert current_stream(np.zeros(3)) == 0
    assert current_stream(DlpackArray(np.zeros(3))) == 0
    assert current_stream([1, 2]) == 0


class StandardStream:
    def __cuda_stream__(self):
        return 0, 0x77


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (0, 0),
        (0x77, 0x77),
        (StandardStream(), 0x77),
        (types.SimpleNamespace(cuda_stream=0x77), 0x77),
        (types.SimpleNamespace(ptr=0x77), 0x77),
    ],
)
def test_streams_of_other_libraries_have_handles(stream, handle):
    assert stream_handle(stream) == handle


@pytest.mark.parametrize("stream", ["0", 1.0, -1, types.SimpleNamespace(ptr="x"), object()])
def test_what_is_no_stream_is_refused(stream):
    with pytest.raises(ArrayError, match="stream must be"):
        stream_handle(stream)


class Namespace(types.SimpleNamespace):
    """As much of the array API as is needed: it makes what it is asked for."""

    @staticmethod
    def empty(shape, dtype, device):
        made = DlpackArray(np.full(shape, 7, dtype))
        made.made_on = device
        return made


class StandardArray(DlpackArray):
    def __array_namespace__(self):
        return Namespace


def test_outputs_come_from_the_array_apis_library():
    example = StandardArray(np.zeros((1, 1), np.float16))
    example.device = (2, 3)
    made = empty_like_kind(example, X)
    assert made.array.shape == LENGTHS and made.array.dtype == np.float32 and made.made_on == (2, 3)
    assert is_outside_streams(example)
    for layout in ("NHWC", "gaps"):
        strides = (120, 40, 10, 2) if layout == "gaps" else TensorDescriptor.packed(LENGTHS, "fp32", layout).strides
        with pytest.raises(ArrayError, match=r"no output of this kind and layout can be made.*pass out="):
            empty_like_kind(example, TensorDescriptor(DType.FP32, LENGTHS, strides))


def test_outputs_come_from_cupy_on_the_examples_device(monkeypatch):
    entered = []

    class Device:
        def __enter__(self):
            entered.append(self)

        def __exit__(self, *exception):
            return None

    class CupyArray(InterfaceArray):
        device = Device()

    def empty(shape, dtype):
        assert entered
        return np.zeros(shape, dtype)

    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(ndarray=CupyArray, empty=empty))
    example = CupyArray(np.zeros(1, np.float32))
    for layout in ("NCHW", "NHWC"):
        descriptor = TensorDescriptor.packed(LENGTHS, "fp16", layout)
        made = empty_like_kind(example, descriptor)
        assert made.shape == LENGTHS and made.dtype == np.float16
        assert tuple(stride // 2 for stride in made.strides) == descriptor.strides
    assert not is_outside_streams(example)


def test_outputs_like_unknown_gpu_arrays_must_be_given():
    with pytest.raises(ArrayError, match="pass out="):
        empty_like_kind(InterfaceArray(np.zeros(1)), X)


def test_tensors_are_checked_each_time_however_fast():
    torch = pytest.importorskip("torch")
    slot = ArraySlot(X, "host", "x")
    storage = torch.zeros(2 * X.elements + 1)
    first = storage[: X.elements].view(LENGTHS)
    later = storage[X.elements : 2 * X.elements].view(LENGTHS)
    assert [slot.address(tensor) for tensor in (first, later, first)] == [
        tensor.data_ptr() for tensor in (first, later, first)
    ]
    assert slot.output_address(later) == later.data_ptr()
    wrong = [
        first.to(torch.float16),
        first.to(memory_format=torch.channels_last),
        first.view(3, 2, 4, 5),
        first.to("meta"),
        first._neg_view(),
        storage.view(torch.uint8)[2 : 2 + 4 * X.elements],
    ]
    for tensor in wrong:
        with pytest.raises(ArrayError):
            slot.address(tensor)
        with pytest.raises(ArrayError):
            slot.output_address(tensor)
