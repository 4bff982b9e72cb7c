"""AMD GPUs through hip-python (its packages under ``rocm.bindings``): the HIP runtime as a ``Driver``.

hip-python opens ROCm's libraries at the first call into them; one that is missing or fails is a DeviceError.
"""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

from rocm.bindings import hip

from hipfind.device import hip_compiler
from hipfind.device.gpu import GpuDevice
from hipfind.device.gpu_blas import GpuBlas
from hipfind.device.gpu_driver import Driver, GpuProperties, raise_error, text_of
from hipfind.errors import DeviceError
from hipfind.kernels.spec import KernelSpec


def device_count() -> int:
    """How many AMD GPUs this process sees. Raises DeviceError where the HIP runtime cannot say."""
    return int(_call("hipGetDeviceCount"))


def open_device(ordinal: int) -> GpuDevice:
    """The AMD GPU of this number. Raises DeviceError naming how many there are."""
    count = device_count()
    if not 0 <= ordinal < count:
        raise DeviceError(f"HIP device {ordinal} does not exist", got=f"{count} HIP devices")
    return GpuDevice(HipDriver(ordinal), _make_blas)


def _make_blas(device: GpuDevice) -> GpuBlas:
    try:
        from hipfind.device.blas_hip import make_blas
    except ImportError as error:
        remedy = "pip install rocm-bindings-libraries"
        raise DeviceError("products on AMD GPUs need ROCm's library bindings", got=str(error), remedy=remedy) from error
    return make_blas(device)


_NO_STATUS = (RuntimeError, ValueError)
"""hip-python's errors: the library or a symbol is missing, or the status is one that it does not know."""


def _call(name: str, *arguments: Any) -> Any:
    """Call the HIP API; returns its one result, or all as a tuple, without the status."""
    try:
        status, *results = getattr(hip, name)(*arguments)
    except _NO_STATUS as error:
        remedy = "install ROCm, or name its libraries' folder in ROCM_PATH"
        raise DeviceError(f"the HIP runtime cannot be used: {name}", got=text_of(error), remedy=remedy) from error
    if status:
        _fail(name, status)
    return results[0] if len(results) == 1 else tuple(results)


def _fail(call: str, status: Any) -> NoReturn:
    _, meaning = hip.hipGetErrorString(status)
    raise_error(call, int(status), status.name, str(meaning or "unknown error"))


