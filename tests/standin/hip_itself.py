"""The stand-in itself: it notices what it must, and orders work as the rules say, as late as they allow."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from rocm.bindings import hip, hiprtc

from hipfind.device import hip_compiler
from hipfind.kernels.spec import HIP_SOURCES, KernelSpec
from tests.standin import Control

ERROR = hip.hipError_t
KIND = hip.hipMemcpyKind
COUNT = 64


@pytest.fixture
def raw() -> Control:
    """The stand-in without the checks that the device's tests make: here the device is used wrongly."""
    control = Control()
    control.clear_faults()
    control.violations()
    return control


def ok(answer: Any) -> Any:
    status, *results = answer
    assert status == ERROR.hipSuccess, status
    return results[0] if results else None


def malloc(nbytes: int) -> int:
    return int(ok(hip.hipMalloc(nbytes)))


def filled(value: float) -> int:
    address = malloc(4 * COUNT)
    ok(hip.hipMemcpy(address, np.full(COUNT, value, np.float32).ctypes.data, 4 * COUNT, KIND.hipMemcpyHostToDevice))
    return address


@pytest.fixture(scope="module")
def kernel() -> int:
    code = hip_compiler.compile_kernel(KernelSpec("cast.hip", "cast_from_fp32", (("ELEM", "fp32"),)), "gfx942")
    return int(ok(hip.hipModuleGetFunction(ok(hip.hipModuleLoadData(code)), "cast_from_fp32")))


def load_text(text: str, entry: str) -> int:
    """A kernel out of a text that includes the portable header."""
    header = (HIP_SOURCES / "portable.h").read_text()
    program = ok(hiprtc.hiprtcCreateProgram('#include "portable.h"\n' + text, "test.hip", 1, [header], ["portable.h"]))
    options = ["-DHF_HIP", "-DHF_BLOCK=64", "-std=c++17"]
    ok(hiprtc.hiprtcCompileProgram(program, len(options), options))
    code = bytearray(ok(hiprtc.hiprtcGetCodeSize(program)))
    ok(hiprtc.hiprtcGetCode(program, code))
    ok(hiprtc.hiprtcDestroyProgram(program.createRef()))
    return int(ok(hip.hipModuleGetFunction(ok(hip.hipModuleLoadData(bytes(code))), entry)))


def launch(kernel: int, x: int, y: int, stream: int = 0, grid: int = 1, block: int = 64) -> Any:
    arguments = (ctypes.c_int64(COUNT), ctypes.c_void_p(x), ctypes.c_void_p(y))
    return hip.hipModuleLaunchKernel(kernel, grid, 1, 1, block, 1, 1, 0, stream, None, arguments)


def peek(address: int) -> float:
    """The first number at a device address as it is now: waits for nothing."""
    host = np.zeros(1, np.float32)
    stream = int(ok(hip.hipStreamCreateWithFlags(hip.hipStreamNonBlocking)))
    ok(hip.hipMemcpyAsync(host.ctypes.data, address, 4, KIND.hipMemcpyDeviceToHost, stream))
    ok(hip.hipStreamSynchronize(stream))
    ok(hip.hipStreamDestroy(stream))
    return float(host[0])


def test_properties_lie_where_hip_python_reads_them(raw: Control) -> None:
    properties = ok(hip.hipGetDeviceProperties(0))
    assert raw._library.standin_properties_size() == properties.c_sizeof()
    assert (properties.name, properties.gcnArchName) == ("HIP stand-in 0", "gfx942:sramecc+:xnack-")
    assert (properties.warpSize, properties.multiProcessorCount, properties.l2CacheSize) == (64, 304, 4 << 20)
    assert (properties.maxGridSize[0], properties.pciBusID, properties.memoryBusWidth) == (2147483647, 1, 8192)


def test_new_memory_is_nan_and_useless_to_the_host(raw: Control) -> None:
    address = malloc(100)
    assert np.isnan(peek(address))
    assert address >> 52, "no address that a host can have"


