"""The rules of a convolution problem: how its numbers are read, computed and checked. Messages name the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hipfind.errors import ProblemError
from hipfind.problem.dtypes import DType
from hipfind.problem.tensor import LAYOUTS, TensorDescriptor, whole_numbers

if TYPE_CHECKING:
    from hipfind.problem.conv import ConvProblem

DIRECTIONS = ("fwd", "bwd", "wrw")
MODES = ("convolution", "transpose")
_COMPUTE = ("", "tf32")


def lengths_of(name: str, values: Sequence[int]) -> tuple[int, ...]:
    """Lengths as a tuple of ints; 4 or 5 of them."""
    lengths = whole_numbers(name, values)
    if len(lengths) not in (4, 5):
        raise ProblemError(f"{name} needs 4 lengths (N, C, H, W) or 5 (N, C, D, H, W)", got=f"{name}={lengths}")
    return lengths


def per_axis(name: str, value: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    """One number an axis from one number or a sequence."""
    if isinstance(value, Sequence):
        numbers = whole_numbers(name, value)
        if len(numbers) != ndim:
            raise ProblemError(f"{name} needs one number, or {ndim} for {ndim} spatial dimensions", got=f"{value}")
        return numbers
    return whole_numbers(name, (value,)) * ndim


def pads(name: str, value: int | Sequence[Any], ndim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding before and after each axis, from one number, one an axis, or (begin, end) an axis (nested or flat)."""
    if not isinstance(value, Sequence):
        both = per_axis(name, value, ndim)
        return both, both
    if len(value) == ndim and all(isinstance(pair, Sequence) for pair in value):
        pairs = [whole_numbers(name, pair) for pair in value]
        if all(len(pair) == 2 for pair in pairs):
            return tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
    elif len(value) == ndim:
        both = whole_numbers(name, value)
        return both, both
    elif len(value) == 2 * ndim:
        flat = whole_numbers(name, value)
        return flat[0::2], flat[1::2]
    raise ProblemError(
        f"{name} needs one number, {ndim} numbers, or a (begin, end) pair for each of {ndim} axes", got=f"{value}"
    )


def mode_name(mode: str) -> str:
    """ "convolution" or "transpose", also from MIOpenDriver's "conv" and "trans"."""
    name = {"conv": "convolution", "trans": "transpose"}.get(mode, mode)
    if name not in MODES:
        raise ProblemError("unknown mode", got=mode, remedy="legal: " + ", ".join(MODES))
    return name


def number(name: str, value: object) -> float:
    """``value`` as a finite float; -0.0 becomes 0.0, so that equal problems have equal text."""
    try:
        scale = float(value) + 0.0  # type: ignore[arg-type]  # whatever float() takes, its errors are caught
    except (TypeError, ValueError, OverflowError):
        scale = math.nan
    if not math.isfinite(scale):
        raise ProblemError(f"{name} must be a finite number", got=f"{value!r}")
    return scale


def layout_names(layout: str | Sequence[str], ndim: int) -> tuple[str, str, str]:
    """Layout of x, w, y from one name, three names, or "" (channel-first)."""
    names = layout if isinstance(layout, (list, tuple)) else (layout,) * 3
    if len(names) != 3:
        raise ProblemError("layout is one name, or three for x, w, y", got=f"{layout}")
    filled = tuple(str(name or LAYOUTS[ndim][0]).upper() for name in names)
    for name in filled:
        if name not in LAYOUTS[ndim]:
            raise ProblemError(
                f"unknown layout for {ndim} spatial dimensions", got=name, remedy="legal: " + ", ".join(LAYOUTS[ndim])
            )
    return (filled[0], filled[1], filled[2])


def dtype_triple(dtype: object) -> tuple[DType, DType, DType]:
    """Dtypes of x, w, y from one or three."""
    if isinstance(dtype, (list, tuple)):
        if len(dtype) != 3:
            raise ProblemError("dtype is one name, or three for x, w, y", got=f"{dtype}")
        return (DType.parse(dtype[0]), DType.parse(dtype[1]), DType.parse(dtype[2]))
    one = DType.parse(dtype)
    return (one, one, one)


