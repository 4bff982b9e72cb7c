"""NVIDIA GPUs through cuda-bindings: the CUDA driver as a ``Driver``, in the device's primary context.

The primary context is the one that the CUDA runtime, torch and cupy use, so memory and streams are theirs and ours.
"""

from __future__ import annotations

from typing import Any, NoReturn

from cuda.bindings import driver as cuda

from hipfind.device import cuda_compiler
from hipfind.device.gpu import GpuDevice
from hipfind.device.gpu_blas import GpuBlas
from hipfind.device.gpu_driver import Driver, GpuProperties, raise_error, text_of
from hipfind.errors import DeviceError
from hipfind.kernels.spec import KernelSpec

_SHARED_UNASKED = 48 << 10
"""Dynamic shared memory that a launch gets without asking for more first."""


def device_count() -> int:
    """How many NVIDIA GPUs this process sees. Raises DeviceError where the CUDA driver cannot say."""
    _call("cuInit", 0)
    return int(_call("cuDeviceGetCount"))


def open_device(ordinal: int) -> GpuDevice:
    """The NVIDIA GPU of this number. Raises DeviceError naming how many there are."""
    count = device_count()
    if not 0 <= ordinal < count:
        raise DeviceError(f"CUDA device {ordinal} does not exist", got=f"{count} CUDA devices")
    return GpuDevice(CudaDriver(ordinal), _make_blas)


def _make_blas(device: GpuDevice) -> GpuBlas:
    try:
        from hipfind.device.blas_cuda import make_blas
    except ImportError as error:
        remedy = "pip install 'hipfind[cuda]'"
        raise DeviceError("products on NVIDIA GPUs need nvmath-python", got=str(error), remedy=remedy) from error
    return make_blas(device)


def _call(name: str, *arguments: Any) -> Any:
    """Call the driver API; returns its one result, or all as a tuple, without the status."""
    try:
        status, *results = getattr(cuda, name)(*arguments)
    except RuntimeError as error:  # library or symbol missing
        remedy = "install NVIDIA's driver"
        raise DeviceError(f"the CUDA driver cannot be used: {name}", got=text_of(error), remedy=remedy) from error
    if status:
        _fail(name, status)
    return results[0] if len(results) == 1 else tuple(results)


def _fail(call: str, status: Any) -> NoReturn:
    _, meaning = cuda.cuGetErrorString(status)
    raise_error(call, int(status), status.name, meaning.decode() if meaning else "unknown error")


