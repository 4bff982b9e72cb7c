"""The one-shot functions: arrays in, result out, by the best known solution and without a Find.

They run where the arrays lie. Problems are kept by what the arrays look like, so that a repeated call costs little.
"""

from __future__ import annotations

import dataclasses
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


def upsample_bilinear2d(
    x: Any,
    output_size: Sequence[int] | None = None,
    align_corners: bool = False,
    scales: float | Sequence[float | None] | None = None,
    *,
    out: Any = None,
    device: str | Device | None = None,
) -> Any:
    """y: x resized bilinearly, as torch does it. x: [N, C, H, W]; returns [N, C, out H, out W].

    ``output_size``: (out H, out W), or None to have it computed from ``scales``. ``scales``: the scale factor, or those
    of height and width, where coordinates are to be taken from them and not from the sizes (torch's ``scale_factor``
    unless it is recomputed). y takes x's memory layout, or is written to ``out``, whatever its strides. ``device`` and
    errors are conv's.
    """
    tensor, into = TensorDescriptor.of(x), None if out is None else TensorDescriptor.of(out)
    size = None if output_size is None else _frozen(output_size)
    problem = _upsample_problem("fwd", tensor, into, size, align_corners, _frozen(scales))
    session = session_for(device_of(x) if device is None else device)
    return make_plan(problem, session)(x, out=out)


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
    problem = _upsample_problem("bwd", tensor, into, _frozen(input_size), align_corners, _frozen(scales))
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
    direction: str,
    given: TensorDescriptor,
    out: TensorDescriptor | None,
    made_size: Any,
    align_corners: bool,
    scales: Any,
) -> UpsampleProblem:
    """The problem of a call; ``made_size``: the output's. An ``out`` that does not fit is left to the plan."""
    lengths = None
    if direction == "bwd" or made_size is not None:
        name = "input_size" if direction == "bwd" else "output_size"
        size = whole_numbers(name, made_size)
        if len(size) != 2:
            raise ProblemError(f"{name} needs 2 numbers: height and width", got=f"{size}")
        lengths = (*given.lengths[:2], *size)
    layouts = given.layouts() if len(given.lengths) == 4 else ()
    role, made_role = ("x", "y") if direction == "fwd" else ("y", "x")
    sizes: dict[str, Any] = {role: given.lengths, made_role: lengths, f"{role}_strides": given.strides}
    problem = UpsampleProblem.create(
        direction, align_corners=align_corners, scales=scales, dtype=given.dtype, layout=next(iter(layouts), ""),
        **sizes,
    )  # fmt: skip
    made = problem.tensor(problem.output)
    if out is None or out.lengths != made.lengths:
        return problem
    made = TensorDescriptor(made.dtype, out.lengths, out.strides)
    return dataclasses.replace(problem, y=made) if direction == "fwd" else dataclasses.replace(problem, x=made)


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
