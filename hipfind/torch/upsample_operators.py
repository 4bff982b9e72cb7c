"""Bilinear resizing and its gradient as torch operators, each the other's derivative.

hipfind::upsample_bilinear2d and hipfind::upsample_bilinear2d_backward are opaque to a compiler.
hipfind::upsample_bilinear2d_by_torch is torch's forward pass with hipfind's gradient: where a compiler traces it, it
becomes torch's operator, so that it is fused as before.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch.autograd.function import _SingleLevelFunction

from hipfind.problem.base import Problem
from hipfind.problem.upsample import UpsampleProblem
from hipfind.torch.calls import FORMATS, Call, CallCache, Look, make_call
from hipfind.torch.conv_operators import TAGS, library
from hipfind.torch.plain import are_plain, is_forward_mode, learn, record

_SIZES = "SymInt[] size, bool align_corners, float? scale_h, float? scale_w"
library.define(f"upsample_bilinear2d(Tensor x, {_SIZES}, bool bwd_by_torch=False) -> Tensor", tags=TAGS)
library.define(f"upsample_bilinear2d_by_torch(Tensor x, {_SIZES}, bool bwd_by_torch=False) -> Tensor", tags=TAGS)
library.define(
    f"upsample_bilinear2d_backward(Tensor dy, {_SIZES}, bool is_channel_last, bool by_torch=False) -> Tensor", tags=TAGS
)
upsample = torch.ops.hipfind.upsample_bilinear2d.default
upsample_by_torch = torch.ops.hipfind.upsample_bilinear2d_by_torch.default
upsample_backward = torch.ops.hipfind.upsample_bilinear2d_backward.default
torch_forward = torch.ops.aten.upsample_bilinear2d.default
torch_backward = torch.ops.aten.upsample_bilinear2d_backward.default

_calls = CallCache()
Scale = float | None


# kernels ------------------------------------------------------------------------------------------------------------


def upsample_problem(
    direction: str,
    given: Look | torch.Tensor,
    size: Sequence[int],
    align_corners: bool,
    scales: tuple[Scale, Scale],
    is_channel_last: bool,
    is_packed: bool = False,
) -> UpsampleProblem:
    """The problem of a call on x or dy; ``size``: height and width of what is made. Raises ProblemError."""
    lengths = tuple(given.shape), (*given.shape[:2], *size)
    x, y = lengths if direction == "fwd" else lengths[::-1]
    strides = {} if is_packed else {"x_strides" if direction == "fwd" else "y_strides": given.stride()}
    return UpsampleProblem.create(
        direction, x, y, align_corners=align_corners, scales=scales, dtype=given.dtype,
        layout=upsample_layout(is_channel_last), deterministic=torch.are_deterministic_algorithms_enabled(), **strides,
    )  # fmt: skip


def upsample_layout(is_channel_last: bool) -> str:
    """The layout's name."""
    return "NHWC" if is_channel_last else "NCHW"


def is_made_channel_last(x: torch.Tensor) -> bool:
    """Whether torch's forward pass on such a tensor makes one with channels last."""
    return bool(suggest_memory_format(x) == torch.channels_last)


def run_forward(
    x: torch.Tensor, size: Sequence[int], align_corners: bool, scale_h: Scale, scale_w: Scale, _: bool = False
) -> torch.Tensor:
    return _run("fwd", x, tuple(size), align_corners, scale_h, scale_w, None)


def run_backward(
    dy: torch.Tensor, size: Sequence[int], align_corners: bool, scale_h: Scale, scale_w: Scale, is_channel_last: bool,
    by_torch: bool = False,
) -> torch.Tensor:  # fmt: skip
    # torch's has no fixed order of sums on GPUs and is an error where that is asked for.
    if by_torch and not torch.are_deterministic_algorithms_enabled():
        lengths = (*dy.shape[:2], *size)
        made: torch.Tensor = torch_backward(dy, dy.shape[2:], lengths, align_corners, scale_h, scale_w)
        return made.contiguous(memory_format=FORMATS[upsample_layout(is_channel_last)])
    return _run("bwd", dy, tuple(size), align_corners, scale_h, scale_w, is_channel_last)