def output_lengths(
    x: tuple[int, ...],
    w: tuple[int, ...],
    stride: tuple[int, ...],
    pad: tuple[int, ...],
    pad_end: tuple[int, ...],
    dilation: tuple[int, ...],
    *,
    groups: int,
    mode: str,
    output_padding: tuple[int, ...],
) -> tuple[int, ...]:
    """Lengths of y. Raises ProblemError where an output extent would be less than 1."""
    check_ranks(x, w)
    _check_positive(stride, "stride", 1)
    _check_positive(dilation, "dilation", 1)
    _check_output_padding(output_padding, stride, mode)
    extents = []
    for axis, (size, taps) in enumerate(zip(x[2:], w[2:], strict=True)):
        reach = dilation[axis] * (taps - 1) + 1
        padding = pad[axis] + pad_end[axis]
        if mode == "transpose":
            extent = (size - 1) * stride[axis] - padding + reach + output_padding[axis]
        else:
            extent = (size + padding - reach) // stride[axis] + 1
        if extent < 1:
            raise ProblemError(
                f"the filter is larger than the padded image on spatial axis {axis}"
                if mode == "convolution"
                else f"the output extent is less than 1 on spatial axis {axis}",
                got=f"image {size} + padding {padding}, filter {taps} with dilation {dilation[axis]} = {reach}",
            )
        extents.append(extent)
    channels = w[0] if mode == "convolution" else w[1] * groups
    return (x[0], channels, *extents)


def joint_layouts(x: TensorDescriptor, w: TensorDescriptor, y: TensorDescriptor) -> tuple[str, str, str]:
    """Layouts of the three tensors: the first that all share, else the first that each has, "" for one with gaps.

    One tensor alone may be ambiguous (C = 1, or 1x1 spatial); the others decide, as in MIOpen.
    """
    each = [tensor.layouts() for tensor in (x, w, y)]
    for name in LAYOUTS[x.ndim_spatial]:
        if all(name in names for names in each):
            return (name, name, name)
    first = [names[0] if names else "" for names in each]
    return (first[0], first[1], first[2])


def check_ranks(*lengths: tuple[int, ...]) -> None:
    """Raise ProblemError for tensors of different numbers of dimensions."""
    if len({len(sizes) for sizes in lengths}) != 1:
        raise ProblemError("x, w and y need the same number of dimensions", got=", ".join(map(str, lengths)))


def check(problem: ConvProblem) -> None:
    """Raise ProblemError for the first rule that the problem breaks."""
    if problem.direction not in DIRECTIONS:
        raise ProblemError("unknown direction", got=problem.direction, remedy="legal: " + ", ".join(DIRECTIONS))
    mode_name(problem.mode)
    if problem.compute not in _COMPUTE:
        raise ProblemError("unknown compute type", got=problem.compute, remedy='legal: "" (the usual one), "tf32"')
    if problem.compute == "tf32" and problem.x.dtype is not DType.FP32:
        raise ProblemError("compute type tf32 needs fp32 tensors", got=problem.x.dtype.value)
    _check_dtypes(problem)
    _check_numbers(problem)
    _check_channels(problem)
    _check_extents(problem)
    output = problem.tensor(problem.output)
    if output.overlaps_itself():
        raise ProblemError(
            f"the output {problem.output} must not overlap itself in memory",
            got=f"lengths {output.lengths}, strides {output.strides}",
        )


def _check_dtypes(problem: ConvProblem) -> None:
    kinds = (problem.x.dtype, problem.w.dtype, problem.y.dtype)
    if len(set(kinds)) == 1 and kinds[0].is_float:
        return
    is_int8 = kinds[:2] == (DType.INT8, DType.INT8) and kinds[2] in (DType.INT8, DType.INT32, DType.FP32)
    if is_int8 and problem.direction == "fwd" and problem.mode == "convolution":
        return
    raise ProblemError(
        "x, w and y must have the same float dtype (or int8 in and int8, int32 or fp32 out, forward only)",
        got=f"x {kinds[0].value}, w {kinds[1].value}, y {kinds[2].value}, {problem.direction} {problem.mode}",
    )


