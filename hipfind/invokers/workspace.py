"""Workspaces that are reused from call to call, so that running a plan allocates nothing on the device."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator

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
        self._idle: defaultdict[int, list[Memory]] = defaultdict(list)

    @contextlib.contextmanager
    def borrow(self, nbytes: int, stream: int = 0) -> Iterator[Memory]:
        """A buffer of at least ``nbytes`` for the block. Raises OutOfMemoryError naming the sizes."""
        memory = self._take(nbytes, stream) or self._device.allocate(nbytes)
        try:
            yield memory
        finally:
            with self._lock:
                idle = self._idle[stream]
                idle.append(memory)
                if len(idle) > _KEPT:
                    idle.remove(min(idle, key=lambda one: one.nbytes))

    def _take(self, nbytes: int, stream: int) -> Memory | None:
        with self._lock:
            idle = self._idle[stream]
            fitting = [one for one in idle if one.nbytes >= nbytes]
            if not fitting:
                if idle:  # a larger one is about to be made; the largest of the small ones gives its room to it
                    idle.remove(max(idle, key=lambda one: one.nbytes))
                return None
            smallest = min(fitting, key=lambda one: one.nbytes)
            idle.remove(smallest)
            return smallest
