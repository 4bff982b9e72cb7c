"""Convolutions as torch operators: hipfind::conv_fwd, conv_bwd and conv_wrw, each differentiable by the other two.

Registered with torch.library's Library: its custom_op costs 45 us a call with gradients on a CPU where these cost 11.
All tensors that are made lie as the window says, whatever the inputs' strides; fakes and real ones alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import _SingleLevelFunction

from hipfind.problem.base import Problem
from hipfind.problem.conv import ConvProblem
from hipfind.problem.tensor import packed_strides
from hipfind.torch.calls import FORMATS, Call, CallCache, Look, make_call
from hipfind.torch.plain import are_plain, is_forward_mode, learn, record
from hipfind.torch.window import Window, decode

_INPUTS = {"fwd": ("x", "w"), "bwd": ("y", "w"), "wrw": ("y", "x")}
_MADE = {"fwd": "y", "bwd": "x", "wrw": "w"}
_DIRECTION = {made: direction for direction, made in _MADE.items()}
TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)

library = torch.library.Library("hipfind", "DEF")
library.define("conv_fwd(Tensor x, Tensor w, Tensor? bias, str window) -> Tensor", tags=TAGS)
library.define("conv_bwd(Tensor dy, Tensor w, SymInt[] shape, str window) -> Tensor", tags=TAGS)
library.define("conv_wrw(Tensor dy, Tensor x, SymInt[] shape, str window) -> Tensor", tags=TAGS)
conv_fwd = torch.ops.hipfind.conv_fwd.default
conv_bwd = torch.ops.hipfind.conv_bwd.default
conv_wrw = torch.ops.hipfind.conv_wrw.default

_calls = CallCache()


# kernels ------------------------------------------------------------------------------------------------------------


def conv_problem(
    direction: str,
    first: Look | torch.Tensor,
    second: Look | torch.Tensor,
    lengths: Sequence[int] | None,
    window: Window,
    is_packed: bool = False,
) -> ConvProblem:
    """The problem of a call on these inputs; ``lengths`` are a gradient's. Raises ProblemError."""
    given = dict(zip(_INPUTS[direction], (first, second), strict=True))
    sizes: dict[str, Any] = {role: tuple(tensor.shape) for role, tensor in given.items()}
    if lengths is not None:
        sizes[_MADE[direction]] = tuple(lengths)
    dtypes = [given.get(role, first).dtype for role in "xwy"]
    strides: dict[str, Any] = {}
    if not is_packed:
        strides = {f"{role}_strides": tensor.stride() for role, tensor in given.items()}
    return ConvProblem.create(
        direction, **sizes, stride=window.stride, pad=tuple(zip(window.pad, window.pad_end, strict=True)),
        dilation=window.dilation, groups=window.groups, dtype=dtypes, layout=window.layout,
        output_padding=window.output_padding, mode="transpose" if window.is_transposed else "convolution",
        deterministic=torch.are_deterministic_algorithms_enabled(), compute=_compute(first), **strides,
    )  # fmt: skip


def _compute(tensor: Look | torch.Tensor) -> str:
    """tf32 where torch's own convolutions would use it."""
    is_fp32_on_cuda = tensor.dtype is torch.float32 and tensor.is_cuda and torch.version.hip is None
    return "tf32" if is_fp32_on_cuda and torch._C._get_cudnn_allow_tf32() else ""


def call_of(direction: str, first: torch.Tensor, second: torch.Tensor, lengths: Any, window: str) -> Call:
    key = (
        direction, window, first.dtype, first.device, first.shape, first.stride(), second.dtype, second.device,
        second.shape, second.stride(), torch.are_deterministic_algorithms_enabled(), _compute(first),
        None if lengths is None else tuple(lengths),
    )  # fmt: skip
    call = _calls.get(key)
    if call is None:
        call = _make_call(direction, first, second, lengths, decode(window))
        learn(first.device)
        _calls.put(key, call)
    return call


