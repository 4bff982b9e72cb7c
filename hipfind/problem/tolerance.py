"""When a result is right: one measure of error and one limit for it, used wherever hipfind compares results."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hipfind.errors import ArrayError
from hipfind.problem.base import Float64Array, Problem
from hipfind.problem.dtypes import DType

Array = npt.NDArray[Any]

_TF32_EPSILON = 2.0**-10
"""Distance from 1.0 to the next larger tf32 value."""
_SAFE = 2.0**-900
"""Sums of squares between this and its inverse have lost nothing to overflow or underflow."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Outcome of a comparison: the relative error (nan where a result is missing or not finite) and its limit."""

    ok: bool
    error: float
    limit: float


def relative_error(out: Array, ref: Float64Array) -> float:
    """||out - ref|| / ||ref|| over all elements (root of the sum of squares); ||out|| where ref is all zero.

    nan where ``out`` is not finite and ``ref`` is; where ``ref`` itself is not finite ``out`` must hold the same.
    Raises ArrayError for different shapes.
    """
    if out.shape != ref.shape:
        raise ArrayError(f"a result must have its reference's shape {ref.shape}", got=f"{out.shape}")
    values = out.astype(np.float64)
    finite = np.isfinite(ref)
    if not finite.all():
        if not np.array_equal(values[~finite], ref[~finite], equal_nan=True):
            return math.nan
        values, ref = values[finite], ref[finite]
    if not np.isfinite(values).all():
        return math.nan
    scale = _norm(ref)
    values -= ref
    return _norm(values) / (scale or 1.0)


def limit(dtype: DType, reduction_length: int, compute: str = "", cancellation: float = 1.0) -> float:
    """Largest relative error of a right result of ``dtype`` that sums ``reduction_length`` products an element.

    A right result is summed in fp32 (fp64 for fp64) and rounded to ``dtype`` once. With u half of a type's epsilon:

    - rounding once moves no element by more than u of itself, so it adds at most u;
    - a sum of L products in a row passes L partial sums, each rounded by up to u of itself. For terms of random sign
      they grow like sqrt(j) and the errors, independent, add up to u sqrt(L / 2) of the result; for terms of one sign
      to u sqrt(L / 3). Twice u sqrt(L) leaves a margin for other orders and for the products' own rounding;
    - compute type tf32 rounds both factors of each product: at most two tf32 u.

    The last two are parts of what the terms amount to, not of what is left when they cancel: they count
    ``cancellation`` times, which is how many times smaller the result is than terms of random sign would leave it
    (1 where it is not smaller). Among many elements that hardly happens; a single one is 20 times smaller than usual
    in one case out of 25.

    For integers the limit is 0. A bf16 sum over a batch of 256 kept in bf16 exceeds the limit more than four times.
    """
    if not dtype.is_float:
        return 0.0
    summed = DType.FP64 if dtype is DType.FP64 else DType.FP32
    factors = _TF32_EPSILON if compute == "tf32" else 0.0
    return dtype.epsilon / 2 + cancellation * (summed.epsilon * math.sqrt(max(reduction_length, 1)) + factors)


def check(
    out: Array, ref: Float64Array, dtype: DType, reduction_length: int, compute: str = "", usual_size: float = 0.0
) -> Verdict:
    """Compare a result with its float64 reference.

    ``dtype`` is the result's, which ``out`` may hold in a wider one. ``usual_size`` is a problem's (see there); with 0
    the reference's own size stands for it.
    """
    error, size = relative_error(out, ref), _norm(ref)
    cancellation = max(usual_size * math.sqrt(ref.size) / size, 1.0) if size > 0.0 else 1.0
    most = limit(dtype, reduction_length, compute, cancellation)
    return Verdict(error <= most, error, most)


def judge(problem: Problem, arrays: Mapping[str, Array], out: Array, ref: Float64Array) -> Verdict:
    """Compare a result of the problem, or some elements of it, with the float64 reference made of ``arrays``."""
    dtype = problem.tensor(problem.output).dtype
    return check(out, ref, dtype, problem.reduction_length, problem.compute, problem.usual_size(arrays))


def _norm(values: Float64Array) -> float:
    """Root of the sum of squares, without overflow."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = float(np.vdot(values, values))
    if _SAFE < squares < 1.0 / _SAFE:  # always of types shorter than float64: half the passes over memory
        return math.sqrt(squares)
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    scaled = values / largest
    return largest * math.sqrt(float(np.vdot(scaled, scaled)))
