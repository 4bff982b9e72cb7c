"""The other direction of an upsampling problem, for tests of what the two have to do with each other."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from hipfind.problem import UpsampleProblem
from hipfind.problem.base import Float64Array


def packed(problem: UpsampleProblem, direction: str, **more: Any) -> UpsampleProblem:
    """The problem of the same sizes and coordinates in a direction, of channel-first tensors without gaps."""
    return UpsampleProblem.create(
        direction, problem.x.lengths, problem.y.lengths, align_corners=problem.align_corners, scales=problem.scales,
        **{"dtype": problem.dtype, **more},
    )  # fmt: skip


def resize(problem: UpsampleProblem, x: npt.NDArray[Any]) -> Float64Array:
    """y = U_h x U_w^T in float64, whatever the problem's direction."""
    return packed(problem, "fwd").reference({"x": x})
