"""Memory of large numpy outputs, used again: the system's work for fresh pages can take as long as a matrix product."""

from __future__ import annotations

import collections
import math
import mmap
import threading
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

LEAST_BYTES = 1 << 20
"""Below this the C library keeps memory by itself."""
MOST_IDLE_BYTES = 128 << 20
_MOST_WASTE = 1.25


class OutputMemory:
    """Makes uninitialized arrays; an array's memory is taken back when the array and all of its views are gone.

    Thread-safe. Keeps at most ``MOST_IDLE_BYTES`` that no array uses, and lets go what lay idle longest.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[mmap.mmap] = []  # the longest idle first
        # Arrays may die anywhere, also in a thread that holds the lock: they only leave their memory here.
        self._returned: collections.deque[mmap.mmap] = collections.deque()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """An array in C order, contents undefined. Raises MemoryError."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < LEAST_BYTES:
            return np.empty(shape, dtype)
        block = self._take(nbytes) or _new_block(nbytes)
        # numpy keeps this array, the only one right on top of the block, as the base of every view.
        whole = np.frombuffer(block, np.uint8)
        weakref.finalize(whole, self._returned.append, block).atexit = False
        array: npt.NDArray[Any] = np.ndarray(shape, dtype, whole)
        return array

    @property
    def idle_bytes(self) -> int:
        """Bytes kept for arrays to come."""
        with self._lock:
            self._collect()
            return sum(map(len, self._idle))

    def _take(self, nbytes: int) -> mmap.mmap | None:
        with self._lock:
            self._collect()
            fitting = [block for block in self._idle if nbytes <= len(block) <= nbytes * _MOST_WASTE]
            if not fitting:
                return None
            smallest = min(fitting, key=len)
            self._idle.remove(smallest)
            return smallest

    def _collect(self) -> None:
        while self._returned:
            self._idle.append(self._returned.popleft())
        while sum(map(len, self._idle)) > MOST_IDLE_BYTES:
            del self._idle[0]


def _new_block(nbytes: int) -> mmap.mmap:
    try:
        block = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{nbytes} bytes for an output: {error}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    return block