def _make_call(direction: str, first: torch.Tensor, second: torch.Tensor, lengths: Any, window: Window) -> Call:
    def problem(is_packed: bool) -> Problem:
        return conv_problem(direction, first, second, lengths, window, is_packed)

    return make_call(problem, (first, second), window.layout)


def run_conv(
    direction: str, first: torch.Tensor, second: torch.Tensor, bias: Any, lengths: Any, window: str
) -> torch.Tensor:
    """One direction on real tensors, by hipfind or, where the window says so, by torch."""
    if window[-1] != "/" and direction in decode(window).by_torch:
        return _by_torch(direction, first, second, bias, lengths, decode(window))
    made = call_of(direction, first, second, lengths, window)(first, second)
    if bias is not None:
        made.add_(bias.view(-1, *(1,) * (made.dim() - 2)))
    return made


def _by_torch(
    direction: str, first: torch.Tensor, second: torch.Tensor, bias: Any, lengths: Any, window: Window
) -> torch.Tensor:
    """As torch's own module does it. torch gives the window's layout by itself in all but odd cases."""
    rest = (window.stride, window.pad, window.dilation, window.is_transposed, window.output_padding, window.groups)
    if direction == "fwd":
        made = torch.ops.aten.convolution(first, second, bias, *rest)
    else:
        # Only the look of the third tensor is read.
        third = first.new_empty_strided(lengths, packed_strides(tuple(lengths), window.layout))
        x, w = (third, second) if direction == "bwd" else (second, third)
        mask = (direction == "bwd", direction == "wrw", False)
        made = torch.ops.aten.convolution_backward(first, x, w, None, *rest, mask)[mask.index(True)]
    return made.contiguous(memory_format=FORMATS[window.layout])


for _key in ("CPU", "CUDA"):
    library.impl("conv_fwd", lambda x, w, bias, window: run_conv("fwd", x, w, bias, None, window), _key)
    library.impl("conv_bwd", lambda dy, w, shape, window: run_conv("bwd", dy, w, None, shape, window), _key)
    library.impl("conv_wrw", lambda dy, x, shape, window: run_conv("wrw", dy, x, None, shape, window), _key)


# fakes --------------------------------------------------------------------------------------------------------------


def _fake(like: torch.Tensor, lengths: Sequence[int], window: Window) -> torch.Tensor:
    strides, step = [0] * len(lengths), 1
    axes = range(len(lengths))
    for axis in (1, *reversed(axes[2:]), 0) if window.is_channel_last else reversed(axes):
        strides[axis] = step
        step = step * lengths[axis]
    return like.new_empty_strided(lengths, strides)


def _fake_fwd(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, window: str) -> torch.Tensor:
    parsed = decode(window)
    return _fake(x, parsed.output_lengths(x.shape, w.shape), parsed)


def _fake_gradient(dy: torch.Tensor, other: torch.Tensor, shape: Sequence[int], window: str) -> torch.Tensor:
    return _fake(dy, shape, decode(window))


torch.library.register_fake("hipfind::conv_fwd", _fake_fwd, lib=library)
torch.library.register_fake("hipfind::conv_bwd", _fake_gradient, lib=library)
torch.library.register_fake("hipfind::conv_wrw", _fake_gradient, lib=library)


# gradients ----------------------------------------------------------------------------------------------------------


def _contract(
    direction: str, first: torch.Tensor, second: torch.Tensor, bias: Any, lengths: Any, window: str
) -> torch.Tensor:
    """The operator of a direction, through the dispatcher where that has something to do."""
    made: torch.Tensor
    if direction == "fwd":
        made = conv_fwd(first, second, bias, window)
    else:
        made = (conv_bwd if direction == "bwd" else conv_wrw)(first, second, lengths, window)
    return made


