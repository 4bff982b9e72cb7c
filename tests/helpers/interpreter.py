"""A device that runs Triton kernels through Triton's interpreter, on the host's memory; for processes of their own.

The interpreter is chosen when Triton decorates a function, so TRITON_INTERPRET=1 must be in the environment from the
start (see tests/kernels/test_interpreted.py).
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from hipfind.device.base import RunKernel
from hipfind.device.host import HostDevice
from hipfind.kernels.spec import AnyKernel, TritonSpec
from hipfind.solvers.igemm.base import TritonSolver
from hipfind.solvers.registry import default_registry
from hipfind.target import known

_TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32}
_BYTES = 4
"""As many for every type: two pointers may be the same."""
_ALIGNMENT = 16

SOLVERS = tuple(solver for solver in default_registry().solvers if isinstance(solver, TritonSolver))


class InterpreterDevice(HostDevice):
    """The host with the interpreter: solutions are made for a GPU ("sm_90", "gfx942"), kernels run program by program.

    What a launch promises the compiler is asserted: divisors of integers, alignment of pointers.
    """

    def __init__(self, arch: str = "sm_90") -> None:
        assert triton.knobs.runtime.interpret, "TRITON_INTERPRET=1 must be set before triton is imported"
        super().__init__()
        self.target = dataclasses.replace(known(arch), memory_bytes=self.target.memory_bytes)
        interpreter.InterpreterBuilder.create_dot = _product
        interpreter.InterpreterBuilder.create_splat = _splat
        interpreter._convert_float = _converted

    def prepare_kernel(self, spec: AnyKernel, params: tuple[int | float, ...], items: int) -> RunKernel:
        if not isinstance(spec, TritonSpec):
            return super().prepare_kernel(spec, params, items)
        module = importlib.import_module(f"hipfind.kernels.triton.{spec.source.removesuffix('.py')}")
        function = getattr(module, spec.entry)
        integers = dict(zip((name for name, _ in spec.integers), (int(value) for value in params), strict=True))
        for (name, divisor), value in zip(spec.integers, params, strict=True):
            assert value % divisor == 0, f"{name}={value} was promised to be a multiple of {divisor}"

        def run(addresses: Sequence[int], stream: int = 0) -> None:
            assert not (spec.aligned and any(address % _ALIGNMENT for address in addresses))
            pointers = {
                name: _tensor_at(address, _TYPES[dtype])
                for (name, dtype), address in zip(spec.pointers, addresses, strict=True)
            }
            with np.errstate(all="ignore"):  # lanes whose results are not stored compute with whatever they find
                function[(items,)](**pointers, **integers, **dict(spec.constants))

        return run


def _tensor_at(address: int, dtype: torch.dtype) -> Any:
    """A few elements of a type at an address: what the interpreter takes a pointer from."""
    return torch.frombuffer((ctypes.c_uint8 * _BYTES).from_address(address), dtype=dtype)


_convert_float = interpreter._convert_float


def _converted(data: Any, source: Any, to: Any, rounding: Any) -> Any:
    """Other bits of numbers of another type. Triton 3.9's interpreter cuts fp32 off where bf16 has no bits."""
    if (source, to) == (tl.float32, tl.bfloat16):
        return data.astype(ml_dtypes.bfloat16)
    return _convert_float(data, source, to, rounding)


def _product(builder: Any, a: Any, b: Any, total: Any, precision: Any, most_imprecise: int) -> Any:
    """a @ b + total, all in fp32. Triton 3.9's own multiplies bf16, which it holds as uint16, as whole numbers."""
    left, right = (one.data if one.dtype.scalar == tl.float32 else _as_fp32(builder, one) for one in (a, b))
    return interpreter.TensorHandle(np.matmul(left, right) + total.data, total.dtype.scalar)


def _as_fp32(builder: Any, operand: Any) -> Any:
    return builder.cast_impl(operand, tl.float32).data


def _splat(builder: Any, to: Any, scalar: Any) -> Any:
    """A block of one number. Triton 3.9's own makes integers of a comparison's result, which are no mask."""
    data = np.full(to.shape, scalar.data, dtype=np.asarray(scalar.data).dtype)
    return interpreter.TensorHandle(data, scalar.dtype.scalar)
