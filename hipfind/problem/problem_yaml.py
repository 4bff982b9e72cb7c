"""Problem lists in YAML: a list of problems, or sections of them.

A problem is a mapping with the arguments of ``ConvProblem.create`` or ``UpsampleProblem.create``, or in short::

    defaults: {dtypes: [bf16], layouts: [channels_first, channels_last]}
    conv:
      - {n: 64, c: 3, in: [224, 224], k: 64, filter: [7, 7], stride: 2, pad: 3}
    upsample:
      - {n: 4, c: 256, in: [64, 64], out: [128, 128], align_corners: false}

The plural fields ``directions``, ``dtypes`` and ``layouts`` make one problem for each of their values; a convolution
without a direction means all three. ``channels_first`` and ``channels_last`` fit any rank. An item may also be text: a
key, or a driver command. An upsampling without a direction means its gradient. ``name`` is for people.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from hipfind.errors import ParseError, ProblemError
from hipfind.problem.base import Problem
from hipfind.problem.conv import DIRECTIONS, ConvProblem
from hipfind.problem.problem_list import Listed, ProblemList, Unread, problems_of_line
from hipfind.problem.tensor import LAYOUTS
from hipfind.problem.upsample import UpsampleProblem

_SECTIONS = {"problems": "", "conv": "conv", "upsample": "upsample", "upsample_bilinear2d_backward": "upsample"}
"""Names of lists, and the operation of what is in them; "" leaves it to each problem."""
_PLURALS = {"direction": "directions", "dtype": "dtypes", "layout": "layouts"}
_COMMON = ("name", "operation", "deterministic", *_PLURALS, *_PLURALS.values())
_CONV_SHORT = ("n", "c", "in", "k", "filter")
_UPSAMPLE_SHORT = ("n", "c", "in", "out")
_FIELDS = {
    "conv": (
        *_COMMON, *_CONV_SHORT, "x", "w", "y", "stride", "pad", "dilation", "groups", "mode", "output_padding", "alpha",
        "beta", "compute", "x_strides", "w_strides", "y_strides",
    ),
    "upsample": (*_COMMON, *_UPSAMPLE_SHORT, "x", "y", "align_corners", "scales", "x_strides", "y_strides"),
}  # fmt: skip
_EXAMPLE = "an item looks like - {n: 64, c: 3, in: [224, 224], k: 64, filter: [7, 7], stride: 2, pad: 3}"
_ANY_RANK = {"channels_first": 0, "channels_last": 1}


def read_yaml(text: str, name: str) -> ProblemList:
    """The problems of a YAML text; ``name`` is the file's, for the places. Never raises: see ``errors``."""
    found = ProblemList()
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        for operation, item, defaults in _items(loader, root):
            where = f"{name}:{item.start_mark.line + 1}"
            try:
                value = _value(loader, item)
                found.problems += [Listed(problem, where) for problem in _problems(value, operation, defaults)]
            except ProblemError as error:
                found.errors.append(Unread(where, error))
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error)
        where = f"{name}:{mark.line + 1}" if mark is not None else name
        found.errors.append(
            Unread(where, ParseError("this is not YAML", got=" ".join(str(what).split()), remedy=_EXAMPLE))
        )
    except _Misplaced as error:
        found.errors.append(Unread(f"{name}:{error.line}", error.reason))
    return found


class _Misplaced(Exception):
    """Something where no problem can stand; the rest of the file is not read."""

    def __init__(self, node: yaml.Node, reason: ParseError) -> None:
        super().__init__(str(reason))
        self.line = node.start_mark.line + 1
        self.reason = reason


def _items(loader: yaml.SafeLoader, root: yaml.Node | None) -> Iterator[tuple[str, yaml.Node, Mapping[str, Any]]]:
    """Operation, node and defaults of each item of the document."""
    if isinstance(root, yaml.SequenceNode):
        yield from (("", item, {}) for item in root.value)
    elif isinstance(root, yaml.MappingNode):
        sections = [(str(key.value), key, node) for key, node in root.value]
        defaults = _defaults(loader, dict((name, node) for name, _, node in sections).get("defaults"))
        for name, key, node in sections:
            if name == "defaults":
                continue
            if name not in _SECTIONS or not isinstance(node, yaml.SequenceNode):
                legal = ", ".join(("defaults", *_SECTIONS))
                raise _Misplaced(key, ParseError("a section is a list of problems under a known name", got=name,
                                                 remedy=f"known: {legal}"))  # fmt: skip
            yield from ((_SECTIONS[name], item, defaults) for item in node.value)
    elif root is not None:
        raise _Misplaced(root, ParseError("a problem list is a list, or a mapping of lists", got=str(root.value)))


def _defaults(loader: yaml.SafeLoader, node: yaml.Node | None) -> Mapping[str, Any]:
    if node is None:
        return {}
    legal = (*_PLURALS, *_PLURALS.values())
    value = _value(loader, node)
    if not isinstance(value, dict) or not set(value) <= set(legal):
        reason = ParseError("defaults are a mapping of fields", got=str(value), remedy=f"legal: {', '.join(legal)}")
        raise _Misplaced(node, reason)
    return value