def _run(
    direction: str,
    given: torch.Tensor,
    size: tuple[int, ...],
    align_corners: bool,
    scale_h: Scale,
    scale_w: Scale,
    is_channel_last: bool | None,
) -> torch.Tensor:
    """A direction on a real tensor. ``is_channel_last`` None: as torch's forward pass makes it."""
    key = (
        direction, given.dtype, given.device, given.shape, given.stride(), size, align_corners, scale_h, scale_w,
        is_channel_last, torch.are_deterministic_algorithms_enabled(),
    )  # fmt: skip
    call = _calls.get(key)
    if call is None:
        is_last = is_made_channel_last(given) if is_channel_last is None else is_channel_last
        call = _make_call(direction, given, size, align_corners, (scale_h, scale_w), is_last)
        learn(given.device)
        _calls.put(key, call)
    return call(given)


def _make_call(
    direction: str,
    given: torch.Tensor,
    size: Sequence[int],
    align_corners: bool,
    scales: tuple[Scale, Scale],
    is_channel_last: bool,
) -> Call:
    def problem(is_packed: bool) -> Problem:
        return upsample_problem(direction, given, size, align_corners, scales, is_channel_last, is_packed)

    return make_call(problem, (given,), upsample_layout(is_channel_last))


def _run_by_torch(
    x: torch.Tensor, size: Sequence[int], align_corners: bool, scale_h: Scale, scale_w: Scale, _: bool = False
) -> torch.Tensor:
    made: torch.Tensor = torch_forward(x, size, align_corners, scale_h, scale_w)
    return made


# fakes --------------------------------------------------------------------------------------------------------------


def _fake_forward(x: torch.Tensor, size: Sequence[int], *_: Any) -> torch.Tensor:
    return _fake(x, size, is_made_channel_last(x))


def _fake_backward(
    dy: torch.Tensor, size: Sequence[int], align_corners: bool, scale_h: Scale, scale_w: Scale, is_channel_last: bool,
    _: bool = False,
) -> torch.Tensor:  # fmt: skip
    return _fake(dy, size, is_channel_last)


def _fake(like: torch.Tensor, size: Sequence[int], is_channel_last: bool) -> torch.Tensor:
    format = FORMATS[upsample_layout(is_channel_last)]
    return torch.empty((*like.shape[:2], *size), dtype=like.dtype, device=like.device, memory_format=format)


# gradients ----------------------------------------------------------------------------------------------------------


class _Forward(_SingleLevelFunction):  # type: ignore[misc]  # torch is not typed here
    """Resizing; its gradient asks for the input's size alone. ``operator``: which of the two; ``run`` does its work."""

    @staticmethod
    def forward(ctx: Any, operator: Any, run: Any, x: torch.Tensor, size: Sequence[int], *rest: Any) -> torch.Tensor:
        y: torch.Tensor = run(x, size, *rest)
        ctx.is_channel_last = not y.is_contiguous() and y.is_contiguous(memory_format=torch.channels_last)
        ctx.in_size = tuple(x.shape[2:])
        ctx.operator, ctx.size, ctx.rest = operator, size, rest
        return y

    @staticmethod
    def jvp(ctx: Any, _: Any, __: Any, x: torch.Tensor, *___: Any) -> torch.Tensor:
        """Resizing is linear."""
        made: torch.Tensor = ctx.operator(x, ctx.size, *ctx.rest)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        *coordinates, bwd_by_torch = ctx.rest
        is_plain = not torch.is_grad_enabled() and are_plain(gradient, gradient)
        run: Any = run_backward if is_plain else upsample_backward
        made = run(gradient, ctx.in_size, *coordinates, ctx.is_channel_last, bwd_by_torch)
        return None, None, made, *(None,) * 5