def test_wrong_frees_and_copies_are_noticed(raw: Control) -> None:
    address = malloc(100)
    host = np.zeros(100, np.uint8)
    wrong = [
        lambda: hip.hipFree(address + 1),
        lambda: hip.hipFree(host.ctypes.data),
        lambda: hip.hipMemcpy(address, host.ctypes.data, 101, KIND.hipMemcpyHostToDevice),
        lambda: hip.hipMemcpy(address, host.ctypes.data, 10, KIND.hipMemcpyDeviceToHost),
        lambda: hip.hipMemcpy(host.ctypes.data, host.ctypes.data, 10, KIND.hipMemcpyDeviceToHost),
        lambda: hip.hipMemsetAsync(address + 60, 0, 41, 0),
    ]
    for use in wrong:
        assert use()[0] == ERROR.hipErrorInvalidValue
        assert raw.violations()
    ok(hip.hipFree(address))
    assert hip.hipFree(address)[0] == ERROR.hipErrorInvalidValue
    assert raw.violations()


def test_faults_come_when_they_are_due_and_once(raw: Control) -> None:
    raw.fail("hipMemGetInfo", 35, nth=2)
    answers = [hip.hipMemGetInfo()[0] for _ in range(3)]
    assert answers == [ERROR.hipSuccess, ERROR.hipErrorInsufficientDriver, ERROR.hipSuccess]
    assert str(hip.hipGetErrorName(ERROR.hipErrorInsufficientDriver)[1]) == "hipErrorInsufficientDriver"


def test_work_runs_when_somebody_waits_for_it(raw: Control, kernel: int) -> None:
    x, y, stream = filled(3.0), filled(0.0), int(ok(hip.hipStreamCreateWithFlags(hip.hipStreamNonBlocking)))
    event = ok(hip.hipEventCreate())
    ok(launch(kernel, x, y, stream))
    ok(hip.hipEventRecord(event, stream))
    assert peek(y) == 0.0
    assert hip.hipEventElapsedTime(event, event)[0] == ERROR.hipErrorNotReady
    ok(hip.hipEventSynchronize(event))
    assert peek(y) == 3.0
    ok(hip.hipEventElapsedTime(event, event))


def test_a_stream_waits_for_an_event_of_another(raw: Control, kernel: int) -> None:
    x, y, z = filled(5.0), filled(0.0), filled(0.0)
    first, second = (int(ok(hip.hipStreamCreateWithFlags(hip.hipStreamNonBlocking))) for _ in range(2))
    event = ok(hip.hipEventCreateWithFlags(hip.hipEventDisableTiming))
    ok(launch(kernel, x, y, first))
    ok(hip.hipEventRecord(event, first))
    ok(hip.hipStreamWaitEvent(second, event, 0))
    ok(launch(kernel, y, z, second))
    ok(hip.hipStreamSynchronize(second))
    assert peek(z) == 5.0
    assert hip.hipEventElapsedTime(event, event)[0] == ERROR.hipErrorInvalidHandle


@pytest.mark.parametrize(("flags", "expected"), [(0, 7.0), (hip.hipStreamNonBlocking, 0.0)])
def test_only_blocking_streams_are_ordered_with_the_default_stream(
    raw: Control, kernel: int, flags: int, expected: float
) -> None:
    x, y, z = filled(7.0), filled(0.0), filled(0.0)
    stream = int(ok(hip.hipStreamCreateWithFlags(flags)))
    ok(launch(kernel, x, y, 0))
    ok(launch(kernel, y, z, stream))
    ok(hip.hipStreamSynchronize(stream))
    assert peek(z) == expected


def test_arguments_by_pointers_and_packed_are_the_same(raw: Control, kernel: int) -> None:
    x, y = filled(2.0), filled(0.0)
    values = [ctypes.c_int64(COUNT), ctypes.c_void_p(x), ctypes.c_void_p(y)]
    pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))
    ok(hip.hipModuleLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, ctypes.addressof(pointers), None))
    values[0].value = values[1].value = values[2].value = 0  # they were copied
    ok(hip.hipDeviceSynchronize())
    assert peek(y) == 2.0
    answer = hip.hipModuleLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, None, (ctypes.c_int64(COUNT),))
    assert answer[0] == ERROR.hipErrorInvalidValue
    assert "packed arguments have 8 bytes, the kernel takes 24" in raw.violations()[0]


