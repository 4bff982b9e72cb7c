"""Portable kernels compiled for NVIDIA GPUs by NVRTC, in memory; needs no GPU and no driver."""

from __future__ import annotations

from typing import Any

from cuda.bindings import nvrtc

from hipfind.device.gpu_driver import text_of
from hipfind.errors import CompileError, CompilerNotFoundError
from hipfind.kernels.spec import BLOCK, HIP_SOURCES, KernelSpec


def version() -> str:
    """NVRTC's version. Raises CompilerNotFoundError."""
    major, minor = _call("nvrtcVersion")
    return f"NVRTC {major}.{minor}"


def options(spec: KernelSpec, arch: str) -> list[str]:
    """The compiler's arguments for a kernel, e.g. for ``arch`` "sm_90"."""
    defines = (("HF_CUDA", "1"), ("HF_BLOCK", str(BLOCK)), *spec.defines)
    return [f"--gpu-architecture={arch}", "--std=c++17", *(f"-D{name}={value}" for name, value in defines)]


def compile_kernel(spec: KernelSpec, arch: str) -> bytes:
    """The cubin of ``spec`` for ``arch``. Raises CompileError with the log, CompilerNotFoundError."""
    source, *headers = ((HIP_SOURCES / name).read_bytes() for name in (spec.source, *spec.headers))
    names = [name.encode() for name in spec.headers]
    program = _call("nvrtcCreateProgram", source, spec.source.encode(), len(headers), headers, names)
    try:
        arguments = options(spec, arch)
        (status,) = nvrtc.nvrtcCompileProgram(program, len(arguments), [text.encode() for text in arguments])
        if status:
            raise CompileError(
                f"NVRTC could not compile {spec.source} for {arch} ({status.name})",
                log=_log(program),
                got=" ".join(arguments),
            )
        code = bytearray(_call("nvrtcGetCUBINSize", program))
        _call("nvrtcGetCUBIN", program, code)
        return bytes(code)
    finally:
        _call("nvrtcDestroyProgram", program)


def _log(program: Any) -> str:
    text = bytearray(_call("nvrtcGetProgramLogSize", program))
    _call("nvrtcGetProgramLog", program, text)
    return text.rstrip(b"\0").decode(errors="replace")


def _call(name: str, *arguments: Any) -> Any:
    try:
        status, *results = getattr(nvrtc, name)(*arguments)
    except RuntimeError as error:  # library or symbol missing
        raise CompilerNotFoundError("NVIDIA's runtime compiler (NVRTC) cannot be used", got=text_of(error)) from error
    if status:
        _, meaning = nvrtc.nvrtcGetErrorString(status)
        raise CompileError(f"{name} failed", got=f"{status.name} ({int(status)}): {meaning.decode()}")
    return results[0] if len(results) == 1 else tuple(results)
