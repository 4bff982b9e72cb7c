"""MIOpen's find-db key of a convolution problem, byte for byte: ``3-8-8-3x3-16-6-6-1-0x0-1x1-1x1-0-NCHW-FP32-F``.

Fields (2D; 3D has the depth before the height everywhere)::

    InC-InH-InW-FilHxFilW-OutC-OutH-OutW-N-padHxpadW-strideHxstrideW-dilHxdilW-bias-LAYOUT-DTYPE-DIR[_g<groups>]

"In" is the tensor that the direction starts from: x for F, dy for B and W; "Out" the other one. LAYOUT is one word
where all three tensors are NCHW (NCDHW), else three: in, weights, out. Source: ``ProblemDescription::Serialize`` of
MIOpen.

The key is not complete: MIOpen leaves alpha, beta, the deterministic attribute and the math type out of it although
its problems have them, and so does this module. Two problems that need different answers can share a MIOpen key;
``conv_key`` is the complete one.
"""

from __future__ import annotations

import re

from hipfind.errors import ParseError, ProblemError
from hipfind.problem.conv import ConvProblem
from hipfind.problem.dtypes import DType
from hipfind.problem.tensor import LAYOUTS, TensorDescriptor, packed_strides

EXAMPLE = "3-8-8-3x3-16-6-6-1-0x0-1x1-1x1-0-NCHW-FP32-F"

_DIRECTIONS = {"fwd": "F", "bwd": "B", "wrw": "W"}
_FROM_MIOPEN = {name: direction for direction, name in _DIRECTIONS.items()}
_POSITIVE, _ANY = r"[1-9]\d{0,17}", r"(?:0|[1-9]\d{0,17})"


def _pattern(ndim: int) -> re.Pattern[str]:
    def extents(name: str, separator: str, number: str = _POSITIVE) -> str:
        return f"(?P<{name}>{separator.join([number] * ndim)})"

    fields = [
        rf"(?P<in_c>{_POSITIVE})", extents("in", "-"), extents("filter", "x"),
        rf"(?P<out_c>{_POSITIVE})", extents("out", "-"), rf"(?P<n>{_POSITIVE})",
        extents("pad", "x", _ANY), extents("stride", "x"), extents("dilation", "x"),
        r"(?P<bias>[01])", r"(?P<layouts>[A-Z]+c?(?:-[A-Z]+c?-[A-Z]+c?)?)", r"(?P<dtypes>(?:[A-Z]+\d+)+)",
        r"(?P<direction>[FBW])(?P<suffix>(?:_[a-z]+[A-Z]*\d+)*)",
    ]  # fmt: skip
    return re.compile("-".join(fields), re.ASCII)


_PATTERNS = (_pattern(2), _pattern(3))


def layout_names(problem: ConvProblem) -> tuple[str, str, str]:
    """Layouts of x, w, y as MIOpen names them.

    Where strides fit several layouts (one channel, one pixel) these are the names that the problem was made with.
    Raises ProblemError for tensors with gaps, which have no layout name.
    """
    for role, layout in zip(problem.roles, problem.layouts, strict=True):
        if not layout:
            tensor = problem.tensor(role)
            raise ProblemError(
                f"MIOpen has no layout name for {role}, which is not packed",
                got=f"lengths {tensor.lengths}, strides {tensor.strides}",
            )
    hint = problem.layout_hint
    if hint is not None and all(
        problem.tensor(role).is_packed_as(name) for role, name in zip(problem.roles, hint, strict=True)
    ):
        return hint
    return problem.layouts


def encode_miopen_key(problem: ConvProblem) -> str:
    """MIOpen's find-db key. A transposed convolution has its mirror's key, as in MIOpen.

    Raises ProblemError for what such a key cannot say: tensors that are not packed, pads that differ before and after
    an axis, a batch of 0.
    """
    p = problem.canonical()
    if p.pad != p.pad_end:
        raise ProblemError(
            "a MIOpen key cannot say pads that differ before and after an axis", got=f"pad {p.pad}, pad_end {p.pad_end}"
        )
    if p.n == 0:
        raise ProblemError("MIOpen has no problems with a batch of 0", got=f"x={p.x.lengths}")
    order = ("x", "w", "y") if p.direction == "fwd" else ("y", "w", "x")
    first, _, last = (p.tensor(role) for role in order)
    names = dict(zip(p.roles, layout_names(p), strict=True))
    layouts = [names[role] for role in order]
    dtypes = [p.tensor(role).dtype.miopen for role in order]
    fields = [
        *map(str, first.lengths[1:]),
        _join(p.filter),
        *map(str, last.lengths[1:]),
        str(p.n),
        _join(p.pad),
        _join(p.stride),
        _join(p.dilation),
        "0",
        *(layouts[:1] if layouts == [LAYOUTS[p.ndim][0]] * 3 else layouts),
        dtypes[0] if len(set(dtypes)) == 1 else "".join(dtypes),
        _DIRECTIONS[p.direction],
    ]
    return "-".join(fields) + (f"_g{p.groups}" if p.groups != 1 else "")


