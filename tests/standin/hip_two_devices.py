"""Two GPUs: each call reaches the right one, the caller's current device stays, threads do not disturb each other."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from rocm.bindings import hip as hip_python

from hipfind import settings
from hipfind.device.devices import get_device, list_devices
from hipfind.device.gpu import GpuDevice
from hipfind.errors import DeviceError
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.dtypes import DType
from tests.standin import Control
from tests.standin.conftest import open_device
from tests.standin.hip_device import Cast, cast, destroy, make_stream

EXTENT = 24
PRODUCT = GemmSpec(EXTENT, EXTENT, EXTENT, DType.FP32, DType.FP32, EXTENT, EXTENT, EXTENT)


def current() -> int:
    status, device = hip_python.hipGetDevice()
    assert not status
    return int(device)


@pytest.fixture(params=[0, 1])
def users_device(request: pytest.FixtureRequest) -> Iterator[int]:
    """The device that the caller has made current."""
    assert not hip_python.hipSetDevice(request.param)[0]
    yield request.param
    assert not hip_python.hipSetDevice(0)[0]


def operations(device: GpuDevice) -> dict[str, Callable[[], object]]:
    """Everything a device does, by name; each leaves nothing behind."""
    job = Cast(device)
    memory = [device.allocate(4 * EXTENT * EXTENT) for _ in range(3)]
    for one in memory:
        device.set_bytes(one.address, one.nbytes, 0)
    product = device.prepare_gemm(PRODUCT)
    return {
        "allocate": lambda: device.allocate(100),
        "copy in": lambda: device.copy_in(job.x.address, job.numbers),
        "copy out": job.is_done,
        "set bytes": lambda: device.set_bytes(job.y.address, 10, 0),
        "compile": lambda: device.prepare_kernel(cast("fp32"), (), 5),
        "launch": job.run,
        "prepare product": lambda: device.prepare_gemm(PRODUCT),
        "product": lambda: product(*(one.address for one in memory), 0),
        "synchronize": device.synchronize,
        "time": lambda: device.time_ms(job.run),
        "flush": device.flush_cache,
        "capture": lambda: device.capture(job.run)(0),
        "environment": device.environment,
    }


@pytest.mark.parametrize("ordinal", [0, 1])
def test_the_callers_current_device_stays(control: Control, users_device: int, ordinal: int) -> None:
    device = open_device(ordinal)
    assert current() == users_device
    for name, run in operations(device).items():
        run()
        assert current() == users_device, name
    device.synchronize()
    del device, run
    gc.collect()
    assert current() == users_device, "after memory was freed"


@pytest.mark.parametrize("ordinal", [0, 1])
def test_the_callers_current_device_stays_after_a_failure(control: Control, users_device: int, ordinal: int) -> None:
    device = open_device(ordinal)
    job = Cast(device)
    for call in ("hipMalloc", "hipMemcpy", "hipMemsetAsync", "hipModuleLaunchKernel", "hipDeviceSynchronize"):
        control.fail(call, 999)
        with pytest.raises(DeviceError, match=call):
            memory = device.allocate(8)
            device.set_bytes(memory.address, 8, 0)
            job.run()
            job.is_done()
        assert current() == users_device, call


@pytest.mark.parametrize("ordinal", [0, 1])
def test_memory_lies_on_its_device(control: Control, users_device: int, ordinal: int) -> None:
    memory = open_device(ordinal).allocate(100)
    status, attributes = hip_python.hipPointerGetAttributes(memory.address)
    assert not status and attributes.device == ordinal


def test_streams_of_the_other_device_are_refused_before_anything_happens(control: Control) -> None:
    assert not hip_python.hipSetDevice(1)[0]
    foreign = make_stream()
    assert not hip_python.hipSetDevice(0)[0]
    device = open_device(0)
    job, memory = Cast(device), device.allocate(4 * EXTENT * EXTENT)
    product = device.prepare_gemm(PRODUCT)
    replay = device.capture(job.run)
    assert replay is not None
    watched = ("hipModuleLaunchKernel", "hipMemsetAsync", "hipblasLtMatmul", "hipEventRecord", "hipGraphLaunch")
    before = [control.calls(name) for name in watched]
    uses: list[Callable[[], object]] = [
        lambda: job.run(foreign),
        lambda: device.set_bytes(memory.address, 4, 0, foreign),
        lambda: device.synchronize(foreign),
        lambda: device.time_ms(job.run, foreign),
        lambda: device.flush_cache(foreign),
        lambda: product(memory.address, memory.address, memory.address, foreign),
        lambda: replay(foreign),
    ]
    for use in uses:
        with pytest.raises(DeviceError, match="stream of hip:0 is needed"):
            use()
    assert [control.calls(name) for name in watched] == before
    device._flush = None
    destroy(foreign)


def work(device: GpuDevice, seed: int, rounds: int = 15) -> None:
    """Products, casts and fills on a stream of the thread's own, checked each time."""
    rng = np.random.default_rng(seed)
    with device.driver.active():
        stream = make_stream()
    job = Cast(device, 500 + seed)
    memory = [device.allocate(4 * EXTENT * EXTENT) for _ in range(3)]
    for _ in range(rounds):
        a, b = (rng.standard_normal((EXTENT, EXTENT)).astype(np.float32) for _ in range(2))
        device.copy_in(memory[0].address, a)
        device.copy_in(memory[1].address, b)
        device.set_bytes(job.y.address, job.y.nbytes, 0xFF, stream)
        device.prepare_gemm(PRODUCT)(*(one.address for one in memory), stream)
        job.run(stream)
        device.synchronize(stream)
        assert np.allclose(device.as_numpy(memory[2], np.float32, a.shape), a @ b, atol=1e-4)
        assert job.is_done()
    with device.driver.active():
        destroy(stream)


@pytest.mark.parametrize("ordinals", [(0, 1), (1, 1, 1), (0, 1, 0, 1)], ids=str)
def test_threads_on_one_and_on_several_devices(control: Control, ordinals: tuple[int, ...]) -> None:
    devices = {ordinal: open_device(ordinal) for ordinal in set(ordinals)}
    failures: list[BaseException] = []
    started = threading.Barrier(len(ordinals))

    def run(seed: int, ordinal: int) -> None:
        try:
            assert not hip_python.hipSetDevice(seed % 2)[0]
            started.wait()
            work(devices[ordinal], seed)
            assert current() == seed % 2, "the thread's current device changed"
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=item) for item in enumerate(ordinals)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    assert current() == 0


def test_memory_freed_while_another_device_is_current(control: Control) -> None:
    memory = [open_device(ordinal).allocate(100) for ordinal in (0, 1)]
    threading.Thread(target=memory.clear).start()
    deadline = threading.Event()
    for _ in range(100):
        gc.collect()
        if not control.live("memory"):
            break
        deadline.wait(0.01)
    assert control.live("memory") == 0


def test_devices_are_listed_and_found_by_name(control: Control) -> None:
    names = [info.name for info in list_devices() if info.name.startswith("hip")]
    assert names == ["hip:0", "hip:1"]
    assert [get_device(name).name for name in ("hip", "hip:0", "hip:1")] == ["hip:0", "hip:0", "hip:1"]
    with settings.override(device=""):
        assert get_device().name == "hip:0"
    with pytest.raises(DeviceError, match=r"HIP device 2 does not exist .*2 HIP devices"):
        get_device("hip:2")
