"""Workspaces that are reused from call to call, so that running a plan allocates nothing on the device."""

from __future__ import annotations

import threading
import types

from hipfind.device.base import Device, Memory

_KEPT = 4
"""Idle buffers kept a stream: as many as calls run at a time in most programs."""


class WorkspacePool:
    """Buffers of one device, by stream. Calls that run at a time never share one; calls in turn on a stream do.

    On a GPU a buffer may be handed out again while the stream still uses it: the stream's order keeps them apart.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._idle: dict[int, list[Memory]] = {}

    def borrow(self, nbytes: int, stream: int = 0) -> Borrowed:
        """For a ``with`` block: memory of at least ``nbytes``. Entering it raises OutOfMemoryError naming the sizes."""
        return Borrowed(self, nbytes, stream)

    def take(self, nbytes: int, stream: int) -> Memory:
        """The smallest idle buffer that is large enough, else a new one. ``give_back`` it after use."""
        with self._lock:
            idle = self._idle.setdefault(stream, [])
            fitting = [memory for memory in idle if memory.nbytes >= nbytes]
            if fitting:
                smallest = min(fitting, key=_size)
                idle.remove(smallest)
                return smallest
            if idle:  # the largest of the small ones gives its room to the one that is about to be made
                idle.remove(max(idle, key=_size))
        return self._device.allocate(nbytes)

    def give_back(self, memory: Memory, stream: int) -> None:
        """Return what ``take`` gave for this stream."""
        with self._lock:
            idle = self._idle.setdefault(stream, [])
            idle.append(memory)
            if len(idle) > _KEPT:
                idle.remove(min(idle, key=_size))


def _size(memory: Memory) -> int:
    return memory.nbytes


class Borrowed:
    """Memory taken for the length of a ``with`` block. A class, because a generator would double a tiny call's cost."""

    __slots__ = ("_memory", "_nbytes", "_pool", "_stream")

    def __init__(self, pool: WorkspacePool, nbytes: int, stream: int) -> None:
        self._pool = pool
        self._nbytes = nbytes
        self._stream = stream

    def __enter__(self) -> Memory:
        self._memory = self._pool.take(self._nbytes, self._stream)
        return self._memory

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._pool.give_back(self._memory, self._stream)
