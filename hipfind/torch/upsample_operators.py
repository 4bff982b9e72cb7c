"""Bilinear resizing as torch operators: the forward pass is torch's own, the gradient is hipfind's.

hipfind::upsample_bilinear2d becomes torch's operator where a compiler traces it, so that it is fused as before;
hipfind::upsample_bilinear2d_backward is opaque to it. Each is the other's derivative.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import _SingleLevelFunction

from hipfind.problem.base import Problem
from hipfind.problem.upsample import UpsampleProblem
from hipfind.torch.calls import FORMATS, Call, CallCache, Look, make_call
from hipfind.torch.conv_operators import TAGS, library
from hipfind.torch.plain import is_forward_mode, record

_SIZES = "SymInt[] size, bool align_corners, float? scale_h, float? scale_w"
library.define(f"upsample_bilinear2d(Tensor x, {_SIZES}) -> Tensor", tags=TAGS)
library.define(f"upsample_bilinear2d_backward(Tensor dy, {_SIZES}, bool is_channel_last) -> Tensor", tags=TAGS)
upsample = torch.ops.hipfind.upsample_bilinear2d.default
upsample_backward = torch.ops.hipfind.upsample_bilinear2d_backward.default

_calls = CallCache()
Scale = float | None


def upsample_problem(
    dy: Look | torch.Tensor,
    size: Sequence[int],
    align_corners: bool,
    scales: tuple[Scale, Scale],
    is_channel_last: bool,
    is_packed: bool = False,
) -> UpsampleProblem:
    """The gradient's problem; ``size``: height and width of the forward pass' input. Raises ProblemError."""
    return UpsampleProblem.create(
        "bwd", (*dy.shape[:2], *size), tuple(dy.shape), align_corners=align_corners, scales=scales, dtype=dy.dtype,
        layout=upsample_layout(is_channel_last), deterministic=torch.are_deterministic_algorithms_enabled(),
        y_strides=None if is_packed else dy.stride(),
    )  # fmt: skip


def upsample_layout(is_channel_last: bool) -> str:
    """The layout's name."""
    return "NHWC" if is_channel_last else "NCHW"


def _run_forward(
    x: torch.Tensor, size: Sequence[int], align_corners: bool, scale_h: Scale, scale_w: Scale
) -> torch.Tensor:
    made: torch.Tensor = torch.ops.aten.upsample_bilinear2d.default(x, size, align_corners, scale_h, scale_w)
    return made


def run_backward(
    dy: torch.Tensor, size: Sequence[int], align_corners: bool, scale_h: Scale, scale_w: Scale, is_channel_last: bool
) -> torch.Tensor:
    look = (tuple(size), align_corners, scale_h, scale_w, is_channel_last)
    key = (dy.dtype, dy.device, dy.shape, dy.stride(), look, torch.are_deterministic_algorithms_enabled())
    call = _calls.get(key)
    if call is None:
        call = _make_call(dy, size, align_corners, (scale_h, scale_w), is_channel_last)
        _calls.put(key, call)
    return call(dy)


def _make_call(
    dy: torch.Tensor, size: Sequence[int], align_corners: bool, scales: tuple[Scale, Scale], is_channel_last: bool
) -> Call:
    def problem(is_packed: bool) -> Problem:
        return upsample_problem(dy, size, align_corners, scales, is_channel_last, is_packed)

    return make_call(problem, (dy,), upsample_layout(is_channel_last))


def _fake_backward(
    dy: torch.Tensor, size: Sequence[int], align_corners: bool, scale_h: Scale, scale_w: Scale, is_channel_last: bool
) -> torch.Tensor:
    format = FORMATS[upsample_layout(is_channel_last)]
    return torch.empty((*dy.shape[:2], *size), dtype=dy.dtype, device=dy.device, memory_format=format)


class _Forward(_SingleLevelFunction):  # type: ignore[misc]  # torch is not typed here
    """Resizing; its gradient asks for the input's size alone."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, size: Sequence[int], *rest: Any) -> torch.Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            y = _run_forward(x, size, *rest)
        is_channel_last = not y.is_contiguous() and y.is_contiguous(memory_format=torch.channels_last)
        ctx.size, ctx.rest, ctx.forward_rest = tuple(x.shape[2:]), (*rest, is_channel_last), (size, *rest)
        return y

    @staticmethod
    def jvp(ctx: Any, x: torch.Tensor, *_: Any) -> torch.Tensor:
        """Resizing is linear."""
        made: torch.Tensor = upsample(x, *ctx.forward_rest)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return upsample_backward(gradient, ctx.size, *ctx.rest), *(None,) * 4


class _Backward(_SingleLevelFunction):  # type: ignore[misc]  # torch is not typed here
    """The adjoint of resizing, whose own gradient is resizing."""

    @staticmethod
    def forward(ctx: Any, dy: torch.Tensor, size: Sequence[int], *rest: Any) -> torch.Tensor:
        ctx.size, ctx.rest, ctx.forward_rest = tuple(dy.shape[2:]), rest[:-1], (size, *rest)
        with torch._C._AutoDispatchBelowAutograd():
            made: torch.Tensor = upsample_backward(dy, size, *rest)
        return made

    @staticmethod
    def jvp(ctx: Any, dy: torch.Tensor, *_: Any) -> torch.Tensor:
        """The adjoint is linear, too."""
        made: torch.Tensor = upsample_backward(dy, *ctx.forward_rest)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return upsample(gradient, ctx.size, *ctx.rest), *(None,) * 5


def _autograd(function: Any, run: Any, tensor: torch.Tensor, *rest: Any) -> torch.Tensor:
    if (torch.is_grad_enabled() and tensor.requires_grad) or is_forward_mode():
        result: torch.Tensor = record(function, tensor, *rest)
        return result
    with torch._C._AutoDispatchBelowAutograd():
        made: torch.Tensor = run(tensor, *rest)
        return made


library.impl("upsample_bilinear2d", _run_forward, "CompositeExplicitAutograd")
library.impl("upsample_bilinear2d", functools.partial(_autograd, _Forward, _run_forward), "Autograd")
library.impl("upsample_bilinear2d_backward", run_backward, "CPU")
library.impl("upsample_bilinear2d_backward", run_backward, "CUDA")
library.impl("upsample_bilinear2d_backward", functools.partial(_autograd, _Backward, upsample_backward), "Autograd")
torch.library.register_fake("hipfind::upsample_bilinear2d_backward", _fake_backward, lib=library)
