"""Channel-last tensors for the implicit products: as they lie where they do, else a copy in the workspace.

A source is channel-last with a multiple of 8 channels, so that 16 bytes are loaded at a time. A few channels
(an image's three) are padded to 4, with zero borders around each image: then a row of a window is one run, and no place
needs a test.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from hipfind.invokers.steps import WORKSPACE, KernelStep, Operand
from hipfind.kernels.spec import Constants, TritonSpec
from hipfind.problem.conv import ConvProblem
from hipfind.problem.tensor import LAYOUTS, TensorDescriptor
from hipfind.solvers.igemm.base import VECTOR, aligned, three

FEW = 4
"""So few channels are made one run with the columns of a window."""
_PIXELS, _CHANNELS = 64, 64
"""Tile of a copy."""
_BLOCK = 1024


class Source(NamedTuple):
    """A channel-last tensor: the copy that makes it (or none), where it is, its extents and strides in elements."""

    steps: tuple[KernelStep, ...]
    operand: Operand
    c: int
    spatial: tuple[int, int, int]
    strides: tuple[int, int, int, int]
    nbytes: int
    """Bytes of workspace."""
    of_c: int = 1
    """Stride of channels."""


class Filters(NamedTuple):
    """Filters as the products read them: strides of output channel, summed channel, tap (three axes), group."""

    steps: tuple[KernelStep, ...]
    operand: Operand
    out: int
    summed: int
    taps: tuple[int, int, int]
    group: int
    nbytes: int


def has_runs(problem: ConvProblem) -> bool:
    """Whether the columns of a window and the few channels of x become one run."""
    return (
        problem.groups == 1 and problem.ndim == 2 and problem.c <= FEW and problem.filter[1] > 1
        and problem.dilation[1] == 1
    )  # fmt: skip


def source_of(problem: ConvProblem, role: str, offset: int, dynamic: bool = False, multiple: int = VECTOR) -> Source:
    """x or y, channel-last, a multiple of so many channels; a copy goes to ``offset`` of the workspace."""
    tensor = problem.tensor(role)
    n, c, *spatial = tensor.lengths
    if is_last(tensor) and (c % multiple == 0 or problem.groups > 1):
        return as_it_lies(problem, role)
    packed = packed_last(problem, role, offset, 1 if problem.groups > 1 else multiple)
    pixels = math.prod(spatial)
    step = copy_step(
        problem, Operand(role), packed.operand, (n, c, 1, pixels), _flat_strides(tensor), (0, 0), (1, pixels, packed.c),
        dynamic,
    )  # fmt: skip
    return packed._replace(steps=(step,))


def is_last(tensor: TensorDescriptor) -> bool:
    """Packed with channels innermost."""
    return tensor.is_packed_as(LAYOUTS[len(tensor.lengths) - 2][1])


def packed_last(problem: ConvProblem, role: str, offset: int, multiple: int = 1) -> Source:
    """Room in the workspace for x or y, channel-last, with a multiple of so many channels."""
    n, c, *spatial = problem.tensor(role).lengths
    c = -(-c // multiple) * multiple
    depth, height, width = three(tuple(spatial), 1)
    strides = (depth * height * width * c, height * width * c, width * c, c)
    nbytes = n * math.prod(spatial) * c * problem.dtype.itemsize
    return Source((), Operand(WORKSPACE, aligned(offset)), c, (depth, height, width), strides, nbytes)


def channel_first_step(problem: ConvProblem, source: Source, dynamic: bool = False) -> KernelStep:
    """Copy of a channel-last dx to x itself, which is packed channel-first: pixels and channels change places."""
    n, c, *spatial = problem.x.lengths
    pixels = math.prod(spatial)
    return copy_step(
        problem, source.operand, Operand("x"), (n, pixels, 1, c), (pixels * c, c, 0, 1), (0, 0), (1, c, pixels), dynamic
    )


def as_it_lies(problem: ConvProblem, role: str) -> Source:
    """x or y itself."""
    _, c, *spatial = problem.tensor(role).lengths
    image, of_c, *rest = problem.tensor(role).strides
    strides = (image, *three(tuple(rest), 0))
    return Source((), Operand(role), c, three(tuple(spatial), 1), strides, 0, of_c)


def runs_of(problem: ConvProblem, offset: int, columns: int = 0) -> Source:
    """x of few channels with borders of zeros, in rows of at least so many columns."""
    n, c, height, width = problem.x.lengths
    top, left = problem.pad
    bottom, right = problem.pad_end
    rows, vector = height + top + bottom, VECTOR // FEW
    columns = -(-max(columns, width + left + right) // vector) * vector
    step = copy_step(
        problem, Operand("x"), Operand(WORKSPACE, offset), (n, c, height, width), problem.x.strides, (top, left),
        (rows, columns, FEW),
    )  # fmt: skip
    nbytes = n * rows * columns * FEW * problem.dtype.itemsize
    strides = (rows * columns * FEW, 0, columns * FEW, FEW)
    return Source((step,), Operand(WORKSPACE, offset), FEW, (1, rows, columns), strides, nbytes)


def filters_of(problem: ConvProblem, padded: int, offset: int, merged: int, dynamic: bool = False) -> Filters:
    """w for sums over the source's channels, which are ``padded``: its own channels forward, the others backward."""
    k, c = problem.k // problem.groups, problem.c // problem.groups
    taps = math.prod(problem.filter)
    of_k, of_c = problem.w.strides[:2]
    of_tap = c if is_last(problem.w) else 1
    forward = problem.direction == "fwd"
    out, summed = (of_k, of_c) if forward else (of_c, of_k)
    summed_channels = c if forward else k
    in_vectors = is_last(problem.w) and c % VECTOR == 0
    if merged > 1:
        return _merged_filters(problem, offset, merged)
    if problem.groups > 1 or (in_vectors and summed_channels == padded):
        return Filters((), Operand("w"), out, summed, _tap_strides(problem, of_tap), k * of_k, 0)
    outs = k if forward else c
    step = copy_step(
        problem, Operand("w"), Operand(WORKSPACE, offset), (outs, summed_channels, 1, taps),
        (out, summed, 0, of_tap), (0, 0), (1, taps, padded), dynamic,
    )  # fmt: skip
    nbytes = outs * taps * padded * problem.dtype.itemsize
    strides = _tap_strides(problem, padded)
    return Filters((step,), Operand(WORKSPACE, offset), taps * padded, 1, strides, 0, nbytes)