def _below_autograd(
    direction: str, first: torch.Tensor, second: torch.Tensor, bias: Any, lengths: Any, window: str, is_plain: bool
) -> torch.Tensor:
    if is_plain:
        return run_conv(direction, first, second, bias, lengths, window)
    with torch._C._AutoDispatchBelowAutograd():
        return _contract(direction, first, second, bias, lengths, window)


class _Conv(_SingleLevelFunction):  # type: ignore[misc]  # torch is not typed here
    """Any direction. Each input's gradient is the direction that makes its role, of the output's gradient and the other
    input: the three are the derivatives of one trilinear form.

    Of a single level, because functorch's transforms come to the operator level by level.
    """

    @staticmethod
    def forward(
        ctx: Any, direction: str, first: Any, second: Any, bias: Any, lengths: Any, window: str, is_plain: bool
    ) -> torch.Tensor:
        ctx.direction, ctx.window = direction, window
        ctx.shapes = first.shape, second.shape
        needs = ctx.needs_input_grad
        ctx.save_for_backward(first if needs[2] else None, second if needs[1] else None)
        if is_forward_mode():
            ctx.save_for_forward(first, second)
            ctx.lengths = lengths
        return _below_autograd(direction, first, second, bias, lengths, window, is_plain)

    @staticmethod
    def jvp(ctx: Any, _: Any, first: Any, second: Any, bias: Any, *rest: Any) -> torch.Tensor:
        """The change of the result with the inputs' changes; None for an input that stays."""
        saved, changes = ctx.saved_tensors, []
        if first is not None:
            changes.append(_contract(ctx.direction, first, saved[1], None, ctx.lengths, ctx.window))
        if second is not None:
            changes.append(_contract(ctx.direction, saved[0], second, None, ctx.lengths, ctx.window))
        if bias is not None:
            shape = decode(ctx.window).output_lengths(saved[0].shape, saved[1].shape)
            changes.append(bias.view(-1, *(1,) * (len(shape) - 2)).expand(shape))
        change: torch.Tensor = sum(changes[1:], changes[0])
        return change

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        saved, needs, window = ctx.saved_tensors, ctx.needs_input_grad, ctx.window
        roles, made = _INPUTS[ctx.direction], _MADE[ctx.direction]
        grads: list[torch.Tensor | None] = [None, None]
        for index in (0, 1):
            if needs[1 + index]:
                direction = _DIRECTION[roles[index]]
                given = {made: gradient, roles[1 - index]: saved[1 - index]}
                first, second = (given[role] for role in _INPUTS[direction])
                is_plain = not torch.is_grad_enabled() and are_plain(first, second)
                run = run_conv if is_plain else _contract
                grads[index] = run(direction, first, second, None, ctx.shapes[index], window)
        bias = gradient.sum((0, *range(2, gradient.dim()))) if needs[3] else None
        return None, *grads, bias, None, None, None


def differentiable(
    direction: str,
    first: torch.Tensor,
    second: torch.Tensor,
    bias: Any,
    lengths: Any,
    window: str,
    is_plain: bool = False,
) -> torch.Tensor:
    """A direction, recorded for gradients where they are asked for.

    ``is_plain``: the tensors are plain ones, see there; else the dispatcher has come to this operator's autograd.
    """
    wants = first.requires_grad or second.requires_grad or (bias is not None and bias.requires_grad)
    if (wants and torch.is_grad_enabled()) or is_forward_mode():
        result: torch.Tensor = record(_Conv, direction, first, second, bias, lengths, window, is_plain)
        return result
    return _below_autograd(direction, first, second, bias, lengths, window, is_plain)


library.impl("conv_fwd", lambda x, w, bias, window: differentiable("fwd", x, w, bias, None, window), "Autograd")
library.impl("conv_bwd", lambda dy, w, shape, window: differentiable("bwd", dy, w, None, shape, window), "Autograd")
library.impl("conv_wrw", lambda dy, x, shape, window: differentiable("wrw", dy, x, None, shape, window), "Autograd")
