"""Every call that the HIP device makes fails once: a typed error names the call and the status, and nothing is lost."""

from __future__ import annotations

import gc
import pathlib
from collections.abc import Iterator

import numpy as np
import pytest

from hipfind import settings
from hipfind.errors import CompileError, HipfindError, OutOfMemoryError
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.dtypes import DType
from tests.standin import Control
from tests.standin.conftest import open_device
from tests.standin.hip_device import Cast, cast, destroy, make_stream

RAISE = (
    "hipDeviceSynchronize",
    "hipDriverGetVersion",
    "hipEventCreate",
    "hipEventElapsedTime",
    "hipEventRecord",
    "hipEventSynchronize",
    "hipGetDevice",
    "hipGetDeviceCount",
    "hipGetDeviceProperties",
    "hipGraphLaunch",
    "hipMalloc",
    "hipMemcpy",
    "hipMemsetAsync",
    "hipModuleGetFunction",
    "hipModuleLaunchKernel",
    "hipModuleLoadData",
    "hipRuntimeGetVersion",
    "hipStreamGetDevice",
    "hipStreamSynchronize",
    "hipblasLtMatmul",
    "hiprtcCompileProgram",
    "hiprtcCreateProgram",
    "hiprtcGetCode",
    "hiprtcGetCodeSize",
)
"""Calls whose failure the caller must hear of."""

NO_GRAPH = (
    "hipGraphInstantiateWithFlags",
    "hipStreamBeginCapture",
    "hipStreamCreateWithFlags",
    "hipStreamEndCapture",
)
"""Without these the steps are run one by one instead of as a graph."""

TO_HIPBLAS = (
    "hipblasLtCreate",
    "hipblasLtGetVersion",
    "hipblasLtMatmulAlgoGetHeuristic",
    "hipblasLtMatmulDescCreate",
    "hipblasLtMatmulDescSetAttribute",
    "hipblasLtMatmulPreferenceCreate",
    "hipblasLtMatmulPreferenceDestroy",
    "hipblasLtMatmulPreferenceSetAttribute",
    "hipblasLtMatrixLayoutCreate",
    "hipblasLtMatrixLayoutSetAttribute",
)
"""Without these a product is hipBLAS's."""

TO_HIPBLASLT = ("hipblasCreate",)

NO_KERNELS = ("hiprtcVersion",)
"""Without these the device runs products only."""

RELEASES = (
    "hipFree",
    "hipGraphDestroy",
    "hipGraphExecDestroy",
    "hipblasLtMatmulDescDestroy",
    "hipblasLtMatrixLayoutDestroy",
    "hiprtcDestroyProgram",
)
"""Calls whose failure changes no result."""

HIPBLAS = ("hipblasGemmStridedBatchedEx", "hipblasSetStream")

LOST: dict[str, str] = {
    "hipFree": "memory",
    "hipGraphExecDestroy": "graph exec",
    "hipGraphDestroy": "graph",
    "hiprtcDestroyProgram": "program",
    "hipblasLtMatmulDescDestroy": "matmul description",
    "hipblasLtMatrixLayoutDestroy": "layout",
    "hipblasLtMatmulPreferenceDestroy": "preference",
}
"""What stays when its release fails."""

UNKNOWN = 12345


def everything(stream: int) -> bool:
    """Use all of a newly opened device; returns whether steps could be captured in a graph."""
    device = open_device(0)
    device.environment()
    job = Cast(device)
    device.set_bytes(job.y.address, job.y.nbytes, 0, stream)
    device.time_ms(lambda: job.run(stream), stream)
    assert job.is_done()
    product(device, stream)

    def steps(on: int) -> None:
        device.set_bytes(job.y.address, job.y.nbytes, 0xFF, on)
        job.run(on)

    replay = device.capture(steps)
    (replay or steps)(stream)
    device.synchronize(stream)
    assert job.is_done()
    return replay is not None


def product(device, stream: int) -> None:
    a, b = (np.random.default_rng(i).standard_normal((2, 8, 8)).astype(np.float32) for i in range(2))
    operands = [device.allocate(a.nbytes) for _ in range(3)]
    for memory, matrix in zip(operands, (a, b), strict=False):
        device.copy_in(memory.address, matrix)
    run = device.prepare_gemm(
        GemmSpec(8, 8, 8, DType.FP32, DType.FP32, 8, 8, 8, batch=2, stride_a=64, stride_b=64, stride_c=64)
    )
    run(*(memory.address for memory in operands), stream)
    device.synchronize(stream)
    assert np.allclose(device.as_numpy(operands[2], np.float32, (2, 8, 8)), a @ b, atol=1e-5)


@pytest.fixture
def stream(control: Control):
    made = make_stream()
    yield made
    control.clear_faults()
    destroy(made)


