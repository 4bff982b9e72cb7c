"""The HIP device on the stand-in: memory, launches, streams, timing, graphs, compile cache."""

from __future__ import annotations

import gc
import math
import pathlib

import ml_dtypes
import numpy as np
import pytest
from rocm.bindings import hip as hip_python

from hipfind import settings
from hipfind.device.gpu import BLOCK, GpuDevice
from hipfind.errors import ArrayError, CompileError, DeviceError, OutOfMemoryError
from hipfind.kernels.spec import KernelSpec
from hipfind.target import known
from tests.standin import Control

CASTS = {"fp64": np.float64, "fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}


def cast(dtype: str) -> KernelSpec:
    return KernelSpec("cast.hip", "cast_from_fp32", (("ELEM", dtype),))


def make_stream(flags: int = hip_python.hipStreamNonBlocking) -> int:
    status, stream = hip_python.hipStreamCreateWithFlags(flags)
    assert not status
    return int(stream)


def destroy(stream: int) -> None:
    assert not hip_python.hipStreamDestroy(stream)[0]


class Cast:
    """A cast of ``count`` numbers to fp16 with its operands."""

    def __init__(self, device: GpuDevice, count: int = 1000) -> None:
        self.device, self.count = device, count
        self.numbers = np.random.default_rng(count).standard_normal(count).astype(np.float32)
        self.x, self.y = device.allocate(4 * count), device.allocate(2 * count)
        device.copy_in(self.x.address, self.numbers)
        self.launch = device.prepare_kernel(cast("fp16"), (), count)

    def run(self, stream: int = 0) -> None:
        self.launch([self.x.address, self.y.address], stream)

    def is_done(self) -> bool:
        return np.array_equal(self.device.as_numpy(self.y, np.float16, (self.count,)), self.numbers.astype(np.float16))


# ---- what the device is ----------------------------------------------------------------------------------------------


def test_target_is_the_catalogues_with_what_the_runtime_reports(device: GpuDevice) -> None:
    catalogue = known("gfx942")
    assert (device.target.vendor, device.target.arch, device.target.wave_size) == ("amd", "gfx942", 64)
    assert device.target.name == "HIP stand-in 0"
    assert device.target.compute_units == catalogue.compute_units
    assert device.target.peak("bf16") == pytest.approx(catalogue.peak("bf16"))
    assert device.target.memory_bytes == 2 << 30


def test_environment_names_all_versions(device: GpuDevice) -> None:
    facts = device.environment()
    assert facts["driver"] == facts["runtime"] == "71526333"
    assert facts["compiler"] == "hiprtc 7.15"
    assert "hipBLASLt" in facts["blas"]


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 63, 64, 100_003])
def test_copies_bring_back_what_was_copied_in(device: GpuDevice, count: int) -> None:
    numbers = np.arange(count, dtype=np.int32)
    memory = device.allocate(numbers.nbytes)
    assert memory.address % 64 == 0
    device.copy_in(memory.address, numbers)
    assert np.array_equal(device.as_numpy(memory, np.int32, (count,)), numbers)


def test_empty_copies_and_fills_call_nothing(device: GpuDevice, control: Control) -> None:
    memory = device.allocate(0)
    before = [control.calls(name) for name in ("hipMemcpy", "hipMemsetAsync")]
    device.copy_in(memory.address, np.empty(0, np.float32))
    device.copy_out(np.empty((3, 0), np.float32), memory.address)
    device.set_bytes(memory.address, 0, 0)
    assert [control.calls(name) for name in ("hipMemcpy", "hipMemsetAsync")] == before


def test_part_of_an_allocation_is_filled(device: GpuDevice) -> None:
    memory = device.allocate(300)
    device.set_bytes(memory.address, 300, 7)
    device.set_bytes(memory.address + 100, 50, 0xFF)
    expected = np.full(300, 7, np.uint8)
    expected[100:150] = 0xFF
    assert np.array_equal(device.as_numpy(memory, np.uint8, (300,)), expected)


def test_copies_need_contiguous_arrays(device: GpuDevice) -> None:
    memory = device.allocate(400)
    with pytest.raises(ArrayError, match="C-contiguous"):
        device.copy_in(memory.address, np.zeros((10, 10), np.float32).T[1:])


def test_out_of_memory_names_the_sizes_and_costs_nothing(device: GpuDevice, control: Control) -> None:
    held = device.allocate(1 << 30)
    with pytest.raises(OutOfMemoryError, match=r"3221225472 bytes .*1073741824 of 2147483648 bytes free") as caught:
        device.allocate(3 << 30)
    assert "hipErrorOutOfMemory" in str(caught.value)
    assert control.live("memory") == 1
    assert device.allocate(1 << 29).nbytes == held.nbytes // 2


def test_memory_is_freed_when_nobody_refers_to_it(device: GpuDevice, control: Control) -> None:
    kept = [device.allocate(1000) for _ in range(3)]
    assert control.live("memory") == 3
    del kept[1:]
    gc.collect()
    assert control.live("memory") == 1


