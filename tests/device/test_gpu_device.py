"""What every GPU does the same, on a runtime in Python: launches, memory, streams, timing, graphs."""

from __future__ import annotations

import gc
import struct
import threading

import numpy as np
import pytest

from hipfind import settings
from hipfind.device.gpu import GpuDevice
from hipfind.errors import ArrayError, CompileError, DeviceError, KernelLaunchError, OutOfMemoryError
from hipfind.kernels.spec import BLOCK, GemmSpec, KernelSpec
from hipfind.problem.dtypes import DType
from tests.helpers.fake_driver import FakeDriver

CAST = KernelSpec("cast.hip", "cast_from_fp32", (("ELEM", "bf16"),))


def no_blas(device):
    raise DeviceError("no BLAS here")


@pytest.fixture
def driver():
    FakeDriver.make_current(-1)
    return FakeDriver()


@pytest.fixture
def cache(tmp_path):
    with settings.override(cache_dir=str(tmp_path)):
        yield tmp_path


@pytest.fixture
def device(driver, cache):
    made = GpuDevice(driver, no_blas)
    made.ramp_s = 0.0
    return made


def test_a_launch_packs_items_pointers_and_parameters(device, driver):
    run = device.prepare_kernel(CAST, (-5, 2.5, 2**62), items=1000)
    run([0x1000, 0x2000], 0)
    run([0x3000, 0x4000], 7)
    first, second = driver.launches
    assert struct.unpack("3q", struct.pack("3Q", *first.words[:3])) == (1000, 0x1000, 0x2000)
    assert struct.unpack("qdq", struct.pack("3Q", *first.words[3:])) == (-5, 2.5, 2**62)
    assert second.words[1:3] == (0x3000, 0x4000) and second.words[3:] == first.words[3:]
    assert (first.stream, second.stream) == (0, 7)
    assert first.threads == BLOCK


@pytest.mark.parametrize(
    ("items", "blocks"), [(1, 1), (BLOCK, 1), (BLOCK + 1, 2), (2**31 + 5, 304 * 32), (2**40, 304 * 32)]
)
def test_grids_cover_small_counts_and_stay_bounded(device, driver, items, blocks):
    device.prepare_kernel(CAST, (), items)([1, 2], 0)
    (launch,) = driver.launches
    assert launch.blocks == blocks
    assert launch.words[0] == items
    assert launch.blocks * launch.threads < 2**32  # HIP's limit of work items


def test_no_items_launch_nothing_but_compile(device, driver):
    device.prepare_kernel(CAST, (), 0)([1, 2], 0)
    assert driver.launches == [] and driver.compiled == [CAST]


def test_a_kernel_is_compiled_and_loaded_once(device, driver):
    for _ in range(3):
        device.prepare_kernel(CAST, (1,), 10)
    assert driver.compiled == [CAST]
    assert driver.log.count("load_function") == 1


def test_compiled_code_is_kept_on_disk_for_the_next_process(device, driver):
    device.prepare_kernel(CAST, (), 10)
    again = FakeDriver(1)
    GpuDevice(again, no_blas).prepare_kernel(CAST, (), 10)
    assert again.compiled == [] and again.log.count("load_function") == 1


@pytest.mark.parametrize("change", ["compiler", "options", "defines"])
def test_other_code_is_compiled_again(device, driver, change):
    device.prepare_kernel(CAST, (), 10)
    other = FakeDriver(1, compiler="fake 2" if change == "compiler" else "fake 1")
    spec = CAST
    if change == "options":
        other.options = ["-O2"]
    elif change == "defines":
        spec = KernelSpec("cast.hip", "cast_from_fp32", (("ELEM", "fp16"),))
    GpuDevice(other, no_blas).prepare_kernel(spec, (), 10)
    assert other.compiled == [spec]


def test_one_launch_object_serves_many_threads(device, driver):
    run = device.prepare_kernel(CAST, (7,), 10)
    barrier = threading.Barrier(8)

    def call(number):
        barrier.wait()
        for index in range(200):
            run([number, number + index * 1000], 0)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = sorted((launch.words[1], launch.words[2]) for launch in driver.launches)
    assert seen == sorted((number, number + index * 1000) for number in range(8) for index in range(200))


