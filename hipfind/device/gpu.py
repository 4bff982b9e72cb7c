"""A GPU as hipfind's device, whoever made it: memory, launches, timing, graphs, on top of a vendor's ``Driver``."""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import struct
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from hipfind.device.base import Array, Device, Memory, RunGemm, RunKernel
from hipfind.device.gpu_blas import GpuBlas
from hipfind.device.gpu_driver import Driver
from hipfind.device.gpu_target import target_of
from hipfind.device.kernel_cache import digest, kernel_cache
from hipfind.errors import (
    ArrayError,
    CompileError,
    DeviceError,
    KernelLaunchError,
    OutOfMemoryError,
)
from hipfind.kernels.spec import BLOCK, GemmSpec, KernelSpec

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
        self.target = dataclasses.replace(target, kernels=bool(self._compiler))
        self._make_blas = make_blas
        self._blas: GpuBlas | None = None
        self._functions: dict[KernelSpec, int] = {}
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

    def prepare_kernel(self, spec: KernelSpec, params: tuple[int | float, ...], items: int) -> RunKernel:
        function = self._function(spec)
        if items == 0:
            return _nothing
        return _Launch(self, spec.entry, function, params, items)

    def _function(self, spec: KernelSpec) -> int:
        with self._lock:
            function = self._functions.get(spec)
            if function is None:
                compiler = self._compiler or self.driver.compiler_version()
                key = digest(compiler, *self.driver.compiler_options(spec), spec.content_hash)
                code = kernel_cache().get(key, lambda: self.driver.compile(spec)).code
                with self.driver.active():
                    function = self._functions[spec] = self.driver.load_function(code, spec.entry)
            return function

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


class _Launch:
    """A kernel bound to its parameters. Frames of packed arguments are reused; each is in one call at a time."""

    __slots__ = ("_blocks", "_device", "_entry", "_frames", "_function", "_head", "_tail")

    def __init__(
        self, device: GpuDevice, entry: str, function: int, params: tuple[int | float, ...], items: int
    ) -> None:
        self._device = device
        self._entry = entry
        self._function = function
        self._blocks = min(-(-items // BLOCK), device.target.compute_units * _BLOCKS_PER_UNIT)
        self._head = items
        self._tail = [_word(value) for value in params]
        self._frames: list[tuple[ctypes.Array[ctypes.c_uint64], int]] = []

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        self._device.check_stream(stream)
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._new_frame(len(addresses))
        words, location = frame
        words[_POINTERS : _POINTERS + len(addresses)] = list(addresses)
        driver = self._device.driver
        try:
            with driver.active():
                driver.launch(self._function, self._blocks, BLOCK, stream, location)
        except DeviceError as error:
            raise KernelLaunchError(f"kernel {self._entry} did not start on {self._device.name}: {error}") from error
        finally:
            self._frames.append(frame)

    def _new_frame(self, pointers: int) -> tuple[ctypes.Array[ctypes.c_uint64], int]:
        """[1, address of arguments, 2, address of their size, end, size, arguments]: items, pointers, parameters."""
        arguments = [self._head, *[0] * pointers, *self._tail]
        words = (ctypes.c_uint64 * (_ARGUMENTS + len(arguments)))()
        location = ctypes.addressof(words)
        description = [1, location + 8 * _ARGUMENTS, 2, location + 8 * _SIZE, self._device.driver.launch_end]
        words[:] = [*description, 8 * len(arguments), *arguments]
        return words, location


_SIZE = 5
_ARGUMENTS = 6
_POINTERS = 7
"""Places of the size, the first argument and the first pointer in a frame."""


def _word(value: int | float) -> int:
    """The 64 bits of an int64 or a double."""
    packed = struct.pack("=q" if isinstance(value, int) else "=d", value)
    return int.from_bytes(packed, "little")


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