def _value(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    """The node as Python data. Raises ParseError for what is none."""
    try:
        return loader.construct_object(node, deep=True)
    except (yaml.YAMLError, ValueError, TypeError) as error:
        what = getattr(error, "problem", None) or str(error)
        raise ParseError("this is not plain data", got=" ".join(str(what).split())) from error


def _problems(value: Any, operation: str, defaults: Mapping[str, Any]) -> Sequence[Problem]:
    """The problems of one item. Raises ProblemError."""
    if isinstance(value, str) and value.strip():
        return problems_of_line(value.strip())
    if not isinstance(value, dict):
        raise ParseError("a problem is a mapping of fields, a key or a driver command", got=f"{value!r}")
    is_upsample = not {"w", "filter"} & set(value) and bool({"y", "scales", "out"} & set(value))
    operation = str(value.get("operation", operation or ("upsample" if is_upsample else "conv")))
    if operation not in _FIELDS:
        raise ParseError("unknown operation", got=operation, remedy=f"known: {', '.join(_FIELDS)}")
    _check_fields(value, operation)
    if operation == "upsample":
        defaults = {name: default for name, default in defaults.items() if not name.startswith("direction")}
    fields = {**{name: one for name, one in defaults.items() if not _overridden(name, value)}, **value}
    return _conv(fields) if operation == "conv" else _upsample(fields)


def _check_fields(value: Mapping[Any, Any], operation: str) -> None:
    legal = _FIELDS[operation]
    for name in value:
        if name not in legal:
            close = difflib.get_close_matches(str(name), legal, n=1)
            remedy = f"did you mean {close[0]}?" if close else f"legal: {', '.join(legal)}"
            raise ParseError(f"unknown field of an item of operation {operation}", got=f"{name!r}", remedy=remedy)
    for one, several in _PLURALS.items():
        if one in value and several in value:
            raise ParseError(f"an item has {one} or {several}, not both", got=f"{value[one]!r} and {value[several]!r}")


def _overridden(default: str, value: Mapping[str, Any]) -> bool:
    return any(default in pair and (pair[0] in value or pair[1] in value) for pair in _PLURALS.items())


def _conv(fields: dict[str, Any]) -> list[Problem]:
    if "x" not in fields:
        n, c, spatial, k, filter = (_needed(fields, name, _CONV_SHORT, "x and w") for name in _CONV_SHORT)
        groups = fields.get("groups", 1)
        if not all(_is_count(one) for one in (c, k, groups)) or c % groups or k % groups:
            raise ProblemError("c and k must be whole numbers, divisible by groups", got=f"{c!r}, {k!r}, {groups!r}")
        first, second = (c, k) if str(fields.get("mode", "")).startswith("trans") else (k, c)
        fields |= {"x": [n, c, *_axes("in", spatial)], "w": [first, second // groups, *_axes("filter", filter)]}
    elif "w" not in fields or any(name in fields for name in _CONV_SHORT):
        raise ParseError(f"a convolution has x and w, or {', '.join(_CONV_SHORT)}", got=", ".join(map(str, fields)))
    arguments = {name: one for name, one in fields.items() if name not in (*_COMMON, *_CONV_SHORT, "x", "w")}
    arguments["deterministic"] = _truth(fields, "deterministic")
    return [
        ConvProblem.create(direction, fields["x"], fields["w"], dtype=dtype, layout=layout, **arguments)
        for direction, dtype, layout in _each(fields, DIRECTIONS, fields["x"])
    ]


def _upsample(fields: dict[str, Any]) -> list[Problem]:
    if "x" not in fields:
        n, c, small, large = (_needed(fields, name, _UPSAMPLE_SHORT, "x and y") for name in _UPSAMPLE_SHORT)
        fields |= {"x": [n, c, *_axes("in", small)], "y": [n, c, *_axes("out", large)]}
    elif any(name in fields for name in _UPSAMPLE_SHORT):
        raise ParseError(f"an upsampling has x and y, or {', '.join(_UPSAMPLE_SHORT)}", got=", ".join(map(str, fields)))
    names = ("scales", "x_strides", "y_strides")
    arguments = {name: fields[name] for name in names if name in fields}
    arguments |= {name: _truth(fields, name) for name in ("align_corners", "deterministic")}
    return [
        UpsampleProblem.create(direction, fields["x"], fields.get("y"), dtype=dtype, layout=layout, **arguments)
        for direction, dtype, layout in _each(fields, ("bwd",), fields["x"])
    ]


def _each(fields: Mapping[str, Any], directions: Sequence[str], lengths: Any) -> Iterator[tuple[str, Any, Any]]:
    """Direction, dtype and layout of each problem that an item stands for."""
    values = []
    for (one, several), default in zip(_PLURALS.items(), (directions, ("fp32",), ("",)), strict=True):
        chosen = fields.get(several, [fields[one]] if one in fields else default)
        if not isinstance(chosen, Sequence) or isinstance(chosen, str) or not chosen:
            raise ParseError(f"{several} is a list of values", got=f"{chosen!r}")
        values.append(chosen)
    names = LAYOUTS.get(len(lengths) - 2 if isinstance(lengths, Sequence) else 0, ("", ""))
    for direction, dtype, layout in itertools.product(*values):
        is_any = isinstance(layout, str) and layout in _ANY_RANK
        yield str(direction), dtype, names[_ANY_RANK[layout]] if is_any else layout


def _needed(fields: Mapping[str, Any], name: str, short: Sequence[str], long: str) -> Any:
    if name not in fields:
        raise ParseError(
            f"{name} is missing: an item has {', '.join(short)}, or {long}", got=", ".join(map(str, fields))
        )
    return fields[name]


def _axes(name: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ParseError(f"{name} is a list with one number an axis", got=f"{value!r}")
    return value


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _truth(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise ParseError(f"{name} is true or false", got=f"{value!r}")
    return value