@pytest.fixture(autouse=True)
def compiles(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[None]:
    """Where a call to the compiler is to fail, there is no compiled kernel to be found."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if str(parameters.get("call", "hiprtc")).startswith("hiprtc"):
        with settings.override(cache_dir=str(tmp_path)):
            yield
    else:
        yield


def known_status(call: str) -> tuple[int, str]:
    if call.startswith("hiprtc"):
        return 11, "HIPRTC_ERROR_INTERNAL_ERROR"
    return (6, "HIPBLAS_STATUS_INTERNAL_ERROR") if call.startswith("hipblas") else (999, "hipErrorUnknown")


def test_the_list_of_calls_is_complete(control: Control, stream: int) -> None:
    before = {call: control.calls(call) for call in control.called()}
    assert everything(stream)
    control.fail("hipblasLtCreate", 1)
    product(open_device(0), stream)
    gc.collect()
    called = {call for call in control.called() if control.calls(call) > before.get(call, 0)}
    assert called == {*RAISE, *NO_GRAPH, *TO_HIPBLAS, *TO_HIPBLASLT, *NO_KERNELS, *RELEASES, *HIPBLAS, "kernel"}


@pytest.mark.parametrize("known", [True, False], ids=["known status", "unknown status"])
@pytest.mark.parametrize("call", RAISE)
def test_a_failure_is_an_error_that_names_call_and_status(
    control: Control, stream: int, call: str, known: bool
) -> None:
    code, name = known_status(call) if known else (UNKNOWN, str(UNKNOWN))
    control.lost = LOST.get(call)
    control.fail(call, code)
    with pytest.raises(HipfindError) as caught:
        everything(stream)
    assert call in str(caught.value) and name in str(caught.value)
    assert everything(stream), "the next device works"


@pytest.mark.parametrize("call", ["hiprtcGetProgramLog", "hiprtcGetProgramLogSize"])
def test_a_compilers_message_that_cannot_be_read_is_an_error(control: Control, call: str) -> None:
    control.fail(call, 11)
    with pytest.raises(CompileError, match=f"{call} failed .*HIPRTC_ERROR_INTERNAL_ERROR"):
        open_device(0).prepare_kernel(cast("quaternion"), (), 1)


@pytest.mark.parametrize("call", NO_GRAPH)
def test_what_cannot_be_captured_runs_step_by_step(control: Control, stream: int, call: str) -> None:
    control.lost = LOST.get(call)
    control.fail(call, known_status(call)[0])
    assert not everything(stream)
    assert everything(stream)


@pytest.mark.parametrize("call", TO_HIPBLAS)
def test_a_product_that_hipblaslt_fails_to_prepare_is_hipblass(control: Control, stream: int, call: str) -> None:
    control.lost = LOST.get(call)
    before = control.calls("hipblasGemmStridedBatchedEx")
    control.fail(call, known_status(call)[0])
    assert everything(stream)
    assert control.calls("hipblasGemmStridedBatchedEx") == before + 1


@pytest.mark.parametrize("call", TO_HIPBLASLT)
def test_hipblaslt_does_without_hipblas(control: Control, stream: int, call: str) -> None:
    control.fail(call, known_status(call)[0])
    assert everything(stream)


@pytest.mark.parametrize("call", NO_KERNELS)
def test_a_device_whose_compiler_fails_says_so_in_its_target(control: Control, stream: int, call: str) -> None:
    control.fail(call, known_status(call)[0])
    device = open_device(0)
    assert not device.target.kernels
    assert device.environment()["compiler"] == "none"
    product(device, stream)


@pytest.mark.parametrize("call", HIPBLAS)
def test_failures_of_hipblas_are_errors(control: Control, stream: int, call: str) -> None:
    device = open_device(0)
    control.fail("hipblasLtCreate", 1)
    control.fail(call, 6)
    with pytest.raises(HipfindError, match=f"{call} failed .*HIPBLAS_STATUS_INTERNAL_ERROR"):
        product(device, stream)
    product(device, stream)


@pytest.mark.parametrize("call", RELEASES)
def test_a_failing_release_is_logged_at_most(
    control: Control, stream: int, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    control.lost = LOST[call]
    control.fail(call, known_status(call)[0])
    assert everything(stream)
    gc.collect()
    assert all(call in record.getMessage() for record in caplog.records)
    caplog.clear()  # the errors in it refer to devices


def test_out_of_memory_in_any_allocation_is_its_own_error(control: Control, stream: int) -> None:
    for nth in range(1, 4):
        device = open_device(0)
        control.fail("hipMalloc", 2, nth)
        with pytest.raises(OutOfMemoryError, match="cannot allocate 512 bytes"):
            product(device, stream)
