"""Hypothesis strategies for legal problems, small enough to be solved by every solver in a test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from hipfind.problem import ConvProblem, UpsampleProblem
from hipfind.problem.tensor import LAYOUTS, packed_strides

FLOATS = ("fp64", "fp32", "fp16", "bf16")


@st.composite
def conv_problems(
    draw: st.DrawFn,
    *,
    directions: Sequence[str] = ("fwd", "bwd", "wrw"),
    modes: Sequence[str] = ("convolution", "transpose"),
    ndims: Sequence[int] = (2, 3),
    dtypes: Sequence[str] = FLOATS,
    layouts: Sequence[str] = ("first", "last", "mixed"),
    packed: bool = False,
    grouped: bool = True,
    asymmetric_pads: bool = True,
    scaling: bool = False,
    attributes: bool = False,
    empty: bool = True,
    max_elements: int = 4096,
) -> ConvProblem:
    """Problems with groups (depthwise too), dilation, a stride and pads for each axis, extents of 1 and more.

    ``layouts``: all tensors channel-first, all channel-last, or each its own. Without ``packed`` tensors also have
    padded or permuted axes, and inputs repeat along an axis (stride 0). ``grouped`` and ``asymmetric_pads`` allow
    groups and pads that differ before and after an axis, ``scaling`` alpha and beta, ``attributes`` deterministic and
    tf32 (with fp32), ``empty`` a batch of 0. No tensor has more than ``max_elements`` elements (1500 at least).
    """
    ndim, mode, direction = (
        draw(st.sampled_from(ndims)),
        draw(st.sampled_from(modes)),
        draw(st.sampled_from(directions)),
    )
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(_shapes(ndim, mode, grouped, asymmetric_pads, empty, max_elements))
    kind = draw(st.sampled_from(layouts))
    one = st.sampled_from(LAYOUTS[ndim])
    fixed = {"first": 0, "last": 1}.get(kind)
    names = draw(st.tuples(one, one, one)) if fixed is None else (LAYOUTS[ndim][fixed],) * 3
    more: dict[str, Any] = {}
    if not packed:
        output = {"fwd": "y", "bwd": "x", "wrw": "w"}[direction]
        for role, name in zip("xwy", names, strict=True):
            more[f"{role}_strides"] = draw(_strides(shape[role], name, may_repeat=role != output))
    if scaling:
        numbers = st.sampled_from((0.0, 1.0, -0.5, 2.0, 1e-3))
        more |= {"alpha": draw(numbers), "beta": draw(numbers)}
    if attributes:
        more["deterministic"] = draw(st.booleans())
        more["compute"] = draw(st.sampled_from(("", "tf32"))) if dtype == "fp32" else ""
    return ConvProblem.create(direction, dtype=dtype, layout=names, mode=mode, **shape, **more)


@st.composite
def upsample_problems(
    draw: st.DrawFn,
    *,
    directions: Sequence[str] = ("bwd",),
    dtypes: Sequence[str] = FLOATS,
    layouts: Sequence[str] = ("first", "last", "mixed"),
    packed: bool = False,
    empty: bool = True,
    max_size: int = 40,
) -> UpsampleProblem:
    """Resizing to more and to fewer pixels, by other ratios in height and width, by sizes or by scale factors.

    ``layouts``, ``packed`` and ``empty`` as for convolutions. Heights and widths are 1 to ``max_size``.
    """
    n, c = draw(st.integers(0 if empty else 1, 2)), draw(st.sampled_from((1, 2, 3, 8, 16)))
    size = (draw(st.integers(1, 9)), draw(st.integers(1, 9)))
    scales: tuple[float, ...] | None = None
    if draw(st.booleans()):
        scales = tuple(
            draw(
                st.floats(1.0 / extent, max_size / extent) | st.sampled_from((0.5, 1.0, 2.0)).map(lambda s: max(s, 1.0))
            )
            for extent in size
        )
        out = tuple(math.floor(extent * scale) for extent, scale in zip(size, scales, strict=True))
    else:
        out = (draw(st.integers(1, max_size)), draw(st.integers(1, max_size)))
    if out[0] < 1 or out[1] < 1:  # 1 / extent * extent may fall short of 1
        scales, out = None, (max(out[0], 1), max(out[1], 1))
    kind = draw(st.sampled_from(layouts))
    one = st.sampled_from(LAYOUTS[2])
    fixed = {"first": 0, "last": 1}.get(kind)
    names = draw(st.tuples(one, one)) if fixed is None else (LAYOUTS[2][fixed],) * 2
    direction = draw(st.sampled_from(directions))
    lengths = {"y": (n, c, *out), "x": (n, c, *size)}
    strides = {
        f"{role}_strides": packed_strides(lengths[role], name)
        if packed
        else draw(_strides(lengths[role], name, may_repeat=role == ("y" if direction == "bwd" else "x")))
        for role, name in zip(lengths, names, strict=True)
    }
    return UpsampleProblem.create(
        direction, **lengths, align_corners=draw(st.booleans()), scales=scales, dtype=draw(st.sampled_from(dtypes)),
        deterministic=draw(st.booleans()), **strides,
    )  # fmt: skip


@st.composite
def _shapes(
    draw: st.DrawFn, ndim: int, mode: str, grouped: bool, asymmetric: bool, empty: bool, max_elements: int
) -> dict[str, Any]:
    """Lengths, stride, pads, dilation and groups that fit together: the large image follows from the small one."""
    groups = draw(st.integers(1, 4)) if grouped else 1
    c, k = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    n = draw(st.integers(0 if empty else 1, 3))

    def per_axis(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.tuples(*[st.integers(least, most)] * ndim)))

    taps, stride, dilation, begin, small = (
        per_axis(1, 3),
        per_axis(1, 3),
        per_axis(1, 2),
        per_axis(0, 2),
        per_axis(1, 3),
    )
    end = per_axis(0, 2) if asymmetric else begin
    spare = per_axis(0, 2)

    def large(of: tuple[int, ...]) -> tuple[int, ...]:
        """Extents of the image that ``of`` output positions look at, at least 1."""
        return tuple(
            (count - 1) * step + spread * (tap - 1) + 1 + min(extra, step - 1) - before - after
            for count, step, spread, tap, extra, before, after in zip(
                of, stride, dilation, taps, spare, begin, end, strict=True
            )
        )

    if max(n, 1) * max(c, k) * math.prod(large(small)) > max_elements:
        n, small, spare = min(n, 1), (1,) * ndim, (0,) * ndim
    if min(large(small)) < 1:  # the pads alone hold the window, and an image must have a pixel
        begin = end = (0,) * ndim
        small = (1,) * ndim
    image = large(small)
    x, y = (image, small) if mode == "convolution" else (small, image)
    first, second = (k, c) if mode == "convolution" else (c, k)
    return {
        "x": (n, c, *x),
        "w": (first, second // groups, *taps),
        "y": (n, k, *y),
        "stride": stride,
        "pad": tuple(zip(begin, end, strict=True)),
        "dilation": dilation,
        "groups": groups,
    }


@st.composite
def _strides(draw: st.DrawFn, lengths: tuple[int, ...], layout: str, may_repeat: bool) -> tuple[int, ...]:
    """Strides of a tensor that is packed, or cut out of a larger one, or permuted, or repeated along an axis."""
    rank = len(lengths)
    kind = draw(st.sampled_from(("packed", "padded", "permuted", *(("repeated",) if may_repeat else ()))))
    if kind == "padded":
        larger = [length + draw(st.integers(0, 2)) for length in lengths]
        return packed_strides(larger, layout)
    strides = list(packed_strides(lengths, layout))
    if kind == "permuted":
        step = draw(st.integers(1, 2))
        for axis in draw(st.permutations(range(rank))):
            strides[axis] = step
            step *= max(lengths[axis], 1) + draw(st.integers(0, 1))
    if kind == "repeated":
        strides[draw(st.integers(0, rank - 1))] = 0
    return tuple(strides)
