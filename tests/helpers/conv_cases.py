"""Convolutions that tests run over: real shapes cut down to a few milliseconds, point outputs, public bug reports."""

from __future__ import annotations

import csv
from typing import Any

from hipfind.problem.conv import ConvProblem
from tests.helpers.shared import shared_dir

DIRECTIONS = ("fwd", "bwd", "wrw")
_DIRECTION = {"F": "fwd", "B": "bwd", "W": "wrw"}
_MAX_PRODUCTS = 2_000_000
_MAX_ELEMENTS = 300_000


def conv_shapes() -> list[dict[str, str]]:
    """Rows of conv_shapes.csv, or none where the file is missing."""
    path = shared_dir() / "cases" / "conv_shapes.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def row_arguments(row: dict[str, str]) -> dict[str, Any]:
    """Arguments of ConvProblem.create for a row, in full size."""
    axes = ("d", "h", "w") if row["ndim"] == "3" else ("h", "w")

    def along(prefix: str) -> tuple[int, ...]:
        return tuple(int(row[prefix + axis]) for axis in axes)

    taps = tuple(int(row[name]) for name in ("z", "y", "x")[-len(axes) :])
    groups = int(row["group"])
    return {
        "direction": _DIRECTION[row["direction"]],
        "x": (int(row["n"]), int(row["c"]), *along("")),
        "w": (int(row["k"]), int(row["c"]) // groups, *taps),
        "stride": along("stride_"),
        "pad": along("pad_"),
        "dilation": along("dil_"),
        "groups": groups,
        "dtype": row["dtype"].lower(),
        "layout": row["layout"],
    }


def cut_down(arguments: dict[str, Any]) -> ConvProblem:
    """The problem made small enough for a test: batch first, then channels, then the image.

    Filter, stride, padding, dilation, direction, dtype and layout stay; so do depthwise, grouped or not, more than one
    image, more than one output position, and whether the last step of the stride leaves a remainder.
    """
    arguments = dict(arguments)
    while not _is_small(problem := ConvProblem.create(**arguments)):
        smaller = _with_fewer_images(problem) or _with_fewer_channels(problem) or _with_less_image(problem)
        if smaller is None:
            raise AssertionError(f"cannot cut down {problem}")
        x, w, groups = smaller
        arguments.update(x=x, w=w, groups=groups)
    return problem


Smaller = tuple[tuple[int, ...], tuple[int, ...], int] | None


def _is_small(problem: ConvProblem) -> bool:
    elements = sum(problem.tensor(role).elements for role in problem.roles)
    return problem.flops // 2 <= _MAX_PRODUCTS and elements <= _MAX_ELEMENTS


def _with_fewer_images(problem: ConvProblem) -> Smaller:
    if problem.n <= 2:
        return None
    return (max(2, problem.n // 4), *problem.x.lengths[1:]), problem.w.lengths, problem.groups


def _with_fewer_channels(problem: ConvProblem) -> Smaller:
    c, k, groups = problem.c // problem.groups, problem.k // problem.groups, problem.groups
    if c * k * groups <= 24:
        return None
    if groups > 3:
        groups = max(3, groups // 2)
    elif c >= k:
        c = max(2, (c + 1) // 2)
    else:
        k = max(2, (k + 1) // 2)
    x = (problem.n, c * groups, *problem.in_spatial)
    return x, (k * groups, c, *problem.filter), groups


def _with_less_image(problem: ConvProblem) -> Smaller:
    axis = max(range(problem.ndim), key=lambda i: problem.out_spatial[i])
    steps = problem.out_spatial[axis] // 2
    if steps < 2:
        return None
    image = list(problem.in_spatial)
    image[axis] -= steps * problem.stride[axis]
    return (problem.n, problem.c, *image), problem.w.lengths, problem.groups


def point_outputs(direction: str, dtype: str, is_channel_last: bool) -> dict[str, ConvProblem]:
    """Named convolutions with one output position, in one layout."""

    def make(x: tuple[int, ...], w: tuple[int, ...], stride: int | tuple[int, ...]) -> ConvProblem:
        layout = {4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}[len(x)][is_channel_last]
        return ConvProblem.create(direction, x, w, stride=stride, dtype=dtype, layout=layout)

    cases = {
        "patch 14x14": make((4, 3, 14, 14), (1280, 3, 14, 14), 14),
        "image larger than filter": make((8, 4, 5, 5, 5), (32, 4, 4, 4, 4), 4),
        "image larger than filter, 2D": make((3, 2, 7, 5), (6, 2, 4, 3), (4, 3)),
        "image of the filter's size": make((8, 4, 4, 4, 4), (32, 4, 4, 4, 4), 4),
        "K=768": make((2, 3, 16, 16), (768, 3, 16, 16), 16),
        "stride differs from filter": make((3, 5, 6, 6), (7, 5, 6, 6), 1),
        "stride larger than filter": make((3, 2, 3, 4), (5, 2, 3, 4), (7, 9)),
        "fully connected 1x1": make((5, 12, 1, 1), (9, 12, 1, 1), 1),
        "1x1 image, stride 2": make((5, 12, 1, 1), (9, 12, 1, 1), 2),
        "one image": make((1, 3, 8, 8), (20, 3, 8, 8), 8),
    }
    for channels in (1, 3, 5):
        cases[f"1x7, C={channels}"] = make((4, channels, 1, 7), (6, channels, 1, 7), (1, 7))
        cases[f"3x2x5, C={channels}"] = make((4, channels, 3, 2, 5), (6, channels, 3, 2, 5), (3, 2, 5))
    return cases