class _Backward(_SingleLevelFunction):  # type: ignore[misc]  # torch is not typed here
    """The adjoint of resizing, whose own gradient is resizing."""

    @staticmethod
    def forward(ctx: Any, dy: torch.Tensor, size: Sequence[int], *rest: Any) -> torch.Tensor:
        ctx.size, ctx.rest, ctx.forward_rest = tuple(dy.shape[2:]), rest[:3], (size, *rest)
        return _below_autograd(upsample_backward, dy, size, *rest)

    @staticmethod
    def jvp(ctx: Any, dy: torch.Tensor, *_: Any) -> torch.Tensor:
        """The adjoint is linear, too."""
        made: torch.Tensor = upsample_backward(dy, *ctx.forward_rest)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return upsample(gradient, ctx.size, *ctx.rest), *(None,) * 6


def _is_recorded(tensor: torch.Tensor) -> bool:
    return (torch.is_grad_enabled() and tensor.requires_grad) or is_forward_mode()


def _below_autograd(operator: Any, tensor: torch.Tensor, *rest: Any) -> torch.Tensor:
    with torch._C._AutoDispatchBelowAutograd():
        made: torch.Tensor = operator(tensor, *rest)
        return made


def _autograd_forward(
    operator: Any, x: torch.Tensor, size: Sequence[int], align_corners: bool, scale_h: Scale, scale_w: Scale,
    bwd_by_torch: bool = False,
) -> torch.Tensor:  # fmt: skip
    # What a tracer sees of torch's forward pass is torch's own operator.
    run = functools.partial(_below_autograd, _run_by_torch if operator is upsample_by_torch else operator)
    return _differentiable(operator, run, x, size, align_corners, scale_h, scale_w, bwd_by_torch)


def _differentiable(operator: Any, run: Any, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    made: torch.Tensor = record(_Forward, operator, run, x, *rest) if _is_recorded(x) else run(x, *rest)
    return made


def _autograd_backward(
    dy: torch.Tensor, size: Sequence[int], align_corners: bool, scale_h: Scale, scale_w: Scale, is_channel_last: bool,
    by_torch: bool = False,
) -> torch.Tensor:  # fmt: skip
    rest = (size, align_corners, scale_h, scale_w, is_channel_last, by_torch)
    if _is_recorded(dy):
        made: torch.Tensor = record(_Backward, dy, *rest)
        return made
    return _below_autograd(upsample_backward, dy, *rest)


def resize(
    x: torch.Tensor, size: Sequence[int], align_corners: bool, scales: tuple[Scale, Scale], by_torch: tuple[str, ...]
) -> torch.Tensor:
    """y of x [N, C, H, W], recorded for gradients where they are asked for; ``by_torch``: torch's directions."""
    operator, run = (upsample_by_torch, _run_by_torch) if "fwd" in by_torch else (upsample, run_forward)
    rest = (size, align_corners, *scales, "bwd" in by_torch)
    if torch.compiler.is_compiling() or not are_plain(x, x):
        made: torch.Tensor = operator(x, *rest)
        return made
    return _differentiable(operator, run, x, *rest)


library.impl("upsample_bilinear2d_by_torch", _run_by_torch, "CompositeExplicitAutograd")
for _key in ("CPU", "CUDA"):
    library.impl("upsample_bilinear2d", run_forward, _key)
    library.impl("upsample_bilinear2d_backward", run_backward, _key)
library.impl("upsample_bilinear2d", functools.partial(_autograd_forward, upsample), "Autograd")
library.impl("upsample_bilinear2d_by_torch", functools.partial(_autograd_forward, upsample_by_torch), "Autograd")
library.impl("upsample_bilinear2d_backward", _autograd_backward, "Autograd")
torch.library.register_fake("hipfind::upsample_bilinear2d", _fake_forward, lib=library)
torch.library.register_fake("hipfind::upsample_bilinear2d_backward", _fake_backward, lib=library)
