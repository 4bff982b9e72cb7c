"""A GPU as hipfind's device, whoever made it: memory, launches, timing, graphs, on top of a vendor's ``Driver``."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from hipfind.device import triton_compiler
from hipfind.device.base import Array, Device, Memory, RunGemm, RunKernel
from hipfind.device.gpu_blas import GpuBlas
from hipfind.device.gpu_driver import Driver
from hipfind.device.gpu_launch import Function, Launch, TritonLaunch, word
from hipfind.device.gpu_target import target_of
from hipfind.device.host_threads import usable_cores
from hipfind.device.kernel_cache import digest, kernel_cache
from hipfind.errors import (
    ArrayError,
    CompileError,
    DeviceError,
    OutOfMemoryError,
)
from hipfind.kernels.spec import BLOCK, AnyKernel, GemmSpec, KernelSpec, TritonSpec

_log = logging.getLogger("hipfind.device")

_BLOCKS_PER_UNIT = 32
"""Enough blocks for a few waves on every compute unit; the kernels' loops do the rest."""
_MIN_ALLOCATION = 64
_FLUSH_MIN = 16 << 20


class GpuMemory(Memory):
    """Device memory that is freed when nobody refers to it any more."""

    def __init__(self, driver: Driver, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes
        weakref.finalize(self, _free, driver, address).atexit = False  # the process's end frees it anyway


def _free(driver: Driver, address: int) -> None:
    try:
        with driver.active():
            driver.free(address)
    except DeviceError as error:
        _log.warning("memory at %#x was not freed: %s", address, error)


class GpuDevice(Device):
    """One GPU. Leaves the calling thread's current device as it found it."""

    ramp_s = 0.3
    """Work done once before the first timing, so that the clocks are up."""

    def __init__(self, driver: Driver, make_blas: Callable[[GpuDevice], GpuBlas]) -> None:
        self.name = driver.name
        self.driver = driver
        self._compiler = _compiler_version(driver)
        with driver.active():
            target = target_of(driver.properties())
        has_triton = target.has_matrix_cores and bool(triton_compiler.version())
        self.target = dataclasses.replace(target, kernels=bool(self._compiler), triton=has_triton)
        self._make_blas = make_blas
        self._blas: GpuBlas | None = None
        self._functions: dict[AnyKernel, Function] = {}
        self._own_streams: set[int] = set()
        self._events: list[tuple[int, int]] = []
        self._flush: Memory | None = None
        self._capture_stream = 0
        self._is_warm = False
        self._lock = threading.RLock()

    # memory ----------------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Memory:
        with self.driver.active():
            try:
                address = self.driver.allocate(max(nbytes, _MIN_ALLOCATION))
            except OutOfMemoryError as error:
                free, total = self.driver.memory_info()
                raise OutOfMemoryError(
                    f"{self.name} cannot allocate {nbytes} bytes",
                    got=f"{free} of {total} bytes free; {error.got}",
                    remedy="free memory on the device or set a workspace limit",
                ) from error
        return GpuMemory(self.driver, address, nbytes)

    def holds(self, address: int) -> bool:
        """Whether an address, of whosever memory, is on this device."""
        with self.driver.active():
            return self.driver.holds(address)

    def copy_in(self, address: int, array: Array) -> None:
        if array.nbytes:
            with self.driver.active():
                # Before: what is queued may still read the old bytes. After: a copy from pageable memory may return
                # while its last part is on the way, and streams of others do not wait for it.
                self.driver.synchronize_device()
                self.driver.copy_in(address, _host_address(array), array.nbytes)
                self.driver.synchronize_device()

    def copy_out(self, array: Array, address: int) -> None:
        if array.nbytes:
            with self.driver.active():
                self.driver.synchronize_device()
                self.driver.copy_out(_host_address(array), address, array.nbytes)

    def set_bytes(self, address: int, nbytes: int, value: int, stream: int = 0) -> None:
        if nbytes:
            self.check_stream(stream)
            with self.driver.active():
                self.driver.set_bytes(address, value, nbytes, stream)

    # kernels and products --------------------------------------------------------------------------------------------

    def prepare_kernel(self, spec: AnyKernel, params: tuple[int | float, ...], items: int) -> RunKernel:
        if isinstance(spec, TritonSpec):
            return TritonLaunch(self, spec, params, items)
        function = self.function(spec)
        if items == 0:
            return _nothing
        blocks = min(-(-items // BLOCK), self.target.compute_units * _BLOCKS_PER_UNIT)
        return Launch(self, spec.entry, function, blocks, [items], [word(value) for value in params])

    def function(self, spec: AnyKernel) -> Function:
        """The loaded kernel, compiled where the cache has none. Raises CompileError."""
        with self._lock:
            function = self._functions.get(spec)
            if function is None:
                code = kernel_cache().get(self._key(spec), lambda: self._compile(spec)).code
                function = self._functions[spec] = self._load(spec, code)
            return function

    def _key(self, spec: AnyKernel) -> str:
        if isinstance(spec, TritonSpec):
            return triton_compiler.cache_key(spec, self.target.arch)
        compiler = self._compiler or self.driver.compiler_version()
        return digest(compiler, *self.driver.compiler_options(spec), spec.content_hash)

    def _compile(self, spec: AnyKernel) -> bytes:
        if isinstance(spec, TritonSpec):
            return triton_compiler.compile_kernel(spec, self.target.arch)
        return self.driver.compile(spec)

    def _load(self, spec: AnyKernel, code: bytes) -> Function:
        with self.driver.active():
            if isinstance(spec, TritonSpec):
                kernel = triton_compiler.TritonCode.unpack(code)
                handle = self.driver.load_function(kernel.code, kernel.name, kernel.shared)
                return Function(handle, kernel.threads, kernel.shared)
            return Function(self.driver.load_function(code, spec.entry, 0), BLOCK, 0)

    def compile_ahead(self, specs: Sequence[AnyKernel]) -> None:
        triton_compiler.fill_cache(specs, self.target.arch)
        cache = kernel_cache()
        portable = {spec: self._key(spec) for spec in specs if isinstance(spec, KernelSpec)}
        missing = [(spec, key) for spec, key in portable.items() if not cache.has(key)]

        def compile_one(spec: KernelSpec, key: str) -> None:
            with contextlib.suppress(CompileError):  # whoever prepares the kernel will meet it
                cache.get(key, lambda: self.driver.compile(spec))

        if len(missing) > 1:
            with concurrent.futures.ThreadPoolExecutor(min(len(missing), usable_cores())) as pool:
                for running in [pool.submit(compile_one, *job) for job in missing]:
                    running.result()

    def prepare_gemm(self, spec: GemmSpec) -> RunGemm:
        return self.blas.prepare(spec)

    @property
    def blas(self) -> GpuBlas:
        """The device's BLAS, opened at first use. Raises DeviceError saying why there is none."""
        with self._lock:
            if self._blas is None:
                with self.driver.active():
                    self._blas = self._make_blas(self)
            return self._blas

    # streams and timing ----------------------------------------------------------------------------------------------

    def check_stream(self, stream: int) -> None:
        """Raise DeviceError for a stream of another device. One of which nobody can say whose it is passes."""
        if stream and stream not in self._own_streams:
            with self.driver.active():
                is_own = self.driver.is_own_stream(stream)
            if is_own:
                self._own_streams.add(stream)
            elif is_own is not None:
                raise DeviceError(f"a stream of {self.name} is needed", got=f"stream {stream:#x} of another device")

    def synchronize(self, stream: int = 0) -> None:
        self.check_stream(stream)
        with self.driver.active():
            self.driver.synchronize(stream)

    def time_ms(self, run: Callable[[], None], stream: int = 0) -> float:
        self.check_stream(stream)
        driver = self.driver
        with driver.active():
            self._warm_up()
            try:
                events = self._events.pop()
            except IndexError:
                events = driver.create_event(), driver.create_event()
            start, stop = events
            try:
                driver.record_event(start, stream)
                run()
                driver.record_event(stop, stream)
                driver.wait_event(stop)
                return driver.elapsed_ms(start, stop)
            finally:
                self._events.append(events)

    def _warm_up(self) -> None:
        """Keep the device busy for a while, once: an idle one runs at a fraction of its clock."""
        with self._lock:
            if self._is_warm:
                return
            self._is_warm = True
            end = time.monotonic() + self.ramp_s
            while time.monotonic() < end:
                self.flush_cache()
                self.driver.synchronize(0)

    def flush_cache(self, stream: int = 0) -> None:
        """Write twice the last-level cache. Queued in front of a timed run it also hides the cost of launching it."""
        with self._lock:
            if self._flush is None:
                self._flush = self._flush_buffer()
        self.set_bytes(self._flush.address, self._flush.nbytes, 0, stream)

    def _flush_buffer(self) -> Memory:
        """As large as wanted, or half of it, or half of that where memory is scarce."""
        nbytes = max(2 * self.target.l2_bytes, _FLUSH_MIN)
        while True:
            try:
                return self.allocate(nbytes)
            except OutOfMemoryError:
                if nbytes <= _FLUSH_MIN:
                    raise
                nbytes //= 2

    def capture(self, run: Callable[[int], None]) -> Callable[[int], None] | None:
        driver = self.driver
        with self._lock, driver.active():
            try:
                if not self._capture_stream:
                    self._capture_stream = driver.create_stream()
                    self._own_streams.add(self._capture_stream)
                driver.begin_capture(self._capture_stream)
                try:
                    run(self._capture_stream)
                finally:
                    replay = _Replay(self, driver.end_capture(self._capture_stream))
            except DeviceError as error:
                _log.info("%s cannot capture these steps in a graph: %s", self.name, error)
                return None
        return replay

    def environment(self) -> dict[str, str]:
        with self.driver.active():
            facts = self.driver.versions()
        facts["compiler"] = self._compiler or "none"
        try:
            facts["blas"] = self.blas.version
        except DeviceError:
            facts["blas"] = "none"
        return facts


def _compiler_version(driver: Driver) -> str:
    """Empty where there is no compiler, or a broken one: then the device still multiplies."""
    try:
        return driver.compiler_version()
    except CompileError as error:
        _log.info("%s compiles no kernels: %s", driver.name, error)
        return ""


class _Replay:
    """A captured graph; calling it queues all its work on a stream."""

    def __init__(self, device: GpuDevice, graph: int) -> None:
        self._device = device
        self._graph = graph
        weakref.finalize(self, _destroy_graph, device.driver, graph).atexit = False

    def __call__(self, stream: int) -> None:
        self._device.check_stream(stream)
        with self._device.driver.active():
            self._device.driver.launch_graph(self._graph, stream)


def _destroy_graph(driver: Driver, graph: int) -> None:
    try:
        with driver.active():
            driver.destroy_graph(graph)
    except DeviceError as error:
        _log.warning("a graph was not destroyed: %s", error)


def _host_address(array: Array) -> int:
    if not array.flags.c_contiguous:
        raise ArrayError("copies to and from a device need a C-contiguous array", got=f"strides {array.strides}")
    return int(array.ctypes.data)


def _nothing(addresses: Sequence[int], stream: int) -> None:
    """The launch of no items."""
