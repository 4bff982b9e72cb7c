"""The functions of hipfind.torch: those of torch.nn.functional with the same arguments, by hipfind's solvers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from hipfind.errors import ArrayError, ProblemError
from hipfind.torch.conv_operators import conv_fwd, differentiable
from hipfind.torch.plain import are_plain
from hipfind.torch.upsample_operators import Scale, resize, torch_forward
from hipfind.torch.window import make_window, make_window_cached

Numbers = int | Iterable[int]


def conv2d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Numbers = 1,
    padding: str | Numbers = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> torch.Tensor:
    """torch.nn.functional.conv2d. input: [N, C, H, W] or [C, H, W]; weight: [K, C/groups, R, S].

    Raises ProblemError, ArrayError; NoSolutionError where no solver takes the dtype or the device.
    """
    return convolution(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Numbers = 1,
    padding: str | Numbers = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> torch.Tensor:
    """torch.nn.functional.conv3d. input: [N, C, D, H, W] or [C, D, H, W]; weight: [K, C/groups, T, R, S]."""
    return convolution(3, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose2d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> torch.Tensor:
    """torch.nn.functional.conv_transpose2d. input: [N, C, H, W] or [C, H, W]; weight: [C, K/groups, R, S]."""
    return convolution(2, input, weight, bias, stride, padding, dilation, groups, output_padding, True)


def upsample_bilinear2d(
    input: torch.Tensor,
    size: Numbers | None = None,
    scale_factor: float | Iterable[float] | None = None,
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
) -> torch.Tensor:
    """torch.nn.functional.interpolate of mode "bilinear". input: [N, C, H, W]; ``size`` or ``scale_factor`` is given.

    Integers, which have no solver, are left to torch. Raises ArrayError, ProblemError; NoSolutionError where no solver
    takes the dtype or the device.
    """
    return upsampling(input, size, scale_factor, align_corners, recompute_scale_factor)


def upsampling(
    x: torch.Tensor,
    size: Numbers | None,
    scale_factor: float | Iterable[float] | None,
    align_corners: bool | None,
    recompute_scale_factor: bool | None,
    by_torch: tuple[str, ...] = (),
) -> torch.Tensor:
    """upsample_bilinear2d. ``by_torch``: the directions that torch's own operators run."""
    extents, scales = output_size(x, size, scale_factor, recompute_scale_factor)
    if not x.is_floating_point():
        made: torch.Tensor = torch_forward(x, extents, bool(align_corners), *scales)
        return made
    return resize(x, extents, bool(align_corners), scales, by_torch)


def output_size(
    x: torch.Tensor,
    size: Numbers | None,
    scale_factor: float | Iterable[float] | None,
    recompute_scale_factor: bool | None,
) -> tuple[list[int], tuple[Scale, Scale]]:
    """The output's height and width, and the scales that coordinates are computed from, as torch does it."""
    if x.dim() != 4:
        raise ArrayError("input must have 4 dimensions (N, C, H, W)", got=f"{x.dim()}")
    if (size is None) == (scale_factor is None):
        raise ProblemError("either size or scale_factor must be given", got=f"size={size}, scale_factor={scale_factor}")
    if size is not None:
        return _two("size", size), (None, None)
    scale_h, scale_w = _two("scale_factor", scale_factor)
    extents = [math.floor(float(x.shape[2]) * scale_h), math.floor(float(x.shape[3]) * scale_w)]
    return extents, (None, None) if recompute_scale_factor else (float(scale_h), float(scale_w))


def _two(name: str, value: Any) -> list[Any]:
    numbers = list(value) if isinstance(value, Iterable) else [value, value]
    if len(numbers) != 2:
        raise ProblemError(f"{name} needs one number, or two for height and width", got=f"{value}")
    return numbers


def convolution(
    ndim: int,
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Numbers,
    padding: str | Numbers,
    dilation: Numbers,
    groups: int,
    output_padding: Numbers = 0,
    is_transposed: bool = False,
    by_torch: tuple[str, ...] = (),
) -> torch.Tensor:
    """Any of the above. ``by_torch``: the directions that torch's own operators run."""
    x, w, bias, is_batched, window = prepare(
        ndim, x, w, bias, stride, padding, dilation, groups, output_padding, is_transposed, by_torch
    )
    y: torch.Tensor
    if torch.compiler.is_compiling() or not are_plain(x, w):
        y = conv_fwd(x, w, bias, window)
    else:
        y = differentiable("fwd", x, w, bias, None, window, is_plain=True)
    return y if is_batched else y.squeeze(0)


def prepare(
    ndim: int,
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Numbers,
    padding: str | Numbers,
    dilation: Numbers,
    groups: int,
    output_padding: Numbers = 0,
    is_transposed: bool = False,
    by_torch: tuple[str, ...] = (),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, bool, str]:
    """What the operator takes: tensors cast by autocast and with a batch, whether x had one, the window's text."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        x, w = _autocast(x, dtype), _autocast(w, dtype)
        bias = None if bias is None else _autocast(bias, dtype)
    is_batched = x.dim() == ndim + 2
    if not is_batched:
        if x.dim() != ndim + 1:
            raise ArrayError(f"input must have {ndim + 1} or {ndim + 2} dimensions", got=f"{x.dim()}")
        x = x.unsqueeze(0)
    # torch's compiler traces Python and has no use for the cache
    make = make_window if torch.compiler.is_compiling() else make_window_cached
    window = make(
        ndim, w.shape[2:] if isinstance(padding, str) else (), _hashable(stride), _hashable(padding),
        _hashable(dilation), _hashable(output_padding), groups, is_transposed,
        is_channel_last(x) or is_channel_last(w), by_torch,
    )  # fmt: skip
    return x, w, bias, is_batched, window


def _autocast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """As torch's autocast: of the float types all but fp64 are cast."""
    return tensor if tensor.dtype is torch.float64 or not tensor.is_floating_point() else tensor.to(dtype)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def is_channel_last(tensor: torch.Tensor) -> bool:
    """Whether torch would call this memory channel-last: channels next to each other, and not also channel-first."""
    return not tensor.is_contiguous() and tensor.stride(1) == 1 and tensor.shape[1] > 1