def test_a_failed_launch_names_the_kernel_and_the_next_one_works(device, driver):
    run = device.prepare_kernel(CAST, (), 10)
    driver.faults["launch"] = 1
    with pytest.raises(KernelLaunchError, match=r"cast_from_fp32 did not start on fake:0.*fakeError \(1\): injected"):
        run([1, 2], 0)
    driver.faults.clear()
    run([1, 2], 0)
    assert len(driver.launches) == 1


def test_a_kernel_that_failed_while_running_is_told_apart(device, driver):
    driver.faults["synchronize"] = 700
    with pytest.raises(KernelLaunchError, match=r"a kernel failed \(got fakeError \(700\)"):
        device.synchronize()
    driver.faults["synchronize"] = 1
    with pytest.raises(DeviceError) as caught:
        device.synchronize()
    assert not isinstance(caught.value, KernelLaunchError)


def clear(device, memory):
    device.set_bytes(memory.address, memory.nbytes, 0)


CALLS = {
    "allocate": lambda device: device.allocate(100),
    "copies": lambda device: device.as_numpy(device.allocate(4), np.float32, (1,)),
    "set_bytes": lambda device: clear(device, device.allocate(4)),
    "launch": lambda device: device.prepare_kernel(CAST, (), 5)([1, 2], 0),
    "synchronize": lambda device: device.synchronize(),
    "time_ms": lambda device: device.time_ms(lambda: None),
    "flush_cache": lambda device: device.flush_cache(),
    "capture": lambda device: device.capture(lambda stream: None)(0),
    "environment": lambda device: device.environment(),
}


@pytest.mark.parametrize("before", [-1, 0, 3])
@pytest.mark.parametrize("call", CALLS)
def test_the_current_device_is_restored(device, call, before):
    FakeDriver.make_current(before)
    CALLS[call](device)
    gc.collect()
    assert FakeDriver.current() == before


@pytest.mark.parametrize("fault", ["launch", "synchronize", "allocate", "set_bytes", "record_event"])
def test_the_current_device_is_restored_after_a_fault(device, driver, fault):
    run = device.prepare_kernel(CAST, (), 5)
    address = device.allocate(4)
    FakeDriver.make_current(3)
    driver.faults[fault] = 1
    calls = {
        "launch": lambda: run([1, 2], 0),
        "synchronize": device.synchronize,
        "allocate": lambda: device.allocate(4),
        "set_bytes": lambda: device.set_bytes(address.address, 4, 0),
        "record_event": lambda: device.time_ms(lambda: None),
    }
    with pytest.raises(DeviceError):
        calls[fault]()
    assert FakeDriver.current() == 3


def test_memory_holds_what_was_copied_and_is_freed(device, driver):
    memory = device.allocate(40)
    values = np.arange(10, dtype=np.float32)
    device.copy_in(memory.address, values)
    np.testing.assert_array_equal(device.as_numpy(memory, np.float32, (2, 5)), values.reshape(2, 5))
    device.set_bytes(memory.address, 20, 0xFF)
    assert np.isnan(device.as_numpy(memory, np.float32, (5,))).all()
    assert memory.nbytes == 40
    del memory
    gc.collect()
    assert driver.used == 0


def test_empty_allocations_have_addresses(device):
    assert device.allocate(0).address != 0
    assert device.allocate(0).nbytes == 0


def test_copies_wait_for_all_streams(device, driver):
    memory = device.allocate(4)
    driver.log.clear()
    device.copy_in(memory.address, np.zeros(1, np.float32))
    device.as_numpy(memory, np.float32, (1,))
    assert driver.log == ["synchronize_device", "copy_in", "synchronize_device", "synchronize_device", "copy_out"]


def test_copies_refuse_arrays_with_gaps(device):
    memory = device.allocate(400)
    gaps = np.zeros((10, 10), np.float32)[:, ::2]
    with pytest.raises(ArrayError, match="C-contiguous"):
        device.copy_in(memory.address, gaps)
    with pytest.raises(ArrayError, match="C-contiguous"):
        device.copy_out(gaps, memory.address)


def test_out_of_memory_names_the_sizes(device, driver):
    kept = device.allocate(1000)
    free = driver.memory_bytes - kept.nbytes
    with pytest.raises(OutOfMemoryError, match=f"allocate {2**30} bytes .got {free} of {2**30} bytes free"):
        device.allocate(2**30)


