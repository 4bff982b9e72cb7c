"""Channel-last copies for the implicit products: channels innermost, with zeros for missing channels and borders."""

import triton
import triton.language as tl


@triton.jit
def pack(
    source, out,
    c, h, w, image_stride, c_stride, h_stride, w_stride, before_h, before_w, out_h, out_w, out_c,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """BP pixels by BC channels of one image [out_h, out_w, out_c] of ``out``, from [c, h, w] with these strides.

    ``before_h``, ``before_w``: rows and columns of zeros in front. Numbers may be constants or run-time arguments.
    """
    tiles_p = (out_h * out_w + BP - 1) // BP
    tiles_c = (out_c + BC - 1) // BC
    program = tl.program_id(0)
    pixel = program % tiles_p * BP + tl.arange(0, BP)
    channel = program // tiles_p % tiles_c * BC + tl.arange(0, BC)
    image = program // (tiles_p * tiles_c)
    row = pixel // out_w - before_h
    column = pixel % out_w - before_w
    seen = (row >= 0) & (row < h) & (column >= 0) & (column < w)
    at = source + image * image_stride + (channel * c_stride)[:, None] + (row * h_stride + column * w_stride)[None, :]
    tile = tl.load(at, mask=(channel < c)[:, None] & seen[None, :], other=0.0)
    to = out + image * (out_h * out_w * out_c) + pixel[:, None] * out_c + channel[None, :]
    tl.store(to, tl.trans(tile), mask=(pixel < out_h * out_w)[:, None] & (channel < out_c)[None, :])


@triton.jit
def merge_groups(
    w, out,
    ELEMENTS: tl.constexpr, MERGED: tl.constexpr, OUTS: tl.constexpr, SUMMED: tl.constexpr, TAPS: tl.constexpr,
    OUT_STRIDE: tl.constexpr, SUM_STRIDE: tl.constexpr, TAP_STRIDE: tl.constexpr, GROUP_STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Filters of MERGED groups as one: [groups / MERGED, MERGED * OUTS, TAPS, MERGED * SUMMED], zero between groups."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    summed = i % (MERGED * SUMMED)
    tap = i // (MERGED * SUMMED) % TAPS
    outs = i // (MERGED * SUMMED * TAPS) % (MERGED * OUTS)
    block = i // (MERGED * SUMMED * TAPS * MERGED * OUTS)
    group = outs // OUTS
    at = (block * MERGED + group) * GROUP_STRIDE + outs % OUTS * OUT_STRIDE + summed % SUMMED * SUM_STRIDE
    same = (summed // SUMMED == group) & (i < ELEMENTS)
    value = tl.load(w + at + tap * TAP_STRIDE, mask=same, other=0.0)
    tl.store(out + i, value, mask=i < ELEMENTS)
