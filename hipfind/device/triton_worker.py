"""The process that compiles Triton kernels: ``python -m hipfind.device.triton_worker``, one request a line.

A process of its own, because the compiler may crash on a configuration, keeps state in environment variables, and takes
a core for a second. Needs no GPU and no torch. A request is a JSON line, the answer one too.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import sys
import tempfile
from typing import Any

_WAVE_64 = ("gfx9",)


def main() -> None:
    """Answer requests from standard input until it ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the compiler prints when it is unhappy
    with tempfile.TemporaryDirectory(prefix="hipfind-triton-") as folder:
        os.environ["TRITON_CACHE_DIR"] = folder  # the kernel cache of hipfind keeps what is worth keeping
        os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # as up to Triton 3.9, whatever later ones begin with
        for line in sys.stdin:
            print(json.dumps(_answer(json.loads(line))), file=answers, flush=True)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return _compiled(request)
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises is the answer
        return {"error": f"{type(error).__name__}: {error}"}


def _compiled(request: dict[str, Any]) -> dict[str, Any]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module = importlib.import_module(f"hipfind.kernels.triton.{request['source'].removesuffix('.py')}")
    function = getattr(module, request["entry"])
    arch = request["arch"]
    is_amd = arch.startswith("gfx")
    target = GPUTarget("hip", arch, 64 if arch.startswith(_WAVE_64) else 32) if is_amd else _cuda_target(arch)
    pointers, integers = dict(request["pointers"]), dict(request["integers"])
    constants = {name: _frozen(value) for name, value in request["constants"]}
    signature, attributes = {}, {}
    for place, name in enumerate(function.arg_names):
        divisor = 1
        if name in pointers:
            signature[name] = "*" + pointers[name]
            divisor = 16 if request["aligned"] else 1
        elif name in constants:
            signature[name] = "constexpr"
        else:
            signature[name] = "i32"
            divisor = integers[name]
        if divisor % 16 == 0:
            attributes[(place,)] = [["tt.divisibility", 16]]
    options = {"num_warps": request["warps"], "num_stages": request["stages"]}
    kernel = triton.compile(ASTSource(function, signature, constants, attributes), target=target, options=options)
    metadata = kernel.metadata
    scratch = getattr(metadata, "global_scratch_size", 0) or getattr(
        metadata, "profile_scratch_size", 0
    )  # AMD: no such
    if scratch:
        return {"error": f"the kernel asks for {scratch} bytes of scratch memory, which a launch does not give"}
    return {
        "name": metadata.name,
        "shared": metadata.shared,
        "threads": metadata.num_warps * target.warp_size,
        "code": base64.b64encode(kernel.asm["hsaco" if is_amd else "cubin"]).decode(),
        "assembly": kernel.asm["amdgcn" if is_amd else "ptx"] if request.get("assembly") else "",
    }


def _cuda_target(arch: str) -> Any:
    from triton.backends.compiler import GPUTarget

    return GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


if __name__ == "__main__":
    main()
