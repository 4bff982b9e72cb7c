"""Arrays that lie in memory exactly as a problem's descriptors say, with poison where nothing may be read."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hipfind.problem import ConvProblem, TensorDescriptor

Array = npt.NDArray[Any]


def make_arrays(problem: ConvProblem, seed: int) -> dict[str, Array]:
    """role -> array in logical shape with the descriptor's strides.

    Inputs hold normal random numbers (integers from -8 to 8 for integer types), the output too where the problem reads
    it. Everything else, gaps and the output, is poison.
    """
    rng = np.random.default_rng(seed)
    arrays = {role: poisoned(problem.tensor(role)) for role in problem.roles}
    for role in (*problem.inputs, *((problem.output,) if problem.reads_output else ())):
        arrays[role][...] = _random(rng, problem.tensor(role))
    return arrays


def poisoned(tensor: TensorDescriptor) -> Array:
    """An array of the descriptor's shape and strides on a buffer of NaN (the largest number for integers)."""
    dtype = tensor.dtype.numpy
    poison = np.nan if tensor.dtype.is_float else np.iinfo(dtype).max
    buffer = np.full(max(tensor.span_bytes // dtype.itemsize, 1), poison, dtype)
    strides = [stride * dtype.itemsize for stride in tensor.strides]
    return np.ndarray(tensor.lengths, dtype, buffer=buffer, strides=strides)


def _random(rng: np.random.Generator, tensor: TensorDescriptor) -> Array:
    if tensor.dtype.is_float:
        return rng.standard_normal(tensor.lengths).astype(tensor.dtype.numpy)
    return rng.integers(-8, 9, tensor.lengths).astype(tensor.dtype.numpy)