def test_shapes_that_hardware_refuses_are_refused(raw: Control, kernel: int) -> None:
    x, y = filled(1.0), filled(0.0)
    assert launch(kernel, x, y, grid=0)[0] == ERROR.hipErrorInvalidConfiguration
    assert launch(kernel, x, y, grid=1 << 26)[0] == ERROR.hipErrorInvalidConfiguration, "2^32 threads"
    assert launch(kernel, x, y, block=257)[0] == ERROR.hipErrorLaunchFailure, "more than the kernel was compiled for"
    code = hip_compiler.compile_kernel(KernelSpec("cast.hip", "cast_from_fp32", (("ELEM", "fp32"),)), "gfx90a")
    assert hip.hipModuleLoadData(code)[0] == ERROR.hipErrorNoBinaryForGpu
    assert hip.hipModuleLoadData(code[:80] + bytes([code[80] ^ 1]) + code[81:])[0] == ERROR.hipErrorInvalidImage


def test_what_a_capture_forbids_spoils_it(raw: Control, kernel: int) -> None:
    x, y = filled(1.0), filled(0.0)
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
    for flags, use, error in (
        (1, lambda stream: hip.hipStreamSynchronize(stream), ERROR.hipErrorStreamCaptureUnsupported),
        (1, lambda stream: hip.hipMalloc(8), ERROR.hipErrorStreamCaptureUnsupported),
        (0, lambda stream: launch(kernel, x, y), ERROR.hipErrorStreamCaptureImplicit),
    ):
        stream = int(ok(hip.hipStreamCreateWithFlags(flags)))
        ok(hip.hipStreamBeginCapture(stream, mode))
        ok(launch(kernel, x, y, stream))
        assert use(stream)[0] == error
        assert hip.hipStreamEndCapture(stream)[0] == ERROR.hipErrorStreamCaptureInvalidated
        ok(hip.hipStreamDestroy(stream))
    assert hip.hipStreamBeginCapture(0, mode)[0] == ERROR.hipErrorStreamCaptureUnsupported
    assert peek(y) == 0.0


MIRROR = """
HF_KERNEL(mirror, const float* x, float* y) {
    HF_SHARED float line[64];
    HF_FOR_GROUPS(g) {
        for (int phase = 0; phase < 3; ++phase) {
            HF_FOR_MEMBERS(t, 64) line[t] = phase == 0 ? x[64 * g + t] : line[t] + 1;
            BARRIER
            if (phase == 2) HF_FOR_MEMBERS(t, 64) y[64 * g + t] = line[63 - t] + (t == 5 ? line[0] : 0);
            BARRIER
        }
    }
}
"""


def mirrored(barrier: str) -> np.ndarray[Any, Any]:
    kernel = load_text(MIRROR.replace("BARRIER", barrier), "mirror")
    numbers = np.arange(3 * 64, dtype=np.float32)
    x, y = malloc(numbers.nbytes), malloc(numbers.nbytes)
    ok(hip.hipMemcpy(x, numbers.ctypes.data, numbers.nbytes, KIND.hipMemcpyHostToDevice))
    arguments = (ctypes.c_int64(numbers.size), ctypes.c_void_p(x), ctypes.c_void_p(y))
    ok(hip.hipModuleLaunchKernel(kernel, 2, 1, 1, 64, 1, 1, 0, 0, None, arguments))
    result = np.zeros_like(numbers)
    ok(hip.hipMemcpy(result.ctypes.data, y, numbers.nbytes, KIND.hipMemcpyDeviceToHost))
    return result.reshape(3, 64)


def test_groups_share_memory_from_barrier_to_barrier(raw: Control) -> None:
    lines = np.arange(3 * 64, dtype=np.float32).reshape(3, 64)
    expected = lines[:, ::-1] + 2
    expected[:, 5] += lines[:, 0] + 2
    assert np.array_equal(mirrored("HF_BARRIER();"), expected)
    assert not np.array_equal(mirrored(""), expected), "the barriers are needed"
