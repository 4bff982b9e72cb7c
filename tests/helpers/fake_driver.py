"""A GPU runtime in Python for tests of what all GPUs share: host memory, launches written down, faults on demand."""

from __future__ import annotations

import ctypes
import dataclasses
import struct
import threading

from hipfind.device.gpu_driver import Driver, GpuProperties, raise_error
from hipfind.errors import CompilerNotFoundError
from hipfind.kernels.spec import KernelSpec

MI300X = GpuProperties("amd", "gfx942", "MI300X", 304, 64, 65536, 2100, 4 << 20, 192 << 30, 0.0)
_current = threading.local()


@dataclasses.dataclass(frozen=True)
class Launch:
    function: int
    blocks: int
    threads: int
    shared: int
    stream: int
    words: tuple[int, ...]


class FakeDriver(Driver):
    """Every call but ``enter`` fails the test unless the device is current in the calling thread."""

    launch_end = 3

    def __init__(
        self,
        ordinal: int = 0,
        properties: GpuProperties = MI300X,
        memory_bytes: int = 1 << 30,
        compiler: str = "fake 1",
    ) -> None:
        self.name = f"fake:{ordinal}"
        self.ordinal = ordinal
        self.reported = properties
        self.memory_bytes = memory_bytes
        self.compiler = compiler
        self.options = ["-O3"]
        self.used = 0
        self.launches: list[Launch] = []
        self.room: dict[int, int] = {}  # dynamic shared memory of the loaded kernels
        self.compiled: list[KernelSpec] = []
        self.fills: list[tuple[int, int, int]] = []  # nbytes, value, stream
        self.log: list[str] = []
        self.foreign_streams: set[int] = set()
        self.capturing: set[int] = set()
        self.asked: list[int] = []  # streams, about whose device somebody asked
        self.faults: dict[str, int] = {}
        self.clock_ms = 0.0
        self._blocks: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self._events: dict[int, float] = {}
        self._handles = 100

    @staticmethod
    def current() -> int:
        return getattr(_current, "device", -1)

    @staticmethod
    def make_current(ordinal: int) -> None:
        _current.device = ordinal

    def enter(self) -> int | None:
        previous = self.current()
        self.make_current(self.ordinal)
        return None if previous == self.ordinal else previous

    def leave(self, previous: int) -> None:
        self.make_current(previous)

    def _call(self, name: str) -> None:
        assert self.current() == self.ordinal, f"{name} while another device is current"
        self.log.append(name)
        code = self.faults.get(name, 0)
        if code:
            raise_error(name, code, "fakeError", "injected")

    def _handle(self) -> int:
        self._handles += 1
        return self._handles

    def properties(self) -> GpuProperties:
        return self.reported

    def versions(self) -> dict[str, str]:
        return {"driver": "1"}

    def allocate(self, nbytes: int) -> int:
        self._call("allocate")
        if self.used + nbytes > self.memory_bytes:
            raise_error("allocate", 2, "fakeOutOfMemory", "out of memory")
        block = ctypes.create_string_buffer(nbytes)
        address = ctypes.addressof(block)
        self._blocks[address] = block
        self.used += nbytes
        return address

    def free(self, address: int) -> None:
        self._call("free")
        self.used -= len(self._blocks.pop(address))

    def memory_info(self) -> tuple[int, int]:
        return self.memory_bytes - self.used, self.memory_bytes

    def holds(self, address: int) -> bool:
        return any(start <= address < start + len(block) for start, block in self._blocks.items())

    def copy_in(self, address: int, host_address: int, nbytes: int) -> None:
        self._call("copy_in")
        ctypes.memmove(address, host_address, nbytes)

    def copy_out(self, host_address: int, address: int, nbytes: int) -> None:
        self._call("copy_out")
        ctypes.memmove(host_address, address, nbytes)

    def set_bytes(self, address: int, value: int, nbytes: int, stream: int) -> None:
        self._call("set_bytes")
        self.fills.append((nbytes, value, stream))
        ctypes.memset(address, value, nbytes)

    def compile(self, spec: KernelSpec) -> bytes:
        if not self.compiler:
            raise CompilerNotFoundError("no compiler here")
        self.compiled.append(spec)
        return b"code of " + spec.entry.encode()

    def compiler_version(self) -> str:
        if not self.compiler:
            raise CompilerNotFoundError("no compiler here")
        return self.compiler

    def compiler_options(self, spec: KernelSpec) -> list[str]:
        return self.options

    def load_function(self, code: bytes, entry: str, shared: int) -> int:
        self._call("load_function")
        assert code == b"code of " + entry.encode()
        handle = self._handle()
        self.room[handle] = shared
        return handle

    def launch(self, function: int, blocks: int, threads: int, shared: int, stream: int, arguments: int) -> None:
        self._call("launch")
        pointer, location, size, size_location, end = struct.unpack("5Q", ctypes.string_at(arguments, 40))
        assert (pointer, size, end) == (1, 2, self.launch_end)
        (nbytes,) = struct.unpack("Q", ctypes.string_at(size_location, 8))
        words = struct.unpack(f"{nbytes // 8}Q", ctypes.string_at(location, nbytes))
        assert shared <= self.room[function], "more dynamic shared memory than the kernel was loaded for"
        self.launches.append(Launch(function, blocks, threads, shared, stream, words))

    def create_stream(self) -> int:
        self._call("create_stream")
        return self._handle()

    def is_own_stream(self, stream: int) -> bool | None:
        self.asked.append(stream)
        return None if stream in self.capturing else stream not in self.foreign_streams

    def synchronize(self, stream: int) -> None:
        self._call("synchronize")

    def synchronize_device(self) -> None:
        self._call("synchronize_device")

    def create_event(self) -> int:
        self._call("create_event")
        return self._handle()

    def record_event(self, event: int, stream: int) -> None:
        self._call("record_event")
        self._events[event] = self.clock_ms

    def wait_event(self, event: int) -> None:
        self._call("wait_event")

    def elapsed_ms(self, start: int, stop: int) -> float:
        return self._events[stop] - self._events[start]

    def begin_capture(self, stream: int) -> None:
        self._call("begin_capture")
        self.capturing.add(stream)

    def end_capture(self, stream: int) -> int:
        self.capturing.discard(stream)
        self._call("end_capture")
        return self._handle()

    def launch_graph(self, graph: int, stream: int) -> None:
        self._call("launch_graph")

    def destroy_graph(self, graph: int) -> None:
        self._call("destroy_graph")
