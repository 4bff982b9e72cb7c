"""Kernels that fail while they run, after which the device stays unusable."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest
from rocm.bindings import hip

from hipfind.errors import DeviceError, KernelLaunchError
from hipfind.kernels.spec import KernelSpec
from tests.standin import Control
from tests.standin.conftest import open_device
from tests.standin.hip_device import Cast, cast
from tests.standin.hip_itself import load_text, ok

FAULTS = {"hipErrorIllegalAddress": 700, "hipErrorLaunchFailure": 719, "hipErrorAssert": 710}


@pytest.fixture(autouse=True)
def control() -> Iterator[Control]:
    """The stand-in, whose devices work again afterwards. What a failed device could not release is lost."""
    control = Control()
    control.clear_faults()
    yield control
    control.revive()
    control.violations()


@pytest.mark.parametrize("name", FAULTS)
def test_a_failing_kernel_is_reported_when_it_is_waited_for(control: Control, name: str) -> None:
    job = Cast(open_device(0))
    control.fail("kernel", FAULTS[name])
    job.run()
    with pytest.raises(KernelLaunchError, match=rf"hipStreamSynchronize .*{name} \({FAULTS[name]}\)"):
        job.device.synchronize()
    with pytest.raises(KernelLaunchError, match=name):
        job.device.allocate(100)


@pytest.mark.parametrize("nth", [1, 2])
def test_a_failing_kernel_is_reported_by_the_timer(control: Control, nth: int) -> None:
    job = Cast(open_device(0))
    control.fail("kernel", 719, nth)
    with pytest.raises(KernelLaunchError, match="hipErrorLaunchFailure"):
        for _ in range(2):
            job.device.time_ms(job.run)


def test_a_failing_kernel_is_reported_by_a_copy_out(control: Control) -> None:
    job = Cast(open_device(0))
    control.fail("kernel", 700)
    job.run()
    with pytest.raises(KernelLaunchError, match="hipErrorIllegalAddress"):
        job.is_done()


@pytest.mark.parametrize("items", [128, 2000, 1 << 20])
def test_reading_and_writing_beside_an_allocation_is_an_illegal_access(items: int) -> None:
    device = open_device(0)
    x, y = device.allocate(400), device.allocate(200)
    device.copy_in(x.address, np.zeros(100, np.float32))
    device.prepare_kernel(cast("fp16"), (), items)([x.address, y.address], 0)
    with pytest.raises(KernelLaunchError, match="hipErrorIllegalAddress"):
        device.synchronize()


def test_memory_that_was_freed_is_an_illegal_access() -> None:
    device = open_device(0)
    job = Cast(device)
    address = job.x.address
    del job.x
    job.launch([address, job.y.address], 0)
    with pytest.raises(KernelLaunchError, match="hipErrorIllegalAddress"):
        device.synchronize()


def test_a_divergent_parameter_that_traps_is_a_launch_failure() -> None:
    device = open_device(0)
    memory = device.allocate(4096)
    spec = KernelSpec("strided_copy.hip", "strided_copy", (("ELEM", "uint32"),))
    segments = 0  # divides by it
    run = device.prepare_kernel(spec, (1, 1, 1, *[0] * 8, 1, segments), 1)
    run([memory.address, memory.address], 0)
    with pytest.raises(KernelLaunchError, match="hipErrorLaunchFailure"):
        device.synchronize()


def test_a_barrier_that_not_all_reach_is_a_launch_failure() -> None:
    kernel = load_text(
        """HF_KERNEL(uneven, float* y) {
            if (__builtin_amdgcn_workitem_id_x() < 32) HF_BARRIER();
            y[0] = 1;
        }""",
        "uneven",
    )
    memory = open_device(0).allocate(64)
    arguments = (ctypes.c_int64(64), ctypes.c_void_p(memory.address))
    ok(hip.hipModuleLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, None, arguments))
    assert hip.hipDeviceSynchronize()[0] == hip.hipError_t.hipErrorLaunchFailure


def test_a_kernel_that_cannot_start_is_named(control: Control) -> None:
    job = Cast(open_device(0))
    control.fail("hipModuleLaunchKernel", 701)
    with pytest.raises(KernelLaunchError, match=r"cast_from_fp32 .*hip:0.*hipErrorLaunchOutOfResources"):
        job.run()
    assert isinstance(job, Cast) and issubclass(KernelLaunchError, DeviceError)
    job.run()
    assert job.is_done(), "nothing was harmed"
