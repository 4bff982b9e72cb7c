"""hipfind's own key of an upsampling problem: readable text that says everything that may change the answer.

``upsample-<direction>-bilinear-n<N>-c<C>-i<in>-o<out>-<dtype>-<layout>``

Sizes are height and width, joined by "x". The layout is one word where the input and the output agree, else two joined
by "_"; that of a tensor with gaps is ``*``. Behind it, only where they are not the default, in this order: ``-xs``,
``-ys``, backward ``-dys``, ``-dxs``, strides in elements of the tensors with gaps; ``-ac`` align_corners;
``-sh<scale>``, ``-sw<scale>`` scale factors of height and width as Python writes a float; ``-det`` deterministic.

Equal problems have one key and different problems different ones, so the key can stand for the problem anywhere.
"""

from __future__ import annotations

import re

from hipfind.errors import ParseError
from hipfind.problem.dtypes import DType
from hipfind.problem.tensor import LAYOUTS, TensorDescriptor, by_axis, one_word, packed_strides
from hipfind.problem.upsample import DIRECTIONS, FIELDS, UpsampleProblem

EXAMPLE = "upsample-bwd-bilinear-n1-c3-i32x32-o64x64-fp32-NCHW"

_INT = r"\d{1,30}"  # what int() takes at once
_SIZE = rf"{_INT}x{_INT}"
_STRIDES = rf"{_INT}(?:x{_INT}){{3}}"
_FLOAT = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_DTYPE = "|".join(dtype.value for dtype in DType)
_LAYOUT = r"(?:\*|" + "|".join(LAYOUTS[2]) + ")"
_KEY = re.compile(
    rf"upsample-(?P<direction>{'|'.join(DIRECTIONS)})-bilinear-n(?P<n>{_INT})-c(?P<c>{_INT})"
    rf"-i(?P<in>{_SIZE})-o(?P<out>{_SIZE})-(?P<dtype>{_DTYPE})-(?P<layouts>{_LAYOUT}(?:_{_LAYOUT})?)"
    rf"(?:-dys(?P<dy>{_STRIDES}))?(?:-dxs(?P<dx>{_STRIDES}))?(?:-xs(?P<x>{_STRIDES}))?(?:-ys(?P<y>{_STRIDES}))?"
    rf"(?P<align_corners>-ac)?(?:-sh(?P<height>{_FLOAT}))?(?:-sw(?P<width>{_FLOAT}))?(?P<deterministic>-det)?",
    re.ASCII,
)


def encode_key(problem: UpsampleProblem) -> str:
    """The problem's key; see the module for its fields. ``parse_key`` inverts it."""
    p = problem
    fields = [
        f"upsample-{p.direction}-bilinear-n{p.n}-c{p.c}",
        f"i{by_axis(p.x.lengths[2:])}-o{by_axis(p.y.lengths[2:])}-{p.dtype.value}-{_layout(p)}",
    ]
    fields += [
        f"{role}s{by_axis(p.tensor(role).strides)}"
        for role, layout in zip(p.roles, p.layouts, strict=True)
        if not layout
    ]
    if p.align_corners:
        fields.append("ac")
    fields += [f"{name}{scale!r}" for name, scale in zip(("sh", "sw"), p.scales, strict=True) if scale is not None]
    if p.deterministic:
        fields.append("det")
    return "-".join(fields)


def facts_of(problem: UpsampleProblem) -> dict[str, int | str]:
    """``Problem.facts``: the numbers as the key writes them."""
    p = problem
    return {
        "layout": _layout(p),
        "n": p.n,
        "c": p.c,
        "input": by_axis(p.x.lengths[2:]),
        "output": by_axis(p.y.lengths[2:]),
    }


def _layout(p: UpsampleProblem) -> str:
    return one_word([layout or "*" for layout in p.layouts])


def parse_key(text: str) -> UpsampleProblem:
    """The problem of a key.

    Raises ParseError for text that is not a key, or not the one key of its problem (another spelling would not be
    found where keys are compared as text), ProblemError for fields that contradict each other.
    """
    match = _KEY.fullmatch(text)
    if match is None:
        raise ParseError("this is not an upsampling problem's key", got=text, remedy=f"a key looks like {EXAMPLE}")
    problem = _problem(match, text)
    key = encode_key(problem)
    if key != text:
        raise ParseError("this text spells its problem's key in another way", got=text, remedy=f"the key is {key}")
    return problem


def _problem(match: re.Match[str], text: str) -> UpsampleProblem:
    batch, direction = (int(match["n"]), int(match["c"])), match["direction"]
    layouts = match["layouts"].split("_")
    tensors = {}
    for (role, field), layout in zip(FIELDS[direction].items(), (layouts * 2)[:2], strict=True):
        lengths = (*batch, *_numbers(match[{"x": "in", "y": "out"}[field]]))
        strides = _strides(role, lengths, layout, text) if match[role] is None else _numbers(match[role])
        tensors[field] = TensorDescriptor(DType(match["dtype"]), lengths, strides)
    height, width = (None if match[name] is None else float(match[name]) for name in ("height", "width"))
    return UpsampleProblem(
        direction,
        tensors["x"],
        tensors["y"],
        align_corners=match["align_corners"] is not None,
        scales=(height, width),
        deterministic=match["deterministic"] is not None,
    )


def _numbers(field: str) -> tuple[int, ...]:
    return tuple(int(number) for number in field.split("x"))


def _strides(role: str, lengths: tuple[int, ...], layout: str, text: str) -> tuple[int, ...]:
    if layout == "*":
        raise ParseError("a key with layout '*' must give that tensor's strides", got=text, remedy=f"add -{role}s")
    return packed_strides(lengths, layout)