class HipDriver(Driver):
    """One AMD GPU."""

    launch_end = 3  # HIP_LAUNCH_PARAM_END

    def __init__(self, ordinal: int) -> None:
        self.name = f"hip:{ordinal}"
        self._ordinal = ordinal
        self._properties = _properties(_call("hipGetDeviceProperties", ordinal))

    def enter(self) -> int | None:
        try:
            status, current = hip.hipGetDevice()
        except _NO_STATUS as error:
            raise DeviceError("hipGetDevice failed", got=text_of(error)) from error
        if status:
            _fail("hipGetDevice", status)
        if current == self._ordinal:
            return None
        _call("hipSetDevice", self._ordinal)
        return int(current)

    def leave(self, previous: int) -> None:
        _call("hipSetDevice", previous)

    def properties(self) -> GpuProperties:
        return self._properties

    def versions(self) -> dict[str, str]:
        return {"driver": str(_call("hipDriverGetVersion")), "runtime": str(_call("hipRuntimeGetVersion"))}

    # memory ----------------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        return int(_call("hipMalloc", nbytes))

    def free(self, address: int) -> None:
        _call("hipFree", address)

    def memory_info(self) -> tuple[int, int]:
        free, total = _call("hipMemGetInfo")
        return int(free), int(total)

    def holds(self, address: int) -> bool:
        status, attributes = hip.hipPointerGetAttributes(address)
        return not status and attributes.device == self._ordinal

    def copy_in(self, address: int, host_address: int, nbytes: int) -> None:
        _call("hipMemcpy", address, host_address, nbytes, hip.hipMemcpyKind.hipMemcpyHostToDevice)

    def copy_out(self, host_address: int, address: int, nbytes: int) -> None:
        _call("hipMemcpy", host_address, address, nbytes, hip.hipMemcpyKind.hipMemcpyDeviceToHost)

    def set_bytes(self, address: int, value: int, nbytes: int, stream: int) -> None:
        _call("hipMemsetAsync", address, value, nbytes, stream)

    # kernels ---------------------------------------------------------------------------------------------------------

    def compile(self, spec: KernelSpec) -> bytes:
        return hip_compiler.compile_kernel(spec, self._properties.arch)

    def compiler_version(self) -> str:
        return hip_compiler.version()

    def compiler_options(self, spec: KernelSpec) -> list[str]:
        return hip_compiler.options(spec, self._properties.arch)

    def load_function(self, code: bytes, entry: str, shared: int) -> int:  # AMD: a launch asks for all of the LDS
        return int(_call("hipModuleGetFunction", _call("hipModuleLoadData", code), entry))

    def launch(self, function: int, blocks: int, threads: int, shared: int, stream: int, arguments: int) -> None:
        try:
            (status,) = hip.hipModuleLaunchKernel(
                function, blocks, 1, 1, threads, 1, 1, shared, stream, None, arguments
            )
        except _NO_STATUS as error:
            raise DeviceError("hipModuleLaunchKernel failed", got=text_of(error)) from error
        if status:
            _fail("hipModuleLaunchKernel", status)

    # streams, events, graphs -----------------------------------------------------------------------------------------

    def create_stream(self) -> int:
        return int(_call("hipStreamCreateWithFlags", hip.hipStreamNonBlocking))

    def is_own_stream(self, stream: int) -> bool:
        return bool(_call("hipStreamGetDevice", stream) == self._ordinal)

    def synchronize(self, stream: int) -> None:
        _call("hipStreamSynchronize", stream)

    def synchronize_device(self) -> None:
        _call("hipDeviceSynchronize")

    def create_event(self) -> int:
        return int(_call("hipEventCreate"))

    def record_event(self, event: int, stream: int) -> None:
        _call("hipEventRecord", event, stream)

    def wait_event(self, event: int) -> None:
        _call("hipEventSynchronize", event)

    def elapsed_ms(self, start: int, stop: int) -> float:
        return float(_call("hipEventElapsedTime", start, stop))

    def begin_capture(self, stream: int) -> None:
        _call("hipStreamBeginCapture", stream, hip.hipStreamCaptureMode.hipStreamCaptureModeRelaxed)

    def end_capture(self, stream: int) -> int:
        graph = _call("hipStreamEndCapture", stream)
        try:
            return int(_call("hipGraphInstantiateWithFlags", graph, 0))
        finally:
            with contextlib.suppress(DeviceError):  # the result is good whether or not this was released
                _call("hipGraphDestroy", graph)

    def launch_graph(self, graph: int, stream: int) -> None:
        _call("hipGraphLaunch", graph, stream)

    def destroy_graph(self, graph: int) -> None:
        _call("hipGraphExecDestroy", graph)


def _properties(reported: Any) -> GpuProperties:
    return GpuProperties(
        vendor="amd",
        arch=_text(reported.gcnArchName).split(":")[0],  # without features, as in "gfx942:sramecc+:xnack-"
        name=_text(reported.name),
        compute_units=reported.multiProcessorCount,
        wave_size=reported.warpSize,
        lds_bytes=max(reported.sharedMemPerBlock, reported.sharedMemPerBlockOptin),
        clock_mhz=reported.clockRate // 1000,
        l2_bytes=reported.l2CacheSize,
        memory_bytes=reported.totalGlobalMem,
        # The memory clock that HIP reports is not the data rate: off by 2 with HBM3 and by 8 with GDDR6.
        bandwidth_gbs=0.0,
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
