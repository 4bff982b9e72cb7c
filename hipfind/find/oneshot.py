"""The one-shot functions: arrays in, result out, by the best known solution and without a Find.

They run where the arrays lie. Problems are kept by what the arrays look like, so that a repeated call costs little.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from hipfind.device.arrays import device_of
from hipfind.device.base import Device
from hipfind.errors import ProblemError
from hipfind.find.plan import make_plan
from hipfind.find.session import session_for
from hipfind.problem.conv import ConvProblem
from hipfind.problem.tensor import TensorDescriptor, whole_numbers
from hipfind.problem.upsample import UpsampleProblem

_KEPT_PROBLEMS = 4096


def conv(
    x: Any,
    w: Any,
    stride: int | Sequence[int] = 1,
    pad: int | Sequence[Any] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    out: Any = None,
    device: str | Device | None = None,
) -> Any:
    """y = conv(x, w). x: [N, C, *in], w: [K, C/groups, *filter], 2D or 3D; returns y: [N, K, *out] of x's kind.

    y takes x's memory layout (channel-last when x is). ``device`` None is the one that x lies on. Raises ProblemError,
    ArrayError.
    """
    return _run("fwd", x, w, (), (stride, pad, dilation, groups), out, device)


def conv_bwd_data(
    dy: Any,
    w: Any,
    x_shape: Sequence[int],
    stride: int | Sequence[int] = 1,
    pad: int | Sequence[Any] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    out: Any = None,
    device: str | Device | None = None,
) -> Any:
    """dx of y = conv(x, w). dy: [N, K, *out], w: [K, C/groups, *filter]; returns dx with lengths ``x_shape``.

    ``device`` and errors are conv's.
    """
    return _run("bwd", dy, w, x_shape, (stride, pad, dilation, groups), out, device)


def conv_bwd_weights(
    dy: Any,
    x: Any,
    w_shape: Sequence[int],
    stride: int | Sequence[int] = 1,
    pad: int | Sequence[Any] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    out: Any = None,
    device: str | Device | None = None,
) -> Any:
    """dw of y = conv(x, w). dy: [N, K, *out], x: [N, C, *in]; returns dw with lengths ``w_shape``.

    ``device`` and errors are conv's.
    """
    return _run("wrw", dy, x, w_shape, (stride, pad, dilation, groups), out, device)


def upsample_bilinear2d_backward(
    dy: Any,
    input_size: Sequence[int],
    align_corners: bool = False,
    scales: float | Sequence[float | None] | None = None,
    *,
    out: Any = None,
    device: str | Device | None = None,
) -> Any:
    """dx of y = bilinear resizing of x to y's size, as torch does it. dy: [N, C, out H, out W]; returns [N, C, H, W].

    ``input_size``: (H, W). ``scales``: the scale factor, or those of height and width, where the forward pass took its
    coordinates from them (torch's ``scale_factor`` unless it was recomputed). dx takes dy's memory layout, or is
    written to ``out``, whatever its strides. ``device`` and errors are conv's.
    """
    tensor, into = TensorDescriptor.of(dy), None if out is None else TensorDescriptor.of(out)
    problem = _upsample_problem(tensor, into, _frozen(input_size), align_corners, _frozen(scales))
    session = session_for(device_of(dy) if device is None else device)
    return make_plan(problem, session)(dy, out=out)


def _run(
    direction: str,
    first: Any,
    second: Any,
    lengths: Sequence[int],
    window: tuple[Any, ...],
    out: Any,
    device: str | Device | None,
) -> Any:
    tensors = TensorDescriptor.of(first), TensorDescriptor.of(second)
    problem = _problem(direction, *tensors, _frozen(lengths), *map(_frozen, window))
    session = session_for(device_of(first) if device is None else device)
    return make_plan(problem, session)(first, second, out=out)


@functools.lru_cache(_KEPT_PROBLEMS)
def _problem(
    direction: str,
    first: TensorDescriptor,
    second: TensorDescriptor,
    lengths: tuple[int, ...],
    stride: Any,
    pad: Any,
    dilation: Any,
    groups: int,
) -> ConvProblem:
    """The problem of a call; ``first`` and ``second`` are its inputs, ``lengths`` those of its output if not fwd."""
    given = dict(zip({"fwd": "xw", "bwd": "yw", "wrw": "yx"}[direction], (first, second), strict=True))
    made = next(role for role in "xwy" if role not in given)
    sizes: dict[str, Any] = {role: tensor.lengths for role, tensor in given.items()} | {made: lengths or None}
    dtypes = {role: tensor.dtype for role, tensor in given.items()} | {made: first.dtype}
    strides: dict[str, Any] = {f"{role}_strides": tensor.strides for role, tensor in given.items()}
    return ConvProblem.create(
        direction, **sizes, stride=stride, pad=pad, dilation=dilation, groups=groups,
        dtype=(dtypes["x"], dtypes["w"], dtypes["y"]), layout=_layout_of(first, second), **strides,
    )  # fmt: skip


@functools.lru_cache(_KEPT_PROBLEMS)
def _upsample_problem(
    dy: TensorDescriptor, out: TensorDescriptor | None, input_size: Any, align_corners: bool, scales: Any
) -> UpsampleProblem:
    """The problem of a call. An ``out`` that does not fit is left to the plan to refuse."""
    size = whole_numbers("input_size", input_size)
    if len(size) != 2:
        raise ProblemError("input_size needs 2 numbers: height and width", got=f"{size}")
    lengths = (*dy.lengths[:2], *size)
    layouts = dy.layouts() if len(dy.lengths) == len(lengths) else ()
    return UpsampleProblem.create(
        "bwd", lengths, dy.lengths, align_corners=align_corners, scales=scales, dtype=dy.dtype,
        layout=next(iter(layouts), ""), y_strides=dy.strides,
        x_strides=out.strides if out is not None and out.lengths == lengths else None,
    )  # fmt: skip


def _frozen(value: Any) -> Any:
    """Lists and arrays as tuples, so that they can be part of a key."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _layout_of(first: TensorDescriptor, second: TensorDescriptor) -> str:
    """Layout of a tensor that hipfind makes: the first one common to both, else the first one's, else channel-first."""
    both = [name for name in first.layouts() if name in second.layouts()]
    names = both or first.layouts()
    return names[0] if names else ""
