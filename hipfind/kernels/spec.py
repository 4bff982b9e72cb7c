"""What solvers hand to a device: a kernel by source and entry, a matrix product by numbers. Plain frozen data."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import pathlib
import re
from typing import TypeAlias

from hipfind.problem.dtypes import DType

HIP_SOURCES = pathlib.Path(__file__).parent / "hip"
TRITON_SOURCES = pathlib.Path(__file__).parent / "triton"
PORTABLE_HEADER = "portable.h"
BLOCK = 256
"""Threads of a block on a GPU: the members of a group. A launch of groups has so many items each; one on the host."""
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
_IMPORT = re.compile(r"^from hipfind\.kernels\.triton\.(\w+) import", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class KernelSpec:
    """One entry point of one portable source, with its compile-time definitions.

    ``source`` is a file name under kernels/hip, ``entry`` the function's name, ``defines`` (name, value) pairs.
    Sizes are run-time parameters, so one binary serves every shape.
    """

    source: str
    entry: str
    defines: tuple[tuple[str, str], ...] = ()

    @functools.cached_property
    def headers(self) -> tuple[str, ...]:
        """File names of all headers that the source includes, directly or through another, under kernels/hip."""
        found: dict[str, None] = {}
        waiting = [self.source]
        while waiting:
            names = _INCLUDE.findall((HIP_SOURCES / waiting.pop()).read_text())
            waiting += [name for name in names if name not in found]
            found.update(dict.fromkeys(names))
        return tuple(found)

    @functools.cached_property
    def content_hash(self) -> str:
        """SHA-256 over the source, its headers, the entry and the definitions: the identity of the code."""
        digest = hashlib.sha256()
        for name in (*self.headers, self.source):
            digest.update((HIP_SOURCES / name).read_bytes())
        digest.update(repr((self.entry, self.defines)).encode())
        return digest.hexdigest()


Constants: TypeAlias = tuple[tuple[str, int | str | tuple[int, ...]], ...]
"""Compile-time constants of a Triton kernel by name."""


@dataclasses.dataclass(frozen=True)
class TritonSpec:
    """One Triton kernel for matrix cores with its compile-time constants.

    ``source`` is a file name under kernels/triton, ``entry`` the function. Each of its arguments is in one of three
    lists of (name, ...) pairs, each in the function's order: ``pointers`` with the element type that they point to
    ("bf16", "fp32"), ``integers``, 32-bit run-time arguments with a number that divides them (16, or 1 for any),
    ``constants`` with their value. ``aligned``: every pointer is a multiple of 16 bytes. A launch runs as many programs
    as a step has items, each of ``warps`` waves; loops are pipelined over ``stages`` loads.
    """

    source: str
    entry: str
    pointers: tuple[tuple[str, str], ...]
    integers: tuple[tuple[str, int], ...] = ()
    constants: Constants = ()
    warps: int = 4
    stages: int = 2
    aligned: bool = True

    @functools.cached_property
    def content_hash(self) -> str:
        """SHA-256 over the source, what it imports beside it, and all of this: the identity of the code."""
        digest = hashlib.sha256((TRITON_SOURCES / self.source).read_bytes())
        for name in _IMPORT.findall((TRITON_SOURCES / self.source).read_text()):
            digest.update((TRITON_SOURCES / f"{name}.py").read_bytes())
        digest.update(repr(dataclasses.astuple(self)).encode())
        return digest.hexdigest()


AnyKernel: TypeAlias = KernelSpec | TritonSpec


@dataclasses.dataclass(frozen=True)
class GemmSpec:
    """A (strided-batched) product on row-major matrices: ``C = alpha * op(A) @ op(B) + beta * C``.

    op(A) is [m, k], op(B) is [k, n], C is [m, n]; ``trans_a`` means that A lies in memory as [k, m]. ``lda``, ``ldb``,
    ``ldc`` are row strides of the stored matrices in elements, ``stride_*`` the distance of batch entries in elements
    (0: the same matrix for all). A and B have ``dtype``, C has ``dtype_c``; sums are kept in fp32 for 16-bit types.
    With beta 0 the former contents of C are never read. ``rank`` is the algorithm's place in the BLAS library's own
    ranking for operands aligned like the ones at hand, 0 its best; ``tf32`` lets products of fp32 be rounded to tf32.
    """

    m: int
    n: int
    k: int
    dtype: DType
    dtype_c: DType
    lda: int
    ldb: int
    ldc: int
    trans_a: bool = False
    trans_b: bool = False
    batch: int = 1
    stride_a: int = 0
    stride_b: int = 0
    stride_c: int = 0
    alpha: float = 1.0
    beta: float = 0.0
    rank: int = 0
    tf32: bool = False

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def min_bytes(self) -> int:
        """Bytes read and written when every matrix moves once (shared batch operands count once)."""
        a = self.m * self.k * (self.batch if self.stride_a else 1)
        b = self.k * self.n * (self.batch if self.stride_b else 1)
        c = self.m * self.n * self.batch * (2 if self.beta else 1)
        return (a + b) * self.dtype.itemsize + c * self.dtype_c.itemsize
