"""hipfind's own key of a convolution problem: readable text that says everything that may change the answer.

``conv-<direction>-n<N>-c<C>-k<K>-i<in>-f<filter>-o<out>-s<stride>-p<pad>-d<dilation>-g<groups>-<dtype>-<layout>``

Extents, strides, pads and dilations are one number an axis joined by "x". Pads that differ before and after an axis
are written ``p<begin>:<end>``. Dtypes and layouts are one word where x, w and y agree, else three joined by "_"; the
layout of a tensor with gaps is ``*``. Behind them, only where they are not the default, in this order: ``-xs``,
``-ws``, ``-ys`` strides in elements of the tensors with gaps; ``-a<alpha>`` and ``-b<beta>`` as Python writes a float;
``-det`` deterministic; ``-<compute type>``; ``-trans`` mode transpose.

Equal problems have one key and different problems different ones, so the key can stand for the problem anywhere.
"""

from __future__ import annotations

import contextlib
import re

from hipfind.errors import ParseError, ProblemError
from hipfind.problem.conv import DIRECTIONS, ConvProblem
from hipfind.problem.dtypes import DType
from hipfind.problem.tensor import LAYOUTS, TensorDescriptor, by_axis, one_word, packed_strides

EXAMPLE = "conv-fwd-n1-c3-k8-i8x8-f3x3-o6x6-s1x1-p0x0-d1x1-g1-fp32-NCHW"

_INT = r"\d{1,30}"  # what int() takes at once
_LIST = rf"{_INT}(?:x{_INT})*"
_FLOAT = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_DTYPE = "(?:" + "|".join(dtype.value for dtype in DType) + ")"
_LAYOUT = r"(?:\*|" + "|".join(name for names in LAYOUTS.values() for name in names) + ")"
_KEY = re.compile(
    rf"conv-(?P<direction>{'|'.join(DIRECTIONS)})-n(?P<n>{_INT})-c(?P<c>{_INT})-k(?P<k>{_INT})"
    rf"-i(?P<in>{_LIST})-f(?P<filter>{_LIST})-o(?P<out>{_LIST})"
    rf"-s(?P<stride>{_LIST})-p(?P<pad>{_LIST})(?::(?P<pad_end>{_LIST}))?-d(?P<dilation>{_LIST})-g(?P<groups>{_INT})"
    rf"-(?P<dtypes>{_DTYPE}(?:_{_DTYPE}_{_DTYPE})?)-(?P<layouts>{_LAYOUT}(?:_{_LAYOUT}_{_LAYOUT})?)"
    rf"(?:-xs(?P<x>{_LIST}))?(?:-ws(?P<w>{_LIST}))?(?:-ys(?P<y>{_LIST}))?"
    rf"(?:-a(?P<alpha>{_FLOAT}))?(?:-b(?P<beta>{_FLOAT}))?"
    rf"(?P<deterministic>-det)?(?:-(?P<compute>tf32))?(?P<transpose>-trans)?",
    re.ASCII,
)


def encode_key(problem: ConvProblem) -> str:
    """The problem's key; see the module for its fields. ``parse_key`` inverts it."""
    p = problem
    fields = [
        f"conv-{p.direction}-n{p.n}-c{p.c}-k{p.k}",
        f"i{by_axis(p.in_spatial)}-f{by_axis(p.filter)}-o{by_axis(p.out_spatial)}",
        f"s{by_axis(p.stride)}-p{_pad(p)}-d{by_axis(p.dilation)}-g{p.groups}",
        one_word([p.tensor(role).dtype.value for role in p.roles]),
        _layout(p),
    ]
    fields += [
        f"{role}s{by_axis(p.tensor(role).strides)}"
        for role, layout in zip(p.roles, p.layouts, strict=True)
        if not layout
    ]
    if p.alpha != 1.0:
        fields.append(f"a{p.alpha!r}")
    if p.beta != 0.0:
        fields.append(f"b{p.beta!r}")
    if p.deterministic:
        fields.append("det")
    if p.compute:
        fields.append(p.compute)
    if p.mode == "transpose":
        fields.append("trans")
    return "-".join(fields)


def facts_of(problem: ConvProblem) -> dict[str, int | str]:
    """``Problem.facts``: the numbers as the key writes them, and MIOpen's key where it has one."""
    p = problem
    facts: dict[str, int | str] = {
        "layout": _layout(p),
        "n": p.n,
        "c": p.c,
        "k": p.k,
        "groups": p.groups,
        "input": by_axis(p.in_spatial),
        "filter": by_axis(p.filter),
        "output": by_axis(p.out_spatial),
        "stride": by_axis(p.stride),
        "pad": _pad(p),
        "dilation": by_axis(p.dilation),
    }
    with contextlib.suppress(ProblemError):
        facts["miopen_key"] = p.miopen_key()
    return facts


def _pad(p: ConvProblem) -> str:
    return by_axis(p.pad) if p.pad == p.pad_end else f"{by_axis(p.pad)}:{by_axis(p.pad_end)}"


def _layout(p: ConvProblem) -> str:
    return one_word([layout or "*" for layout in p.layouts])


def parse_key(text: str) -> ConvProblem:
    """The problem of a key.

    Raises ParseError for text that is not a key, or not the one key of its problem (another spelling would not be
    found where keys are compared as text), ProblemError for fields that contradict each other.
    """
    match = _KEY.fullmatch(text)
    if match is None:
        raise ParseError("this is not a problem's key", got=text, remedy=f"a key looks like {EXAMPLE}")
    problem = _problem(match, text)
    key = encode_key(problem)
    if key != text:
        raise ParseError("this text spells its problem's key in another way", got=text, remedy=f"the key is {key}")
    return problem


def _problem(match: re.Match[str], text: str) -> ConvProblem:
    def numbers(field: str) -> tuple[int, ...]:
        return tuple(int(number) for number in match[field].split("x"))

    groups, transposed = int(match["groups"]), match["transpose"] is not None
    n, c, k = int(match["n"]), int(match["c"]), int(match["k"])
    first, second = (c, k) if transposed else (k, c)
    lengths = {
        "x": (n, c, *numbers("in")),
        "w": (first, second // max(groups, 1), *numbers("filter")),
        "y": (n, k, *numbers("out")),
    }
    tensors = {
        role: TensorDescriptor(
            DType(dtype),
            lengths[role],
            _strides(lengths[role], layout, text) if match[role] is None else numbers(role),
        )
        for role, dtype, layout in zip(lengths, _three(match["dtypes"]), _three(match["layouts"]), strict=True)
    }
    return ConvProblem(
        match["direction"],
        tensors["x"],
        tensors["w"],
        tensors["y"],
        stride=numbers("stride"),
        pad=numbers("pad"),
        pad_end=numbers("pad" if match["pad_end"] is None else "pad_end"),
        dilation=numbers("dilation"),
        groups=groups,
        mode="transpose" if transposed else "convolution",
        alpha=float(match["alpha"] or 1.0),
        beta=float(match["beta"] or 0.0),
        deterministic=match["deterministic"] is not None,
        compute=match["compute"] or "",
    )


def _three(field: str) -> list[str]:
    words = field.split("_")
    return words * (3 // len(words))


def _strides(lengths: tuple[int, ...], layout: str, text: str) -> tuple[int, ...]:
    if layout == "*":
        raise ParseError(
            "a key with layout '*' must give that tensor's strides", got=text, remedy="add -xs, -ws or -ys"
        )
    return packed_strides(lengths, layout)
