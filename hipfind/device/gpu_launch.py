"""Launches on a GPU: a loaded kernel bound to its parameters, called with addresses and a stream."""

from __future__ import annotations

import ctypes
import dataclasses
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from hipfind.errors import DeviceError, KernelLaunchError
from hipfind.kernels.spec import TritonSpec

if TYPE_CHECKING:
    from hipfind.device.gpu import GpuDevice

_SIZE = 5
_ARGUMENTS = 6
"""Places of the size and the first argument in a frame."""
_TRITON_SCRATCH = (0, 0)
"""Behind a Triton kernel's own arguments: pointers to scratch memory that it does not need."""
_ALIGNMENT = 16


class Function(NamedTuple):
    """A loaded kernel: its handle, threads of a block, bytes of dynamic shared memory of a launch."""

    handle: int
    threads: int
    shared: int


class Launch:
    """A kernel bound to its parameters. Frames of packed arguments are reused; each is in one call at a time."""

    __slots__ = ("_blocks", "_device", "_entry", "_frames", "_function", "_head", "_shared", "_tail", "_threads")

    def __init__(
        self,
        device: GpuDevice,
        entry: str,
        function: Function,
        blocks: int,
        head: Sequence[int],
        tail: Sequence[int],
    ) -> None:
        """``head`` and ``tail``: 64-bit words of arguments before and after the pointers."""
        self._device = device
        self._entry = entry
        self._function, self._threads, self._shared = function
        self._blocks = blocks
        self._head = list(head)
        self._tail = list(tail)
        self._frames: list[tuple[ctypes.Array[ctypes.c_uint64], int]] = []

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        self._device.check_stream(stream)
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._new_frame(len(addresses))
        words, location = frame
        first = _ARGUMENTS + len(self._head)
        words[first : first + len(addresses)] = list(addresses)
        driver = self._device.driver
        try:
            with driver.active():
                driver.launch(self._function, self._blocks, self._threads, self._shared, stream, location)
        except DeviceError as error:
            raise KernelLaunchError(f"kernel {self._entry} did not start on {self._device.name}: {error}") from error
        finally:
            self._frames.append(frame)

    def _new_frame(self, pointers: int) -> tuple[ctypes.Array[ctypes.c_uint64], int]:
        """[1, address of arguments, 2, address of their size, end, size, arguments]: head, pointers, tail."""
        arguments = [*self._head, *[0] * pointers, *self._tail]
        words = (ctypes.c_uint64 * (_ARGUMENTS + len(arguments)))()
        location = ctypes.addressof(words)
        description = [1, location + 8 * _ARGUMENTS, 2, location + 8 * _SIZE, self._device.driver.launch_end]
        words[:] = [*description, 8 * len(arguments), *arguments]
        return words, location


class TritonLaunch:
    """A Triton kernel bound to its parameters.

    It is compiled for operands at multiples of 16 bytes, and, when others come for the first time, for those as well.
    """

    __slots__ = ("_any", "_device", "_items", "_launch", "_spec", "_words")

    def __init__(self, device: GpuDevice, spec: TritonSpec, params: Sequence[int | float], items: int) -> None:
        self._device = device
        self._spec = spec
        self._items = items
        packed = struct.pack(f"={len(params)}i", *(int(value) for value in params))
        packed += bytes(-len(packed) % 8)
        self._words = [*struct.unpack(f"={len(packed) // 8}Q", packed), *_TRITON_SCRATCH]
        self._launch = self._bound(spec)
        self._any: Launch | None = None

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        misaligned = 0
        for address in addresses:
            misaligned |= address
        if not misaligned % _ALIGNMENT:
            self._launch(addresses, stream)
            return
        if self._any is None:
            self._any = self._bound(dataclasses.replace(self._spec, aligned=False))
        self._any(addresses, stream)

    def _bound(self, spec: TritonSpec) -> Launch:
        return Launch(self._device, spec.entry, self._device.function(spec), self._items, (), self._words)


def word(value: int | float) -> int:
    """The 64 bits of an int64 or a double."""
    packed = struct.pack("=q" if isinstance(value, int) else "=d", value)
    return int.from_bytes(packed, "little")
