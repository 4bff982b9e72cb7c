"""Sizes of a convolution by the letters that its matrix products are written in."""

from __future__ import annotations

import math
from typing import NamedTuple

from hipfind.problem.conv import ConvProblem
from hipfind.problem.tensor import LAYOUTS


class Sizes(NamedTuple):
    """Element counts of a convolution. Exact ints."""

    n: int
    c: int
    k: int
    groups: int
    c_group: int
    k_group: int
    image: int
    """Positions of x: product of its spatial extents."""
    output: int
    """Positions of y."""
    taps: int
    """Positions of the filter."""
    itemsize: int

    @property
    def row(self) -> int:
        """Elements of one filter: channels of a group times taps."""
        return self.c_group * self.taps

    @property
    def columns(self) -> int:
        """Elements that im2col makes of one image."""
        return self.c * self.taps * self.output

    @property
    def x_image(self) -> int:
        """Elements of one image of x."""
        return self.c * self.image

    @property
    def y_image(self) -> int:
        """Elements of one image of y."""
        return self.k * self.output

    @property
    def w_group(self) -> int:
        """Elements of one group's filters."""
        return self.k_group * self.row


def sizes_of(problem: ConvProblem) -> Sizes:
    """The sizes of a problem in convolution mode."""
    return Sizes(
        n=problem.n,
        c=problem.c,
        k=problem.k,
        groups=problem.groups,
        c_group=problem.c // problem.groups,
        k_group=problem.k // problem.groups,
        image=math.prod(problem.in_spatial),
        output=math.prod(problem.out_spatial),
        taps=math.prod(problem.filter),
        itemsize=problem.dtype.itemsize,
    )


def lies_channel_last(problem: ConvProblem) -> bool:
    """True when all three tensors can be read as channel-last, also when they can be read as channel-first too."""
    layout = LAYOUTS[problem.ndim][1]
    return all(tensor.is_packed_as(layout) for tensor in (problem.x, problem.w, problem.y))


def is_point_output(problem: ConvProblem) -> bool:
    """True when the convolution is one matrix product on the tensors as they lie, in every direction.

    That is: one group, no padding, dilation 1 wherever the filter is longer than 1, every output extent 1, and an
    image of the filter's size. Equal extents without padding imply the dilation and the output; the stride never
    takes a step, so it does not matter. A row of w and a sample of x must list the same elements in the same order:
    both channel-first or both channel-last. y is [N, K] in either.
    """
    return (
        problem.groups == 1
        and not any(problem.pad)
        and not any(problem.pad_end)
        and problem.in_spatial == problem.filter
        and any(problem.x.is_packed_as(name) and problem.w.is_packed_as(name) for name in LAYOUTS[problem.ndim])
        and bool(problem.y.layouts())
    )
