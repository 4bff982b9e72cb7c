"""The key of a convolution problem in MIOpen's perf-db: its values joined by "x".

``2x1000x13x13x1x1x1x1x512x16x0x0x0x1x1x0x1x1x0x0x1xNCHWxFP16xB``: spatial dimensions, channels and h, w, d of the
direction's input, filter h, w, d, output channels, batch, then pads, strides and dilations as h, w, d, bias, groups,
the input's layout, dtype, direction. A 2D problem has depth 1 and 0 for the depth's pad, stride and dilation. Source:
``ProblemDescription::VisitAll`` of MIOpen; the sqlite form has one column for each value (CONFIG_COLUMNS).

The output's extents and the layouts of weights and output are not in it, so it cannot be turned into one problem:
records under it are found from the problem's side.
"""

from __future__ import annotations

from hipfind.problem.conv import ConvProblem
from hipfind.problem.miopen_key import encode_miopen_key, layout_names

CONFIG_COLUMNS = (
    "spatial_dim", "in_channels", "in_h", "in_w", "in_d", "fil_h", "fil_w", "fil_d", "out_channels", "batchsize",
    "pad_h", "pad_w", "pad_d", "conv_stride_h", "conv_stride_w", "conv_stride_d", "dilation_h", "dilation_w",
    "dilation_d", "bias", "group_count", "layout", "data_type", "direction",
)  # fmt: skip
"""Columns of the table ``config`` of MIOpen's sqlite perf-db, in the order of the key's values."""


def encode_miopen_perf_key(problem: ConvProblem) -> str:
    """MIOpen's perf-db key. Raises ProblemError for what MIOpen cannot say (see ``encode_miopen_key``)."""
    p = problem.canonical()
    dtypes_and_direction = encode_miopen_key(p).partition("_g")[0].rsplit("-", 2)[1:]
    first, last = (p.x, p.y) if p.direction == "fwd" else (p.y, p.x)
    layout = layout_names(p)[0 if p.direction == "fwd" else 2]
    values = [p.ndim, first.lengths[1], *_hwd(first.lengths[2:], 1), *_hwd(p.filter, 1), last.lengths[1], p.n]
    values += [*_hwd(p.pad, 0), *_hwd(p.stride, 0), *_hwd(p.dilation, 0), 0, p.groups]
    return "x".join([*map(str, values), layout, *dtypes_and_direction])


def _hwd(numbers: tuple[int, ...], no_depth: int) -> tuple[int, ...]:
    """One number each for h, w, d, from d, h, w or h, w."""
    return (*numbers[-2:], numbers[0] if len(numbers) == 3 else no_depth)