def parse_miopen_key(text: str) -> ConvProblem:
    """The problem of a MIOpen find-db key; its alpha, beta, deterministic and compute type are the defaults.

    Raises ParseError for text that is not such a key or that says what hipfind has not (fp8, casts, bias, vector
    layouts), ProblemError for a key whose extents contradict each other (MIOpen's shipped files hold some).
    """
    match = next(filter(None, (pattern.fullmatch(text) for pattern in _PATTERNS)), None)
    if match is None:
        raise ParseError("this is not a MIOpen find-db key", got=text, remedy=f"such a key looks like {EXAMPLE}")
    if match["bias"] != "0":
        raise ParseError("a MIOpen key with a bias is not a plain convolution", got=text)
    groups = _groups(match["suffix"], text)
    direction = _FROM_MIOPEN[match["direction"]]
    first = (int(match["n"]), int(match["in_c"]), *_numbers(match["in"], "-"))
    last = (int(match["n"]), int(match["out_c"]), *_numbers(match["out"], "-"))
    x, y = (first, last) if direction == "fwd" else (last, first)
    lengths = {"x": x, "w": (y[1], x[1] // groups, *_numbers(match["filter"], "x")), "y": y}
    order = ("x", "w", "y") if direction == "fwd" else ("y", "w", "x")
    layouts = dict(zip(order, _layouts(match["layouts"], len(x) - 2, text), strict=True))
    dtypes = dict(zip(order, _dtypes(match["dtypes"], text), strict=True))
    tensors = {
        role: TensorDescriptor(dtypes[role], sizes, packed_strides(sizes, layouts[role]))
        for role, sizes in lengths.items()
    }
    pad = _numbers(match["pad"], "x")
    return ConvProblem(
        direction,
        tensors["x"],
        tensors["w"],
        tensors["y"],
        stride=_numbers(match["stride"], "x"),
        pad=pad,
        pad_end=pad,
        dilation=_numbers(match["dilation"], "x"),
        groups=groups,
        layout_hint=(layouts["x"], layouts["w"], layouts["y"]),
    )


def _join(numbers: tuple[int, ...]) -> str:
    return "x".join(map(str, numbers))


def _numbers(field: str, separator: str) -> tuple[int, ...]:
    return tuple(int(number) for number in field.split(separator))


def _groups(suffix: str, text: str) -> int:
    """Number of groups from the optional suffixes, of which only "_g<G>" is a plain convolution's."""
    match = re.fullmatch(r"(?:_g(?P<groups>[1-9]\d*))?(?P<casts>(?:_c[iwo][A-Z]+\d+)*)", suffix, re.ASCII)
    if match is None or match["groups"] == "1":
        raise ParseError(f"unknown suffix {suffix} of a MIOpen key", got=text, remedy="legal: _g and 2 or more groups")
    if match["casts"]:
        raise ParseError(f"cast types ({match['casts']}) of a MIOpen key are not supported", got=text)
    return int(match["groups"] or 1)


def _layouts(field: str, ndim: int, text: str) -> list[str]:
    """Layouts of in, weights, out. One word stands for three only where it is the channel-first layout."""
    names = field.split("-")
    legal = LAYOUTS[ndim]
    unknown = [name for name in names if name not in legal]
    if unknown:
        raise ParseError(
            f"layout {unknown[0]} of a MIOpen key is not supported", got=text, remedy="legal: " + ", ".join(legal)
        )
    if (len(names) == 1) != (set(names) == {legal[0]}):
        raise ParseError(
            f"a MIOpen key has one layout where all are {legal[0]} and three otherwise, not {field}", got=text
        )
    return names * (3 // len(names))


def _dtypes(field: str, text: str) -> list[DType]:
    """Dtypes of in, weights, out from one name, or three names without separators."""
    names = re.findall(r"[A-Z]+\d+", field)
    legal = {dtype.miopen: dtype for dtype in DType}
    unknown = [name for name in names if name not in legal]
    if unknown:
        raise ParseError(
            f"dtype {unknown[0]} of a MIOpen key is not supported", got=text, remedy="legal: " + ", ".join(legal)
        )
    if len(names) not in (1, 3) or (len(names) == 3 and len(set(names)) == 1):
        raise ParseError(f"a MIOpen key has one dtype, or three that differ, not {field}", got=text)
    return [legal[name] for name in names] * (3 // len(names))
