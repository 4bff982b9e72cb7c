"""The host device: memory and cores of this machine, numpy's BLAS, kernels compiled by the system's C++ compiler."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from hipfind.device.base import Array, Device, Memory, RunGemm, RunKernel
from hipfind.device.host_blas import ScratchPool, prepare_gemm
from hipfind.device.host_compiler import HostCompiler, find_compiler
from hipfind.device.host_kernel import HostKernel, load_library, no_such_stream
from hipfind.device.host_target import cpu_name, host_target, last_level_cache_bytes
from hipfind.device.host_threads import Workers, thread_count
from hipfind.device.kernel_cache import digest, kernel_cache
from hipfind.errors import CompileError, CompilerNotFoundError, OutOfMemoryError
from hipfind.kernels.spec import AnyKernel, GemmSpec, KernelSpec

_ALIGNMENT = 64
_MOST_FLUSH_BYTES = 128 << 20
_BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "OMP_NUM_THREADS")


class HostMemory(Memory):
    """A numpy buffer whose first used byte is aligned."""

    def __init__(self, nbytes: int) -> None:
        self._buffer = np.empty(nbytes + _ALIGNMENT, np.uint8)
        start: int = self._buffer.ctypes.data
        self.address = -(-start // _ALIGNMENT) * _ALIGNMENT
        self.nbytes = nbytes


class HostDevice(Device):
    """This machine's CPU. Everything runs when it is called, so there is one stream, 0, and nothing to wait for."""

    name = "host"

    def __init__(self) -> None:
        try:
            self._compiler: HostCompiler | None = find_compiler()
        except CompilerNotFoundError:
            self._compiler = None
        self.target = host_target(kernels=self._compiler is not None)
        self._workers = Workers()
        self._scratch = ScratchPool()
        self._libraries: dict[KernelSpec, ctypes.CDLL] = {}
        self._flush: npt.NDArray[np.uint8] | None = None
        self._lock = threading.Lock()

    def allocate(self, nbytes: int) -> Memory:
        # The system would grant more than there is and end the process when it is used.
        if nbytes <= self.target.memory_bytes:
            try:
                return HostMemory(nbytes)
            except MemoryError:
                pass
        raise OutOfMemoryError(
            f"the host cannot allocate {nbytes} bytes",
            got=f"{self.target.memory_bytes} bytes of memory in all",
            remedy="use a smaller problem or set a workspace limit",
        )

    def copy_in(self, address: int, array: Array) -> None:
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def copy_out(self, array: Array, address: int) -> None:
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def set_bytes(self, address: int, nbytes: int, value: int, stream: int = 0) -> None:
        if stream:
            raise no_such_stream(stream)
        ctypes.memset(address, value, nbytes)

    def prepare_kernel(self, spec: AnyKernel, params: tuple[int | float, ...], items: int) -> RunKernel:
        if not isinstance(spec, KernelSpec):
            raise CompileError("the host runs no Triton kernels", got=f"{spec.source}:{spec.entry}")
        return HostKernel(self._library(spec), spec.entry, params, items, self._workers, thread_count())

    def _library(self, spec: KernelSpec) -> ctypes.CDLL:
        library = self._libraries.get(spec)
        if library is None:
            compiler = self._compiler or find_compiler()
            key = digest(spec.content_hash, compiler.identity)
            library = load_library(kernel_cache().get(key, lambda: compiler.compile(spec)))
            self._libraries[spec] = library
        return library

    def prepare_gemm(self, spec: GemmSpec) -> RunGemm:
        return prepare_gemm(spec, self.prepare_kernel if self._compiler is not None else None, self._scratch)

    def synchronize(self, stream: int = 0) -> None:
        if stream:
            raise no_such_stream(stream)

    def time_ms(self, run: Callable[[], None], stream: int = 0) -> float:
        self.synchronize(stream)
        start = time.perf_counter_ns()
        run()
        return (time.perf_counter_ns() - start) * 1e-6

    def flush_cache(self, stream: int = 0) -> None:
        self.synchronize(stream)
        with self._lock:
            if self._flush is None:
                self._flush = np.zeros(min(2 * last_level_cache_bytes(), _MOST_FLUSH_BYTES), np.uint8)
            np.bitwise_not(self._flush, out=self._flush)  # a plain fill may be written past the cache

    def environment(self) -> dict[str, str]:
        built: Any = np.show_config(mode="dicts")
        blas = built.get("Build Dependencies", {}).get("blas", {})
        threads = [f"{name}={os.environ[name]}" for name in _BLAS_VARIABLES if name in os.environ]
        return {
            "cpu": cpu_name(),
            "threads": str(thread_count()),
            "numpy": np.__version__,
            "blas": f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip(),
            "blas_threads": " ".join(threads) or "default",
            "compiler": self._compiler.identity if self._compiler is not None else "none",
        }
