"""Portable kernels compiled for AMD GPUs by hiprtc, in memory; needs ROCm's compiler but no GPU."""

from __future__ import annotations

import contextlib
from typing import Any

from rocm.bindings import hiprtc

from hipfind.device.gpu_driver import text_of
from hipfind.errors import CompileError, CompilerNotFoundError
from hipfind.kernels.spec import BLOCK, HIP_SOURCES, KernelSpec


def version() -> str:
    """hiprtc's version. Raises CompilerNotFoundError."""
    major, minor = _call("hiprtcVersion")
    return f"hiprtc {major}.{minor}"


def options(spec: KernelSpec, arch: str) -> list[str]:
    """The compiler's arguments for a kernel, e.g. for ``arch`` "gfx942"."""
    defines = (("HF_HIP", "1"), ("HF_BLOCK", str(BLOCK)), *spec.defines)
    return [f"--offload-arch={arch}", "-std=c++17", "-O3", *(f"-D{name}={value}" for name, value in defines)]


def compile_kernel(spec: KernelSpec, arch: str) -> bytes:
    """The code object of ``spec`` for ``arch``. Raises CompileError with the log, CompilerNotFoundError."""
    source, *headers = ((HIP_SOURCES / name).read_text() for name in (spec.source, *spec.headers))
    program = _call("hiprtcCreateProgram", source, spec.source, len(headers), headers, list(spec.headers))
    try:
        arguments = options(spec, arch)
        status, *_ = _answer("hiprtcCompileProgram", program, len(arguments), arguments)
        if status:
            raise CompileError(
                f"hiprtcCompileProgram could not compile {spec.source} for {arch} ({status.name})",
                log=_log(program),
                got=" ".join(arguments),
            )
        code = bytearray(_call("hiprtcGetCodeSize", program))
        _call("hiprtcGetCode", program, code)
        return bytes(code)
    finally:
        with contextlib.suppress(CompileError):  # the code is good whether or not its program was released
            _call("hiprtcDestroyProgram", program.createRef())


def _log(program: Any) -> str:
    text = bytearray(_call("hiprtcGetProgramLogSize", program))
    if text:
        _call("hiprtcGetProgramLog", program, text)
    return text.rstrip(b"\0").decode(errors="replace")


def _call(name: str, *arguments: Any) -> Any:
    """Call hiprtc; returns its one result, or all as a tuple, without the status."""
    status, *results = _answer(name, *arguments)
    if status:
        _, meaning = hiprtc.hiprtcGetErrorString(status)
        raise CompileError(f"{name} failed", got=f"{status.name} ({int(status)}): {meaning}")
    return results[0] if len(results) == 1 else tuple(results)


def _answer(name: str, *arguments: Any) -> Any:
    """Status and results of a call to hiprtc. Raises CompilerNotFoundError where there is none."""
    try:
        return getattr(hiprtc, name)(*arguments)
    except RuntimeError as error:  # library or symbol missing
        raise CompilerNotFoundError("ROCm's runtime compiler (hiprtc) cannot be used", got=text_of(error)) from error
    except ValueError as error:  # a status that hip-python does not know
        raise CompileError(f"{name} failed", got=text_of(error)) from error
