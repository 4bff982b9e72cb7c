"""Portable kernels as functions of a shared library: loading, binding of parameters, splitting over threads."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Sequence

from hipfind.device.host_threads import Workers
from hipfind.device.kernel_cache import Entry
from hipfind.errors import CompileError, DeviceError

_SPREAD_NS = 100_000
"""Work from which on it is spread over threads: waking them costs about 40 us."""
_SURELY_LARGE_NS = 4 * _SPREAD_NS
"""Below this a spread launch is measured again: the first one may have been slow because its memory was new."""
_PROBE_NS = 20_000
"""Time after which a part says enough about the rest."""
_PROBE_FRACTION = 16


def load_library(entry: Entry) -> ctypes.CDLL:
    """Load compiled code: from its file, else (a folder that must not hold programs) from memory or a temporary file.

    Raises CompileError when it loads from nowhere.
    """
    if entry.path is not None:
        try:
            return ctypes.CDLL(str(entry.path))
        except OSError:
            pass
    errors: list[str] = []
    for place in (_memory_file, _temporary_file):
        try:
            return ctypes.CDLL(place(entry.code))
        except OSError as error:
            errors.append(str(error))
    raise CompileError("a compiled kernel cannot be loaded", log="\n".join(errors), got=str(entry.path))


def _memory_file(code: bytes) -> str:
    """A file without a place in any file system. It stays open: the loader tells libraries apart by their names."""
    if not hasattr(os, "memfd_create"):
        raise OSError("no files in memory on this system")
    handle = os.memfd_create("hipfind-kernel")
    with os.fdopen(os.dup(handle), "wb") as file:
        file.write(code)
    return f"/proc/self/fd/{handle}"


@functools.cache
def _private_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="hipfind-")


def _temporary_file(code: bytes) -> str:
    with tempfile.NamedTemporaryFile(dir=_private_folder().name, suffix=".so", delete=False) as file:
        file.write(code)
    return str(pathlib.Path(file.name))


@functools.lru_cache(maxsize=256)
def _struct_type(kinds: tuple[type, ...]) -> type[ctypes.Structure]:
    """The struct that carries a kernel's parameters: int64 for each int, double for each float."""
    fields = [(f"p{i}", ctypes.c_double if kind is float else ctypes.c_int64) for i, kind in enumerate(kinds)]
    return type("Params", (ctypes.Structure,), {"_fields_": fields})


class HostKernel:
    """A prepared launch. It finds out by running whether its work is worth more than one thread."""

    __slots__ = ("_bound", "_entry", "_is_large", "_is_small", "_items", "_library", "_tail", "_threads", "_workers")

    def __init__(
        self,
        library: ctypes.CDLL,
        entry: str,
        params: tuple[int | float, ...],
        items: int,
        workers: Workers,
        threads: int,
    ) -> None:
        self._library = library
        self._entry = entry
        self._items = items
        self._workers = workers
        self._threads = min(threads, items)
        kinds = tuple(float if isinstance(value, float) else int for value in params)
        self._tail: tuple[ctypes.Structure, ...] = (_struct_type(kinds)(*params),) if params else ()
        self._bound: dict[int, Callable[..., None]] = {}
        self._is_small = self._threads <= 1
        self._is_large = False

    def __call__(self, addresses: Sequence[int], stream: int = 0) -> None:
        function = self._bound.get(len(addresses)) or self._bind(len(addresses))
        if stream:
            raise no_such_stream(stream)
        if self._is_small:
            function(0, self._items, *addresses, *self._tail)
        else:
            self._measure_and_run(function, addresses)

    def _bind(self, pointers: int) -> Callable[..., None]:
        function = self._library[self._entry]
        function.restype = None
        function.argtypes = (
            *(ctypes.c_int64, ctypes.c_int64),
            *(ctypes.c_void_p,) * pointers,
            *(type(part) for part in self._tail),
        )
        self._bound[pointers] = function
        return function

    def _measure_and_run(self, function: Callable[..., None], addresses: Sequence[int]) -> None:
        """Unless the work is known to be large, run growing parts alone until the rest proves worth spreading."""

        def part(first: int, last: int) -> None:
            function(first, last, *addresses, *self._tail)

        items, threads = self._items, self._threads
        start = time.perf_counter_ns()
        done, step = 0, max(1, items // (_PROBE_FRACTION * threads))
        while not self._is_large and done < items:
            part(done, min(done + step, items))
            done, step = min(done + step, items), 2 * step
            elapsed = time.perf_counter_ns() - start
            self._is_large = elapsed > _PROBE_NS and elapsed * (items - done) > _SPREAD_NS * done
        if not self._is_large:
            self._is_small = elapsed < _SPREAD_NS
        elif done < items:
            self._workers.run(part, done, items, threads)
            self._is_large = (time.perf_counter_ns() - start) * threads > _SURELY_LARGE_NS


def no_such_stream(stream: int) -> DeviceError:
    """The error for a stream that the host does not have."""
    return DeviceError("the host device has one stream, 0", got=stream)
