"""What a vendor's runtime must offer for one GPU, and how its error codes become hipfind's errors.

``hip.py`` and ``cuda.py`` implement ``Driver``; everything that both devices do lives in ``gpu.py``. Handles and
addresses are plain ints. Every method but ``enter`` expects the driver's device to be current (see ``active``).
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import re
from typing import NoReturn

from hipfind.errors import DeviceError, KernelLaunchError, OutOfMemoryError
from hipfind.kernels.spec import KernelSpec

_OUT_OF_MEMORY = 2
_KERNEL_FAULTS = frozenset({700, 701, 702, 710, 714, 715, 716, 717, 718, 719, 720})
"""Illegal access, launch out of resources, time-out, assertion, ... The runtimes of both vendors use these numbers."""


@dataclasses.dataclass(frozen=True)
class GpuProperties:
    """What a runtime reports about a GPU. ``bandwidth_gbs`` is 0 where its figures do not give the true one."""

    vendor: str
    arch: str
    name: str
    compute_units: int
    wave_size: int
    lds_bytes: int
    clock_mhz: int
    l2_bytes: int
    memory_bytes: int
    bandwidth_gbs: float


class Driver(abc.ABC):
    """One GPU through its vendor's runtime. Stateless but for handles that live as long as the process."""

    name: str
    """How users address the device: "hip:0"."""

    # the current device --------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def enter(self) -> int | None:
        """Make this device current for the calling thread. Returns what ``leave`` needs, None when nothing changed."""

    @abc.abstractmethod
    def leave(self, previous: int) -> None:
        """Make current what was current before ``enter``."""

    def active(self) -> contextlib.AbstractContextManager[None]:
        """``enter`` and ``leave`` around a block."""
        return _Active(self)

    @abc.abstractmethod
    def properties(self) -> GpuProperties: ...

    @abc.abstractmethod
    def versions(self) -> dict[str, str]:
        """Driver and runtime versions by name."""

    # memory ----------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def allocate(self, nbytes: int) -> int:
        """Address of new memory. Raises OutOfMemoryError."""

    @abc.abstractmethod
    def free(self, address: int) -> None: ...

    @abc.abstractmethod
    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes."""

    @abc.abstractmethod
    def holds(self, address: int) -> bool:
        """Whether an address is of this device's memory."""

    @abc.abstractmethod
    def copy_in(self, address: int, host_address: int, nbytes: int) -> None: ...

    @abc.abstractmethod
    def copy_out(self, host_address: int, address: int, nbytes: int) -> None: ...

    @abc.abstractmethod
    def set_bytes(self, address: int, value: int, nbytes: int, stream: int) -> None:
        """Queue a fill; does not wait."""

    # kernels ---------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def compile(self, spec: KernelSpec) -> bytes:
        """Code object of a portable kernel for this GPU. Raises CompileError with the compiler's log."""

    @abc.abstractmethod
    def compiler_version(self) -> str:
        """Raises CompilerNotFoundError."""

    @abc.abstractmethod
    def compiler_options(self, spec: KernelSpec) -> list[str]:
        """What ``compile`` passes to the compiler, target and definitions included."""

    @abc.abstractmethod
    def load_function(self, code: bytes, entry: str, shared: int) -> int:
        """Load a code object and return one of its kernels, to be launched with ``shared`` bytes of dynamic shared
        memory; both stay loaded."""

    launch_end: int
    """The word that ends a launch's argument description."""

    @abc.abstractmethod
    def launch(self, function: int, blocks: int, threads: int, shared: int, stream: int, arguments: int) -> None:
        """Queue a launch with ``shared`` bytes of dynamic shared memory.

        ``arguments`` is the address of [1, address of packed arguments, 2, address of their size in bytes, launch_end],
        all read before this returns.
        """

    # streams, events, graphs -----------------------------------------------------------------------------------------

    @abc.abstractmethod
    def create_stream(self) -> int:
        """A stream that does not wait for the default stream."""

    @abc.abstractmethod
    def is_own_stream(self, stream: int) -> bool | None:
        """Whether the stream belongs to this device; None while it captures, where the runtime does not say then."""

    @abc.abstractmethod
    def synchronize(self, stream: int) -> None: ...

    @abc.abstractmethod
    def synchronize_device(self) -> None:
        """Wait for all streams."""

    @abc.abstractmethod
    def create_event(self) -> int: ...

    @abc.abstractmethod
    def record_event(self, event: int, stream: int) -> None: ...

    @abc.abstractmethod
    def wait_event(self, event: int) -> None: ...

    @abc.abstractmethod
    def elapsed_ms(self, start: int, stop: int) -> float: ...

    @abc.abstractmethod
    def begin_capture(self, stream: int) -> None: ...

    @abc.abstractmethod
    def end_capture(self, stream: int) -> int:
        """An executable graph of what was queued since ``begin_capture``."""

    @abc.abstractmethod
    def launch_graph(self, graph: int, stream: int) -> None: ...

    @abc.abstractmethod
    def destroy_graph(self, graph: int) -> None: ...


class _Active(contextlib.AbstractContextManager[None]):
    """A class because a generator would take as long as a launch."""

    __slots__ = ("_driver", "_previous")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __enter__(self) -> None:
        self._previous = self._driver.enter()

    def __exit__(self, *exception: object) -> None:
        if self._previous is not None:
            self._driver.leave(self._previous)


def text_of(error: Exception) -> str:
    """A binding's message on one line, without the marks of bytes that hip-python leaves in it: b'lib.so' -> lib.so."""
    return " ".join(re.sub(r"""'?b(['"])(.*?)\1'?""", r"\2", str(error)).split())


def raise_error(call: str, code: int, name: str, meaning: str) -> NoReturn:
    """Raise a runtime's error: OutOfMemoryError, KernelLaunchError where a kernel is to blame, else DeviceError."""
    got = f"{name} ({code}): {meaning}"
    if code == _OUT_OF_MEMORY:
        raise OutOfMemoryError(f"{call} failed", got=got)
    if code in _KERNEL_FAULTS:
        remedy = "the device may stay unusable for this process; start a new one"
        raise KernelLaunchError(f"{call} reports that a kernel failed", got=got, remedy=remedy)
    raise DeviceError(f"{call} failed", got=got)
