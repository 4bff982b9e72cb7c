"""Weight gradient as an implicit matrix product over a channel-last x: filters by (tap, channel), over pixels."""

import triton
import triton.language as tl

from hipfind.kernels.triton.common import axis_offsets, tile_of


@triton.jit
def weights(
    dy, x, dw,
    N: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    X: tl.constexpr, Y: tl.constexpr, FILTER: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr,
    DILATION: tl.constexpr, BEYOND: tl.constexpr, X_STRIDES: tl.constexpr, DY_STRIDES: tl.constexpr, LINE: tl.constexpr,
    DW_ROWS: tl.constexpr, DW_COLUMNS: tl.constexpr, PADDED: tl.constexpr, KEPT: tl.constexpr,
    REAL: tl.constexpr, MERGED_K: tl.constexpr, DW_GROUP: tl.constexpr, PART: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr, GROUP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One BM x BN tile of one group's dw over one of SPLIT parts of the pixels.

    X, Y, FILTER, STRIDE, PAD, DILATION, BEYOND (whether a window reaches beyond x): depth, height, width. X_STRIDES,
    DY_STRIDES: image, depth, height, width, and of dy the channel. Pixels are counted in lines of LINE, at least Y's
    width: a power of two makes their places cheap to compute. DW_COLUMNS: axes of (tap, channel), channels innermost;
    of each PADDED channels KEPT are dw's, and of each C REAL (0: all). Groups may be merged: then C and K are those
    of several groups of KEPT and MERGED_K, and only products within a group are kept.
    """
    row_length: tl.constexpr = FILTER[0] * FILTER[1] * FILTER[2] * C
    lines: tl.constexpr = N * Y[0] * Y[1]
    tiles_m: tl.constexpr = (K + BM - 1) // BM
    tiles_n: tl.constexpr = (row_length + BN - 1) // BN
    steps: tl.constexpr = (lines * LINE + BK - 1) // BK
    steps_each: tl.constexpr = (steps + SPLIT - 1) // SPLIT
    program = tl.program_id(0)
    row, column = tile_of(program % (tiles_m * tiles_n), tiles_m, tiles_n, GROUP)
    rest = program // (tiles_m * tiles_n)
    part = rest % SPLIT
    group = rest // SPLIT

    k = row * BM + tl.arange(0, BM)
    j = column * BN + tl.arange(0, BN)
    if C % BN == 0:
        tap = column * BN // C
        channel = j % C
    else:
        tap = j // C
        channel = j % C
    tap_w = tap % FILTER[2] * DILATION[2] - PAD[2]
    tap_h = tap // FILTER[2] % FILTER[1] * DILATION[1] - PAD[1]
    tap_d = tap // (FILTER[2] * FILTER[1]) * DILATION[0] - PAD[0]
    columns_at = channel + group * C + tap_w * X_STRIDES[3] + tap_h * X_STRIDES[2] + tap_d * X_STRIDES[1]
    rows_of_dy = (group * K + k) * DY_STRIDES[4]
    total = tl.zeros((BM, BN), tl.float32)
    first = part * steps_each
    # As many steps in every part, the last ones' behind the last line: after a loop that may end before it begins ptxas
    # lets matrix instructions wait for each other.
    for step in range(first, first + steps_each):
        if LINE % BK == 0:
            # not step * BK % LINE: of a remainder the compiler does not know that it is a multiple of BK
            line = step // (LINE // BK)
            at = (step - line * (LINE // BK)) * BK + tl.arange(0, BK)
        else:
            line = (step * BK + tl.arange(0, BK)) // LINE
            at = (step * BK + tl.arange(0, BK)) % LINE
        at_h = line % Y[1]
        at_d = line // Y[1] % Y[0]
        image = line // (Y[1] * Y[0])
        pixels = image * DY_STRIDES[0] + at_d * DY_STRIDES[1] + at_h * DY_STRIDES[2] + at * DY_STRIDES[3]
        rows_at = image * X_STRIDES[0] + at_d * (STRIDE[0] * X_STRIDES[1]) + at_h * (STRIDE[1] * X_STRIDES[2])
        rows_at = rows_at + at * (STRIDE[2] * X_STRIDES[3])
        real = (at < Y[2]) & (line < lines)
        left_at = dy + pixels[None, :] + rows_of_dy[:, None]
        if K % BM == 0:
            left = tl.load(left_at, mask=real[None, :], other=0.0)
        else:
            left = tl.load(left_at, mask=(k < K)[:, None] & real[None, :], other=0.0)
        see_w = at * STRIDE[2]
        see_h = at_h * STRIDE[1]
        see_d = at_d * STRIDE[0]
        if C % BN == 0:
            seen = real
            if BEYOND[2]:
                seen = seen & (see_w + tap_w >= 0) & (see_w + tap_w < X[2])
            if BEYOND[1]:
                seen = seen & (see_h + tap_h >= 0) & (see_h + tap_h < X[1])
            if BEYOND[0]:
                seen = seen & (see_d + tap_d >= 0) & (see_d + tap_d < X[0])
            right = tl.load(x + rows_at[:, None] + columns_at[None, :], mask=seen[:, None], other=0.0)
        else:
            seen = real[:, None] & (j < row_length)[None, :]
            if BEYOND[2]:
                across = see_w[:, None] + tap_w[None, :]
                seen = seen & (across >= 0) & (across < X[2])
            if BEYOND[1]:
                if LINE % BK == 0:
                    seen = seen & ((see_h + tap_h >= 0) & (see_h + tap_h < X[1]))[None, :]
                else:
                    down = see_h[:, None] + tap_h[None, :]
                    seen = seen & (down >= 0) & (down < X[1])
            if BEYOND[0]:
                if LINE % BK == 0:
                    seen = seen & ((see_d + tap_d >= 0) & (see_d + tap_d < X[0]))[None, :]
                else:
                    deep = see_d[:, None] + tap_d[None, :]
                    seen = seen & (deep >= 0) & (deep < X[0])
            right = tl.load(x + rows_at[:, None] + columns_at[None, :], mask=seen, other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    to = dw + part * PART + group * DW_GROUP + (k * DW_ROWS)[:, None] + axis_offsets(j, DW_COLUMNS)[None, :]
    wanted = (k < K)[:, None] & (j < row_length)[None, :]
    if MERGED_K < K:
        wanted = wanted & ((k // MERGED_K)[:, None] == (j % C // KEPT)[None, :])
    elif KEPT < PADDED:
        wanted = wanted & (j % PADDED < KEPT)[None, :]
    if REAL > 0:
        wanted = wanted & (j % C < REAL)[None, :]
    tl.store(to, total.to(dw.dtype.element_ty), mask=wanted)
