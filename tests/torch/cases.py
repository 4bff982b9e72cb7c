"""Calls of hipfind.torch's functions beside torch's own, and how results are compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

import hipfind.torch as hft
from hipfind.problem.dtypes import DType
from hipfind.problem.tolerance import limit, relative_error


@dataclasses.dataclass(frozen=True)
class Case:
    """A call: lengths of its tensors (x, w, bias), what comes behind them, and the functions."""

    name: str
    ours: Callable[..., torch.Tensor]
    theirs: Callable[..., torch.Tensor]
    lengths: tuple[tuple[int, ...], ...]
    arguments: dict[str, Any]

    def tensors(
        self, dtype: torch.dtype, channels_last: bool = False, where: torch.device | str = "cpu"
    ) -> list[torch.Tensor]:
        """Random tensors that ask for gradients."""
        made = [torch.randn(lengths, dtype=torch.float64).to(where, dtype) for lengths in self.lengths]
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        if channels_last and made[0].dim() in formats:
            made = [one.to(memory_format=formats[one.dim()]) if one.dim() in formats else one for one in made]
        return [one.requires_grad_() for one in made]

    def run(self, function: Callable[..., torch.Tensor], tensors: list[torch.Tensor]) -> torch.Tensor:
        return function(*tensors, **self.arguments)


def _conv2d(name: str, x: tuple[int, ...], w: tuple[int, ...], bias: bool = True, **arguments: Any) -> Case:
    return Case(name, hft.conv2d, F.conv2d, (x, w, (w[0],)) if bias else (x, w), arguments)


def _resize(x: torch.Tensor, **arguments: Any) -> torch.Tensor:
    return F.interpolate(x, mode="bilinear", **arguments)


def _upsample(name: str, x: tuple[int, ...], **arguments: Any) -> Case:
    return Case(name, hft.upsample_bilinear2d, _resize, (x,), arguments)


CASES = (
    _conv2d("3x3", (2, 4, 6, 7), (5, 4, 3, 3), padding=1),
    _conv2d("patches", (2, 3, 8, 12), (6, 3, 4, 4), stride=4),
    _conv2d("point", (3, 2, 4, 4), (5, 2, 4, 4), bias=False),
    _conv2d("groups", (2, 4, 7, 6), (6, 2, 3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2),
    _conv2d("depthwise", (2, 4, 7, 6), (4, 1, 3, 3), padding=1, groups=4),
    _conv2d("same", (2, 3, 6, 7), (4, 3, 4, 2), padding="same", dilation=(1, 2)),
    _conv2d("valid", (2, 3, 6, 7), (4, 3, 3, 2), padding="valid", stride=2),
    _conv2d("unbatched", (3, 6, 7), (4, 3, 3, 3), padding=[1]),
    _conv2d("no_batch", (0, 3, 6, 7), (4, 3, 3, 3)),
    Case("3d", hft.conv3d, F.conv3d, ((2, 3, 4, 4, 6), (5, 3, 2, 2, 3), (5,)), {"stride": (2, 2, 3)}),
    Case("3d_same", hft.conv3d, F.conv3d, ((2, 2, 4, 4, 3), (3, 2, 2, 1, 3)), {"padding": "same"}),
    Case("transposed", hft.conv_transpose2d, F.conv_transpose2d, ((2, 4, 3, 5), (4, 3, 3, 3), (6,)),
         {"stride": 2, "padding": 1, "output_padding": (1, 0), "groups": 2}),
    Case("transposed_dilated", hft.conv_transpose2d, F.conv_transpose2d, ((4, 3, 5), (4, 3, 2, 3)), {"dilation": 2}),
    _upsample("up", (2, 3, 4, 5), scale_factor=2),
    _upsample("corners", (2, 3, 5, 4), size=(7, 9), align_corners=True),
    _upsample("down", (1, 2, 9, 8), size=4),
    _upsample("scales", (1, 2, 5, 6), scale_factor=(1.7, 0.6)),
    _upsample("recomputed", (1, 2, 5, 6), scale_factor=1.7, recompute_scale_factor=True),
)  # fmt: skip
LONGEST = 128
"""More products than any element of a result of these cases sums."""


def outputs(case: Case, function: Callable[..., torch.Tensor], tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The result, and the gradients of all tensors for a gradient that is the same for every function."""
    y = case.run(function, tensors)
    torch.manual_seed(1)
    dy = torch.randn(y.shape, dtype=torch.float64).to(y)
    return [y.detach(), *torch.autograd.grad(y, tensors, dy)]


def check(
    made: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype, roundings: int = 1, longest: int = LONGEST
) -> None:
    """``made`` is right to ``dtype`` beside a float64 result.

    ``roundings``: how often it was rounded to ``dtype``; ``longest``: no fewer products than an element sums.
    """
    kind = DType.parse(dtype)
    most = limit(kind, longest) + (roundings - 1) * kind.epsilon / 2
    assert made.dtype is dtype
    error = relative_error(made.double().cpu().numpy(), expected.double().cpu().numpy())
    assert error <= most, f"error {error:.3g}, limit {most:.3g}"