# ---- kernels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", CASTS)
def test_casts_round_as_numpy_does(device: GpuDevice, dtype: str) -> None:
    numbers = np.concatenate([np.random.default_rng(1).standard_normal(5000) * 10.0**k for k in range(-8, 9)])
    numbers = np.append(numbers, [0.0, -0.0, np.inf, -np.inf, np.nan, 65519.0, 65520.0]).astype(np.float32)
    x, y = device.allocate(numbers.nbytes), device.allocate(8 * numbers.size)
    device.copy_in(x.address, numbers)
    device.prepare_kernel(cast(dtype), (), numbers.size)([x.address, y.address], 0)
    with np.errstate(over="ignore"):
        expected = numbers.astype(CASTS[dtype])
    assert np.array_equal(device.as_numpy(y, CASTS[dtype], numbers.shape), expected, equal_nan=True)


def test_one_launch_covers_more_items_than_its_grid(device: GpuDevice) -> None:
    count = device.target.compute_units * 32 * BLOCK + 12_345
    wide = Cast(device, count)
    wide.run()
    assert wide.is_done()


def test_parameters_arrive_in_order(device: GpuDevice) -> None:
    source = np.arange(6 * 7 * 8 * 9, dtype=np.uint32).reshape(6, 7, 8, 9)
    wanted = source[::2, ::-1, 1:5].transpose(0, 3, 1, 2)  # [3, 9, 7, 4]
    x, y = device.allocate(source.nbytes), device.allocate(wanted.size * 4)
    device.copy_in(x.address, source)
    strides = [stride // 4 for stride in wanted.strides]
    packed = [stride // 4 for stride in np.empty(wanted.shape, np.uint32).strides]
    first = (wanted.__array_interface__["data"][0] - source.__array_interface__["data"][0]) // 4
    spec = KernelSpec("strided_copy.hip", "strided_copy", (("ELEM", "uint32"),))
    items = math.prod(wanted.shape)
    run = device.prepare_kernel(spec, (*wanted.shape[1:], *strides, *packed, 1, wanted.shape[3]), items)
    run([x.address + 4 * first, y.address], 0)
    assert np.array_equal(device.as_numpy(y, np.uint32, wanted.shape), wanted)


def test_no_items_launch_nothing(device: GpuDevice, control: Control) -> None:
    before = control.calls("hipModuleLaunchKernel")
    device.prepare_kernel(cast("fp32"), (), 0)([0, 0], 0)
    assert control.calls("hipModuleLaunchKernel") == before


def test_a_kernel_that_does_not_compile_raises_the_compilers_message(device: GpuDevice, cache: pathlib.Path) -> None:
    with pytest.raises(CompileError, match="HIPRTC_ERROR_COMPILATION") as caught:
        device.prepare_kernel(KernelSpec("cast.hip", "cast_from_fp32", (("ELEM", "quaternion"),)), (), 1)
    assert "quaternion" in caught.value.log
    assert "--offload-arch=gfx942" in str(caught.value)
    assert not list(cache.rglob("*.*"))


def test_an_entry_that_is_not_in_the_source_is_an_error(device: GpuDevice, cache: pathlib.Path) -> None:
    with pytest.raises(DeviceError, match=r"hipModuleGetFunction failed .*hipErrorNotFound"):
        device.prepare_kernel(KernelSpec("cast.hip", "cast_to_fp8", (("ELEM", "fp16"),)), (), 1)


def test_code_is_compiled_once_for_all_devices_and_processes(
    device: GpuDevice, control: Control, cache: pathlib.Path
) -> None:
    before = control.calls("hiprtcCompileProgram")
    device.prepare_kernel(cast("fp16"), (), 1)
    device.prepare_kernel(cast("fp16"), (), 2)
    type(device)(device.driver, device._make_blas).prepare_kernel(cast("fp16"), (), 3)
    assert control.calls("hiprtcCompileProgram") == before + 1


@pytest.mark.parametrize("damage", [lambda code: code[: len(code) // 2], lambda code: b"", lambda code: code[::-1]])
def test_damaged_cache_entries_are_built_again(
    device: GpuDevice, control: Control, cache: pathlib.Path, damage
) -> None:
    device.prepare_kernel(cast("fp16"), (), 1)
    (entry,) = [path for path in cache.rglob("*") if path.is_file()]
    entry.write_bytes(damage(entry.read_bytes()))
    before = control.calls("hiprtcCompileProgram")
    with settings.override(cache_dir=str(cache / ".." / cache.name)):  # the same folder as a new process sees it
        fresh = type(device)(device.driver, device._make_blas)
        fresh.prepare_kernel(cast("fp16"), (), 1)
    assert control.calls("hiprtcCompileProgram") == before + 1


# ---- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [0, hip_python.hipStreamNonBlocking])
def test_work_runs_on_the_callers_stream(device: GpuDevice, flags: int) -> None:
    stream = make_stream(flags)
    job = Cast(device)
    device.set_bytes(job.y.address, job.y.nbytes, 0, stream)
    job.run(stream)
    device.synchronize(stream)
    assert job.is_done()
    destroy(stream)


def test_a_copy_out_waits_for_every_stream(device: GpuDevice) -> None:
    stream = make_stream()
    job = Cast(device)
    job.run(stream)
    assert job.is_done()
    destroy(stream)


def test_a_copy_in_waits_for_work_that_still_reads(device: GpuDevice) -> None:
    stream = make_stream()
    job = Cast(device)
    job.run(stream)
    device.copy_in(job.x.address, np.zeros_like(job.numbers))
    assert job.is_done()
    destroy(stream)


def test_a_stream_that_does_not_exist_is_an_error_before_anything_launches(device: GpuDevice, control: Control) -> None:
    stream = make_stream()
    destroy(stream)
    job = Cast(device)
    before = control.calls("hipModuleLaunchKernel")
    with pytest.raises(DeviceError, match="hipErrorInvalidHandle"):
        job.run(stream)
    assert control.calls("hipModuleLaunchKernel") == before
    assert all("is not alive" in line for line in control.violations())


# ---- timing and graphs -----------------------------------------------------------------------------------------------


def test_times_are_those_of_the_devices_events(device: GpuDevice, control: Control) -> None:
    job = Cast(device, 200_000)
    small, large = Cast(device, 10), Cast(device, 2_000_000)
    times = [device.time_ms(job.run) for _ in range(3)]
    assert all(0.0 < time < 10_000.0 for time in times)
    assert min(device.time_ms(large.run) for _ in range(3)) > min(device.time_ms(small.run) for _ in range(3))
    assert job.is_done()
    assert control.live("event") <= 2 * (1 + len(times))


def test_timing_needs_no_new_event_each_time(device: GpuDevice, control: Control) -> None:
    job = Cast(device)
    device.time_ms(job.run)
    before = control.live("event")
    for _ in range(10):
        device.time_ms(job.run)
    assert control.live("event") == before


def test_a_failing_run_leaves_the_timer_usable(device: GpuDevice) -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        device.time_ms(fail)
    job = Cast(device)
    assert device.time_ms(job.run) > 0.0


def test_the_flush_writes_more_than_the_last_level_cache(device: GpuDevice, control: Control) -> None:
    device.flush_cache()
    device.flush_cache()
    assert control.calls("hipMalloc") >= 1
    assert device._flush is not None
    assert device._flush.nbytes >= device.target.l2_bytes
    device.synchronize()
    device._flush = None


def test_a_graph_replays_its_steps_on_any_stream(device: GpuDevice, control: Control) -> None:
    job, stream = Cast(device), make_stream()

    def steps(on: int) -> None:
        device.set_bytes(job.y.address, job.y.nbytes, 0, on)
        job.run(on)

    replay = device.capture(steps)
    assert replay is not None
    assert not job.is_done(), "a capture runs nothing"
    for on in (0, stream):
        device.set_bytes(job.y.address, job.y.nbytes, 0xFF)
        device.synchronize()
        replay(on)
        device.synchronize(on)
        assert job.is_done()
    destroy(stream)
    del replay, steps


@pytest.mark.parametrize("is_known", [False, True])
def test_work_on_a_stream_that_the_caller_captures_is_in_the_callers_graph(device: GpuDevice, is_known: bool) -> None:
    job, stream = Cast(device), make_stream()
    job.run(stream if is_known else 0)
    device.synchronize(stream if is_known else 0)
    device.set_bytes(job.y.address, job.y.nbytes, 0xFF)
    device.synchronize()
    assert not hip_python.hipStreamBeginCapture(stream, hip_python.hipStreamCaptureMode.hipStreamCaptureModeGlobal)[0]
    job.run(stream)
    status, graph = hip_python.hipStreamEndCapture(stream)
    assert not status
    assert not job.is_done(), "a capture runs nothing"
    status, executable = hip_python.hipGraphInstantiateWithFlags(graph, 0)
    assert not status
    assert not hip_python.hipGraphLaunch(executable, stream)[0]
    device.synchronize(stream)
    assert job.is_done()
    assert not hip_python.hipGraphExecDestroy(executable)[0] and not hip_python.hipGraphDestroy(graph)[0]
    destroy(stream)


def test_steps_that_cannot_be_captured_give_no_graph_and_do_no_harm(device: GpuDevice) -> None:
    job, memory = Cast(device), device.allocate(4)

    def synchronizing(on: int) -> None:
        job.run(on)
        device.synchronize(on)

    def failing(on: int) -> None:
        raise DeviceError("cannot be queued")

    assert device.capture(synchronizing) is None
    assert device.capture(failing) is None
    replay = device.capture(lambda on: device.set_bytes(memory.address, 4, 5, on))
    assert replay is not None
    replay(0)
    assert device.as_numpy(memory, np.uint8, (4,)).tolist() == [5] * 4
