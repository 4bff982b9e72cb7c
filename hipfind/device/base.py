"""The device protocol: allocate, copy, compile, launch, multiply, time. One short file a device implements it.

Addresses are plain ints, sizes are bytes, times are milliseconds. ``stream`` is an opaque int handle; 0 is the
device's default stream. Devices raise only hipfind.errors.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hipfind.kernels.spec import AnyKernel, GemmSpec
from hipfind.target import Target

Array: TypeAlias = npt.NDArray[Any]
RunGemm: TypeAlias = Callable[[int, int, int, int], None]
"""Prepared product: called with the addresses of A, B, C and a stream."""
RunKernel: TypeAlias = Callable[[Sequence[int], int], None]
"""Prepared launch: called with the operands' addresses and a stream."""


class Memory(abc.ABC):
    """An allocation that frees itself when it is no longer referenced."""

    address: int
    nbytes: int


class Device(abc.ABC):
    """One device. Safe from several threads; holds no problem, no solver and no DB."""

    name: str
    """How users address it: "host", "hip:0", "cuda:1"."""
    target: Target

    @abc.abstractmethod
    def allocate(self, nbytes: int) -> Memory:
        """New memory, at least 64-byte aligned, contents undefined. Raises OutOfMemoryError naming the sizes."""

    @abc.abstractmethod
    def copy_in(self, address: int, array: Array) -> None:
        """Copy a C-contiguous numpy array to device memory; returns when ``array`` may be changed again."""

    @abc.abstractmethod
    def copy_out(self, array: Array, address: int) -> None:
        """Copy device memory into a C-contiguous numpy array; waits for work already queued."""

    @abc.abstractmethod
    def set_bytes(self, address: int, nbytes: int, value: int, stream: int = 0) -> None:
        """Set bytes to ``value`` (0: clear, 0xFF: NaN in every float type)."""

    @abc.abstractmethod
    def prepare_kernel(self, spec: AnyKernel, params: tuple[int | float, ...], items: int) -> RunKernel:
        """Compile (or take from the cache) and bind parameters. Raises CompileError with the compiler's message."""

    def compile_ahead(self, specs: Sequence[AnyKernel]) -> None:  # noqa: B027 - optional
        """Compile many kernels at once into the kernel cache, where the device knows how to; errors come later."""

    @abc.abstractmethod
    def prepare_gemm(self, spec: GemmSpec) -> RunGemm:
        """Choose how this product runs. Raises DeviceError where the device's BLAS cannot do it."""

    @abc.abstractmethod
    def synchronize(self, stream: int = 0) -> None:
        """Wait for the stream. Raises KernelLaunchError for a kernel that failed while running."""

    @abc.abstractmethod
    def time_ms(self, run: Callable[[], None], stream: int = 0) -> float:
        """Run once and return the device time of all that it queued, in ms."""

    @abc.abstractmethod
    def flush_cache(self, stream: int = 0) -> None:
        """Evict the last-level cache, so that the next run reads memory."""

    def capture(self, run: Callable[[int], None]) -> Callable[[int], None] | None:
        """What ``run`` queues on the stream that it is given, recorded to be queued as one piece on any stream.

        Starting the piece costs less than starting its steps one by one, so that short steps can be timed. The buffers
        that ``run`` uses must live as long as the piece. None where the device or a step of ``run`` cannot do this.
        """
        return None

    @abc.abstractmethod
    def environment(self) -> dict[str, str]:
        """Facts that can change which solution is fastest: driver, BLAS and compiler versions, by name."""

    def as_numpy(self, memory: Memory, dtype: Any, shape: Sequence[int]) -> Array:
        """A numpy copy of an allocation's first bytes."""
        array = np.empty(tuple(shape), dtype)
        if array.nbytes:
            self.copy_out(array, memory.address)
        return array