def _check_numbers(problem: ConvProblem) -> None:
    check_ranks(problem.x.lengths, problem.w.lengths, problem.y.lengths)
    for name in ("stride", "pad", "pad_end", "dilation"):
        values = getattr(problem, name)
        if len(values) != problem.ndim:
            raise ProblemError(f"{name} needs {problem.ndim} numbers for {problem.ndim} spatial dimensions",
                               got=f"{values}")  # fmt: skip
        _check_positive(values, name, 0 if name.startswith("pad") else 1)
    for role in ("x", "w", "y"):
        lengths = problem.tensor(role).lengths
        first = 1 if role == "w" else 0
        if any(length < 1 for length in lengths[1:]) or lengths[0] < first:
            raise ProblemError(
                f"{role} needs channels and extents of 1 or more (only the batch may be 0)", got=f"{role}={lengths}"
            )


def _check_channels(problem: ConvProblem) -> None:
    groups, transposed = problem.groups, problem.mode == "transpose"
    if groups < 1:
        raise ProblemError("groups must be 1 or more", got=groups)
    if problem.x.lengths[0] != problem.y.lengths[0]:
        raise ProblemError("x and y need the same batch", got=f"x={problem.x.lengths}, y={problem.y.lengths}")
    if problem.c % groups or problem.k % groups:
        raise ProblemError(
            "channels of x and of y must be divisible by groups", got=f"C={problem.c}, K={problem.k}, groups={groups}"
        )
    want_first, other = (problem.c, problem.k) if transposed else (problem.k, problem.c)
    want_second = other // groups
    if problem.w.lengths[:2] != (want_first, want_second):
        order = "[C, K/groups, ...]" if transposed else "[K, C/groups, ...]"
        raise ProblemError(
            f"w must be {order} = [{want_first}, {want_second}, ...] for C={problem.c}, K={problem.k}, groups={groups}",
            got=f"w={problem.w.lengths}",
        )


def _check_extents(problem: ConvProblem) -> None:
    small, large = (problem.y, problem.x) if problem.mode == "convolution" else (problem.x, problem.y)
    for axis in range(problem.ndim):
        reach = problem.dilation[axis] * (problem.filter[axis] - 1) + 1
        padded = large.lengths[2 + axis] + problem.pad[axis] + problem.pad_end[axis]
        if reach > padded:
            raise ProblemError(
                f"the filter is larger than the padded image on spatial axis {axis}",
                got=f"filter {problem.filter[axis]} with dilation {problem.dilation[axis]} = {reach}, image {padded}",
            )
        expected = (padded - reach) // problem.stride[axis] + 1
        actual = small.lengths[2 + axis]
        if actual != expected:
            name = "y" if problem.mode == "convolution" else "x"
            raise ProblemError(
                f"extent of {name} on spatial axis {axis} must be {expected}",
                got=f"{actual}",
                remedy="extent = (image + padding - dilation * (filter - 1) - 1) // stride + 1",
            )


def _check_output_padding(output_padding: tuple[int, ...], stride: tuple[int, ...], mode: str) -> None:
    if mode != "transpose" and any(output_padding):
        raise ProblemError("output_padding needs mode transpose", got=f"{output_padding}")
    if any(extra < 0 or extra >= step for extra, step in zip(output_padding, stride, strict=True)):
        raise ProblemError(
            "output_padding must be 0 or more and less than the stride on every axis",
            got=f"output_padding {output_padding}, stride {stride}",
        )


def _check_positive(values: Sequence[int], name: str, least: int) -> None:
    if any(value < least for value in values):
        raise ProblemError(f"{name} must be {least} or more on every axis", got=f"{tuple(values)}")