class CudaDriver(Driver):
    """One NVIDIA GPU."""

    launch_end = 0  # CU_LAUNCH_PARAM_END

    def __init__(self, ordinal: int) -> None:
        self.name = f"cuda:{ordinal}"
        self._ordinal = ordinal
        self._device = _call("cuDeviceGet", ordinal)
        self._context = _call("cuDevicePrimaryCtxRetain", self._device)
        self._context_address = int(self._context)
        self._properties = _properties(self._device)

    def enter(self) -> int | None:
        status, current = cuda.cuCtxGetCurrent()
        if status:
            _fail("cuCtxGetCurrent", status)
        previous = int(current)
        if previous == self._context_address:
            return None
        _call("cuCtxSetCurrent", self._context)
        # A thread without a context gets device 0's primary one from the CUDA runtime as well: it may stay.
        return None if previous == 0 and self._ordinal == 0 else previous

    def leave(self, previous: int) -> None:
        _call("cuCtxSetCurrent", previous)

    def properties(self) -> GpuProperties:
        return self._properties

    def versions(self) -> dict[str, str]:
        return {"driver": str(_call("cuDriverGetVersion"))}

    # memory ----------------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        return int(_call("cuMemAlloc", nbytes))

    def free(self, address: int) -> None:
        _call("cuMemFree", address)

    def memory_info(self) -> tuple[int, int]:
        free, total = _call("cuMemGetInfo")
        return int(free), int(total)

    def holds(self, address: int) -> bool:
        attribute = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        status, ordinal = cuda.cuPointerGetAttribute(attribute, address)
        return not status and int(ordinal) == self._ordinal

    def copy_in(self, address: int, host_address: int, nbytes: int) -> None:
        _call("cuMemcpyHtoD", address, host_address, nbytes)

    def copy_out(self, host_address: int, address: int, nbytes: int) -> None:
        _call("cuMemcpyDtoH", host_address, address, nbytes)

    def set_bytes(self, address: int, value: int, nbytes: int, stream: int) -> None:
        _call("cuMemsetD8Async", address, value, nbytes, stream)

    # kernels ---------------------------------------------------------------------------------------------------------

    def compile(self, spec: KernelSpec) -> bytes:
        return cuda_compiler.compile_kernel(spec, self._properties.arch)

    def compiler_version(self) -> str:
        return cuda_compiler.version()

    def compiler_options(self, spec: KernelSpec) -> list[str]:
        return cuda_compiler.options(spec, self._properties.arch)

    def load_function(self, code: bytes, entry: str, shared: int) -> int:
        function = _call("cuModuleGetFunction", _call("cuModuleLoadData", code), entry.encode())
        if shared > _SHARED_UNASKED:
            most = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _call("cuFuncSetAttribute", function, most, shared)
        return int(function)

    def launch(self, function: int, blocks: int, threads: int, shared: int, stream: int, arguments: int) -> None:
        (status,) = cuda.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared, stream, 0, arguments)
        if status:
            _fail("cuLaunchKernel", status)

    # streams, events, graphs -----------------------------------------------------------------------------------------

    def create_stream(self) -> int:
        return int(_call("cuStreamCreate", cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))

    def is_own_stream(self, stream: int) -> bool | None:
        # A capture allows this query alone; cuStreamGetDevice would fail and spoil it.
        if _call("cuStreamIsCapturing", stream):
            return None
        return int(_call("cuStreamGetDevice", stream)) == int(self._device)

    def synchronize(self, stream: int) -> None:
        _call("cuStreamSynchronize", stream)

    def synchronize_device(self) -> None:
        _call("cuCtxSynchronize")

    def create_event(self) -> int:
        return int(_call("cuEventCreate", cuda.CUevent_flags.CU_EVENT_DEFAULT))

    def record_event(self, event: int, stream: int) -> None:
        _call("cuEventRecord", event, stream)

    def wait_event(self, event: int) -> None:
        _call("cuEventSynchronize", event)

    def elapsed_ms(self, start: int, stop: int) -> float:
        return float(_call("cuEventElapsedTime", start, stop))

    def begin_capture(self, stream: int) -> None:
        _call("cuStreamBeginCapture", stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)

    def end_capture(self, stream: int) -> int:
        graph = _call("cuStreamEndCapture", stream)
        try:
            return int(_call("cuGraphInstantiate", graph, 0))
        finally:
            _call("cuGraphDestroy", graph)

    def launch_graph(self, graph: int, stream: int) -> None:
        _call("cuGraphLaunch", graph, stream)

    def destroy_graph(self, graph: int) -> None:
        _call("cuGraphExecDestroy", graph)


def _properties(device: Any) -> GpuProperties:
    def attribute(name: str) -> int:
        key = getattr(cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(_call("cuDeviceGetAttribute", key, device))

    # Twice the memory clock (double data rate) times the width of the bus.
    bandwidth = 2 * attribute("MEMORY_CLOCK_RATE") * 1e3 * attribute("GLOBAL_MEMORY_BUS_WIDTH") / 8
    return GpuProperties(
        vendor="nvidia",
        arch=f"sm_{attribute('COMPUTE_CAPABILITY_MAJOR')}{attribute('COMPUTE_CAPABILITY_MINOR')}",
        name=_call("cuDeviceGetName", 128, device).split(b"\0")[0].decode(),
        compute_units=attribute("MULTIPROCESSOR_COUNT"),
        wave_size=attribute("WARP_SIZE"),
        lds_bytes=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        clock_mhz=attribute("CLOCK_RATE") // 1000,
        l2_bytes=attribute("L2_CACHE_SIZE"),
        memory_bytes=int(_call("cuDeviceTotalMem", device)),
        bandwidth_gbs=bandwidth / 1e9,
    )
