"""A GPU that is not here: kernels are compiled for it and kept in the kernel cache, nothing ever runs.

"null:gfx942" stands for a known target. Its kernels go under the keys that the real device looks for, so that a cache
directory that was filled here is warm on a fleet. Immediate mode and explain work as on the real device.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from hipfind.device import triton_compiler
from hipfind.device.base import Array, Device, Memory, RunGemm, RunKernel
from hipfind.device.devices import NULL
from hipfind.device.kernel_cache import digest, kernel_cache
from hipfind.errors import CompileError, CompilerNotFoundError, DeviceError
from hipfind.kernels.spec import AnyKernel, GemmSpec, KernelSpec, TritonSpec
from hipfind.target import KNOWN_TARGETS, known

_COMPILERS = {"amd": "hipfind.device.hip_compiler", "nvidia": "hipfind.device.cuda_compiler"}
_REMEDY = (
    "name a device that is there (`hipfind devices`); immediate, explain and `tune --compile-only` work on this one"
)


class NullDevice(Device):
    """A known GPU without hardware. Compiles; every call that would run something raises DeviceError."""

    def __init__(self, arch: str) -> None:
        """Raises DeviceError for an architecture that is not known, or is no GPU's."""
        names = ", ".join(f"{NULL}:{target.arch}" for target in KNOWN_TARGETS if target.vendor in _COMPILERS)
        if arch not in {target.arch for target in KNOWN_TARGETS if target.vendor in _COMPILERS}:
            got = f"{NULL}:{arch}" if arch else NULL
            raise DeviceError("a null device stands for a known GPU", got=got, remedy=f"known: {names}")
        target = known(arch)
        self.name = f"{NULL}:{arch}"
        self.target = dataclasses.replace(target, triton=target.has_matrix_cores)

    # what it does ----------------------------------------------------------------------------------------------------

    def prepare_kernel(self, spec: AnyKernel, params: tuple[int | float, ...], items: int) -> RunKernel:
        self.compile(spec)
        return self._run

    def compile(self, spec: AnyKernel) -> bytes:
        """The kernel's entry in the kernel cache, made where there is none.

        Raises CompileError with the compiler's log, CompilerNotFoundError.
        """
        key, build = self._recipe(spec)
        return kernel_cache().get(key, build).code

    def compile_ahead(self, specs: Sequence[AnyKernel]) -> None:
        triton_compiler.fill_cache(specs, self.target.arch)

    def _recipe(self, spec: AnyKernel) -> tuple[str, Callable[[], bytes]]:
        """The kernel's key in the cache, as the real device makes it, and what compiles it."""
        arch = self.target.arch
        if isinstance(spec, TritonSpec):
            triton_spec: TritonSpec = spec
            return (
                triton_compiler.cache_key(triton_spec, arch),
                lambda: triton_compiler.compile_kernel(triton_spec, arch),
            )
        portable: KernelSpec = spec
        compiler = self._compiler()
        key = digest(compiler.version(), *compiler.options(portable, arch), portable.content_hash)
        return key, lambda: bytes(compiler.compile_kernel(portable, arch))

    def _compiler(self) -> Any:
        """The module of the vendor's runtime compiler. Raises CompilerNotFoundError where its package is missing."""
        try:
            return importlib.import_module(_COMPILERS[self.target.vendor])
        except ImportError as error:
            what = f"compiling portable kernels for {self.target.arch} needs a package that is missing"
            raise CompilerNotFoundError(what, got=str(error)) from error

    def prepare_gemm(self, spec: GemmSpec) -> RunGemm:
        return self._run

    def environment(self) -> dict[str, str]:
        try:
            compiler = str(self._compiler().version())
        except CompileError:
            compiler = "none"
        return {"device": NULL, "compiler": compiler}

    # what it never does ----------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Memory:
        self._refuse()

    def copy_in(self, address: int, array: Array) -> None:
        self._refuse()

    def copy_out(self, array: Array, address: int) -> None:
        self._refuse()

    def set_bytes(self, address: int, nbytes: int, value: int, stream: int = 0) -> None:
        self._refuse()

    def synchronize(self, stream: int = 0) -> None:
        self._refuse()

    def time_ms(self, run: Callable[[], None], stream: int = 0) -> float:
        self._refuse()

    def flush_cache(self, stream: int = 0) -> None:
        self._refuse()

    def _run(self, *places: Any) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise never_runs(self.name)


def never_runs(name: str) -> DeviceError:
    """The error of whatever would run something on the null device of this name."""
    return DeviceError("a null device compiles and never runs: nothing is computed or measured on it", got=name,
                       remedy=_REMEDY)  # fmt: skip