def _merged_filters(problem: ConvProblem, offset: int, merged: int) -> Filters:
    """Several groups as one, with zeros between their channels."""
    taps = math.prod(problem.filter)
    k, c = problem.k // problem.groups, problem.c // problem.groups
    outs, summed = (k, c) if problem.direction == "fwd" else (c, k)
    of_k, of_c = problem.w.strides[:2]
    of_out, of_summed = (of_k, of_c) if problem.direction == "fwd" else (of_c, of_k)
    elements = problem.groups // merged * outs * merged * taps * summed * merged
    dtype = problem.dtype.value
    constants: Constants = (
        ("ELEMENTS", elements), ("MERGED", merged), ("OUTS", outs), ("SUMMED", summed), ("TAPS", taps),
        ("OUT_STRIDE", of_out), ("SUM_STRIDE", of_summed), ("TAP_STRIDE", c if is_last(problem.w) else 1),
        ("GROUP_STRIDE", k * of_k), ("BLOCK", _BLOCK),
    )  # fmt: skip
    spec = TritonSpec("pack.py", "merge_groups", (("w", dtype), ("out", dtype)), (), constants)
    nbytes = elements * problem.dtype.itemsize
    operand = Operand(WORKSPACE, offset)
    step = KernelStep(
        spec, (Operand("w"), operand), (), items=-(-elements // _BLOCK), flops=0, bytes=problem.w.nbytes + nbytes
    )
    row = summed * merged
    strides = _tap_strides(problem, row)
    return Filters((step,), operand, taps * row, 1, strides, outs * merged * taps * row, nbytes)


def copy_step(
    problem: ConvProblem, source: Operand, to: Operand, lengths: tuple[int, int, int, int],
    strides: tuple[int, ...], before: tuple[int, int], out: tuple[int, int, int], dynamic: bool = False,
) -> KernelStep:  # fmt: skip
    """Copy [n, c, h, w] with these strides to packed [n, out_h, out_w, out_c], zeros in front and behind."""
    n, c, h, w = lengths
    image, of_c, of_h, of_w = strides
    out_h, out_w, out_c = out
    numbers = {
        "c": c, "h": h, "w": w, "image_stride": image, "c_stride": of_c, "h_stride": of_h, "w_stride": of_w,
        "before_h": before[0], "before_w": before[1], "out_h": out_h, "out_w": out_w, "out_c": out_c,
    }  # fmt: skip
    tile_c = min(_CHANNELS, 1 << (out_c - 1).bit_length())
    tile_p = _PIXELS * _CHANNELS // tile_c
    fixed = {name: numbers.pop(name) for name in tuple(numbers) if not dynamic or numbers[name] in (0, 1)}
    integers = tuple((name, 16 if value % 16 == 0 else 1) for name, value in numbers.items())
    dtype = problem.dtype.value
    spec = TritonSpec(
        "pack.py", "pack", (("source", dtype), ("out", dtype)), integers,
        (*fixed.items(), ("BP", tile_p), ("BC", tile_c)),
    )  # fmt: skip
    size = problem.dtype.itemsize
    return KernelStep(
        spec, (source, to), tuple(numbers.values()),
        items=n * -(-out_h * out_w // tile_p) * -(-out_c // tile_c), flops=0,
        bytes=(n * c * h * w + n * out_h * out_w * out_c) * size,
    )  # fmt: skip


def _flat_strides(tensor: TensorDescriptor) -> tuple[int, int, int, int]:
    """Image, channel, row, pixel of a packed tensor whose pixels are counted as one."""
    image, of_c = tensor.strides[:2]
    of_pixel = 1 if of_c != 1 else tensor.lengths[1]
    return image, of_c, 0, of_pixel


def _tap_strides(problem: ConvProblem, of_tap: int) -> tuple[int, int, int]:
    *_, height, width = (1, *problem.filter)
    return (height * width * of_tap, width * of_tap, of_tap)
