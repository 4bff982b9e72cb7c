"""Window: how a filter moves over an image, as one short text that operators carry through torch's dispatcher.

A text passes the dispatcher several times faster than the lists of numbers that it stands for.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hipfind.errors import ProblemError
from hipfind.problem.tensor import LAYOUTS


class Window(NamedTuple):
    """Everything of a convolution but its tensors.

    One number a spatial axis in each tuple. ``is_channel_last``: the layout of every tensor that is made. ``by_torch``:
    the directions that torch's own operators run.
    """

    stride: tuple[int, ...]
    pad: tuple[int, ...]
    pad_end: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int
    is_transposed: bool
    is_channel_last: bool
    by_torch: tuple[str, ...]

    @property
    def ndim(self) -> int:
        """Spatial dimensions."""
        return len(self.stride)

    @property
    def layout(self) -> str:
        """The layout of tensors that are made, e.g. NHWC."""
        return LAYOUTS[self.ndim][self.is_channel_last]

    def encode(self) -> str:
        """As text; ``decode`` inverts it."""
        mode, layout = ("T" if self.is_transposed else "C"), ("last" if self.is_channel_last else "first")
        axes = "/".join(",".join(map(str, numbers)) for numbers in self[:5])
        return f"{axes}/{self.groups}/{mode}/{layout}/{','.join(self.by_torch)}"

    def output_spatial(self, image: Sequence[int], taps: Sequence[int]) -> list[int]:
        """Extents of the forward result, also of extents that are torch's symbols."""
        extents = []
        for axis, (size, filter) in enumerate(zip(image, taps, strict=True)):
            reach = self.dilation[axis] * (filter - 1) + 1
            padding = self.pad[axis] + self.pad_end[axis]
            if self.is_transposed:
                extents.append((size - 1) * self.stride[axis] - padding + reach + self.output_padding[axis])
            else:
                extents.append((size + padding - reach) // self.stride[axis] + 1)
        return extents

    def output_lengths(self, x: Sequence[int], w: Sequence[int]) -> list[int]:
        """Lengths of the forward result from those of x and w."""
        channels = w[1] * self.groups if self.is_transposed else w[0]
        return [x[0], channels, *self.output_spatial(x[2:], w[2:])]


@functools.lru_cache(4096)
def decode(text: str) -> Window:
    """The Window that ``text`` was made of."""
    *axes, groups, mode, layout, by_torch = text.split("/")
    stride, pad, pad_end, dilation, extra = (tuple(map(int, numbers.split(","))) for numbers in axes)
    others = tuple(by_torch.split(",")) if by_torch else ()
    return Window(stride, pad, pad_end, dilation, extra, int(groups), mode == "T", layout == "last", others)


def make_window(
    ndim: int,
    taps: Sequence[int],
    stride: int | Iterable[int],
    padding: int | str | Iterable[int],
    dilation: int | Iterable[int],
    output_padding: int | Iterable[int],
    groups: int,
    is_transposed: bool,
    is_channel_last: bool,
    by_torch: tuple[str, ...],
) -> str:
    """The text of a call's Window. ``taps``: extents of the filter, read for padding "same". Raises ProblemError."""
    steps, dilations = _per_axis("stride", stride, ndim), _per_axis("dilation", dilation, ndim)
    if isinstance(padding, str):
        begin, end = _named_padding(padding, taps, steps, dilations)
    else:
        begin = end = _per_axis("padding", padding, ndim)
    extra = _per_axis("output_padding", output_padding, ndim)
    return Window(steps, begin, end, dilations, extra, groups, is_transposed, is_channel_last, by_torch).encode()


make_window_cached = functools.lru_cache(4096)(make_window)


def _per_axis(name: str, value: int | Iterable[int], ndim: int) -> tuple[int, ...]:
    """One number an axis, from one number or a sequence of one or ``ndim``, as torch takes them."""
    numbers = (value,) * ndim if isinstance(value, int) else tuple(value)
    numbers = numbers * ndim if len(numbers) == 1 else numbers
    if len(numbers) != ndim:
        raise ProblemError(f"{name} needs one number, or {ndim} for {ndim} spatial dimensions", got=f"{value}")
    return numbers


def _named_padding(
    name: str, taps: Sequence[int], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding before and after each axis; of an odd number the larger half comes after, as in torch."""
    if name == "valid":
        return (0,) * len(taps), (0,) * len(taps)
    if name != "same":
        raise ProblemError("padding is a number, one an axis, or a name", got=name, remedy="legal: same, valid")
    if any(step != 1 for step in stride):
        raise ProblemError("padding 'same' needs stride 1", got=f"stride {stride}")
    totals = [gap * (extent - 1) for extent, gap in zip(taps, dilation, strict=True)]
    return tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