def test_a_failing_free_is_logged_and_goes_on(device, driver, caplog):
    memory = device.allocate(100)
    driver.faults["free"] = 700
    del memory
    gc.collect()
    assert "was not freed" in caplog.text


def test_streams_of_another_device_are_refused_before_anything_is_queued(device, driver):
    driver.foreign_streams.add(9)
    run = device.prepare_kernel(CAST, (), 5)
    memory = device.allocate(4)
    driver.fills.clear()
    calls = [
        lambda: run([1, 2], 9),
        lambda: device.set_bytes(memory.address, 4, 0, 9),
        lambda: device.synchronize(9),
        lambda: device.time_ms(lambda: None, 9),
        lambda: device.capture(lambda stream: None)(9),
    ]
    for call in calls:
        with pytest.raises(DeviceError, match="a stream of fake:0 is needed"):
            call()
    assert driver.launches == [] and driver.fills == [] and "launch_graph" not in driver.log


def test_times_are_of_events_around_the_run(device, driver):
    def run():
        driver.clock_ms += 2.5

    assert device.time_ms(run) == 2.5
    assert device.time_ms(run) == 2.5
    assert driver.log.count("create_event") == 2  # reused


def test_the_clock_is_ramped_up_once(device, driver):
    device.ramp_s = 0.02
    device.time_ms(lambda: None)
    fills = len(driver.fills)
    assert fills > 0
    device.time_ms(lambda: None)
    assert len(driver.fills) == fills


def test_the_flush_covers_the_last_level_cache_twice(device, driver):
    device.flush_cache(5)
    assert driver.fills == [(2 * device.target.l2_bytes, 0, 5)]
    assert device.target.l2_bytes == 256 << 20  # the cache behind the 4 MB that the runtime reports


def test_the_flush_takes_what_scarce_memory_leaves():
    driver = FakeDriver(memory_bytes=200 << 20)
    GpuDevice(driver, no_blas).flush_cache()
    ((nbytes, _, _),) = driver.fills
    assert 100 << 20 <= nbytes <= 200 << 20


def test_a_capture_replays_on_any_stream(device, driver):
    run = device.prepare_kernel(CAST, (), 5)
    replay = device.capture(lambda stream: run([1, 2], stream))
    (launch,) = driver.launches
    assert launch.stream != 0
    replay(0)
    replay(4)
    assert driver.log.count("launch_graph") == 2
    del replay
    gc.collect()
    assert driver.log.count("destroy_graph") == 1


def test_a_capture_of_ones_own_asks_nothing_about_its_stream(device, driver):
    run = device.prepare_kernel(CAST, (), 5)
    assert device.capture(lambda stream: run([1, 2], stream)) is not None
    assert driver.asked == []


def test_a_stream_that_others_capture_is_taken_as_it_is_until_somebody_can_say_whose_it_is(device, driver):
    run = device.prepare_kernel(CAST, (), 5)
    driver.capturing.add(6)
    driver.foreign_streams.add(6)
    run([1, 2], 6)
    run([1, 2], 6)
    assert [launch.stream for launch in driver.launches] == [6, 6]
    driver.capturing.clear()
    with pytest.raises(DeviceError, match="0x6 of another device"):
        run([1, 2], 6)


@pytest.mark.parametrize("fault", ["begin_capture", "end_capture", "launch"])
def test_what_cannot_be_captured_is_none(device, driver, fault):
    run = device.prepare_kernel(CAST, (), 5)
    driver.faults[fault] = 900
    assert device.capture(lambda stream: run([1, 2], stream)) is None
    if fault == "launch":
        assert driver.log[-2:] == ["end_capture", "destroy_graph"]  # the stream does not stay in capture


def test_environment_tells_versions_and_a_missing_blas(device):
    assert device.environment() == {"driver": "1", "compiler": "fake 1", "blas": "none"}
    with pytest.raises(DeviceError, match="no BLAS here"):
        device.prepare_gemm(GemmSpec(1, 1, 1, DType.FP32, DType.FP32, 1, 1, 1))


def test_a_gpu_without_a_compiler_says_so_and_still_multiplies(cache):
    device = GpuDevice(FakeDriver(compiler=""), no_blas)
    assert not device.target.kernels
    assert device.environment()["compiler"] == "none"
    with pytest.raises(CompileError, match="no compiler here"):
        device.prepare_kernel(CAST, (), 10)
    clear(device, device.allocate(4))
