"""Convolutions as an implicit matrix product over channel-last sources: forward and backward data by v4r1.

Output pixels are the rows, output channels the columns, taps times source channels the sum. Backward data is split by
the residue of a pixel's place modulo the stride (a phase): each phase is a convolution with stride 1 and every
(stride / gcd(stride, dilation))-th tap, so no product is with a zero between strides, and no pixel is written twice.
All geometry arguments may be compile-time constants (static) or run-time numbers (dynamic).

Source: MIOpen's igemm v4r1 backward data, by its formulas; the gather of the forward direction is the same code.
"""

import triton
import triton.language as tl

from hipfind.kernels.triton.common import is_strange, tile_of


@triton.jit
def phase_of(a, filter, stride, pad, dilation, common, inverse, BACKWARD: tl.constexpr, PLAIN: tl.constexpr):
    """Taps of one axis for phase ``a``: count, first tap, tap step; source place = first + i * i_step + j * j_step.

    ``common`` is gcd(stride, dilation), ``inverse`` that of dilation / common modulo stride / common. i counts the
    pixels of the phase, j its taps. PLAIN: dilation 1.
    """
    if BACKWARD and PLAIN:
        first = (a + pad) // stride
        first_tap = a + pad - first * stride
        return max(filter - first_tap + stride - 1, 0) // stride, first_tap, stride, first, 1, -1
    elif BACKWARD:
        step = stride // common
        place = a + pad
        first_tap = (place // common * inverse) % step
        count = tl.where(place % common == 0, max(filter - first_tap + step - 1, 0) // step, 0)
        first = tl.where(place % common == 0, (place - first_tap * dilation) // stride, 0)
        return count, first_tap, step, first, 1, -(dilation // common)
    else:
        return filter + a, 0, 1, a - pad, stride, dilation


@triton.jit
def divided(i, divisor, magic, shift, DYNAMIC: tl.constexpr):
    """i // divisor and i % divisor of numbers below 2^31; by a multiplication where the divisor is not compiled in.

    Source: T. Granlund, P. L. Montgomery, Division by Invariant Integers using Multiplication, PLDI 1994.
    """
    if DYNAMIC:
        high = tl.umulhi(
            i.to(tl.uint32, bitcast=True), tl.zeros_like(i).to(tl.uint32) + magic.to(tl.uint32, bitcast=True)
        )
        quotient = ((high + i.to(tl.uint32, bitcast=True)) >> shift.to(tl.uint32)).to(tl.int32, bitcast=True)
    else:
        quotient = i // divisor
    return quotient, i - quotient * divisor


@triton.jit
def load_step(
    source, w, rows_at, columns_at, place_d, place_h, place_w, o, k, channel, inside, move_d, move_h, move_w, shift,
    w_shift, w_sum_stride, source_d, source_h, source_w, FLAT: tl.constexpr, EVEN: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    """Tiles of the source and of the filters for channels ``channel`` of a tap, or of a tap each where FLAT.

    move_*: from a row's first place to the tap's, shift and w_shift: the same in elements of source and filters.
    """
    left_at = source + rows_at[:, None] + (channel + shift)[None, :]
    right_at = w + columns_at[None, :] + (channel * w_sum_stride + w_shift)[:, None]
    if FLAT:
        see_w = place_w[:, None] + move_w[None, :]
        see_h = place_h[:, None] + move_h[None, :]
        seen = (see_w >= 0) & (see_w < source_w) & (see_h >= 0) & (see_h < source_h) & inside[None, :]
        if DEEP:
            see_d = place_d[:, None] + move_d[None, :]
            seen = seen & (see_d >= 0) & (see_d < source_d)
    else:
        see_w = place_w + move_w
        see_h = place_h + move_h
        seen = (see_w >= 0) & (see_w < source_w) & (see_h >= 0) & (see_h < source_h)
        if DEEP:
            see_d = place_d + move_d
            seen = seen & (see_d >= 0) & (see_d < source_d)
        seen = seen[:, None]
        if not EVEN:
            seen = seen & inside[None, :]
    left = tl.load(left_at, mask=seen, other=0.0)
    if EVEN and not FLAT:
        right = tl.load(right_at, mask=(o < k)[None, :], other=0.0)
    else:
        right = tl.load(right_at, mask=inside[:, None] & (o < k)[None, :], other=0.0)
    return left, right


@triton.jit
def gather(
    source, w, flags, out,
    n, c, k,
    source_d, source_h, source_w, source_n_stride, source_d_stride, source_h_stride, source_w_stride,
    out_d, out_h, out_w, out_n_stride, out_d_stride, out_h_stride, out_w_stride, out_c_stride,
    filter_d, filter_h, filter_w, w_out_stride, w_sum_stride, w_d_stride, w_h_stride, w_w_stride, w_group_stride,
    stride_d, stride_h, stride_w, pad_d, pad_h, pad_w, dilation_d, dilation_h, dilation_w,
    common_d, common_h, common_w, inverse_d, inverse_h, inverse_w, part_stride,
    magic_d, magic_h, magic_w, magic_shift_d, magic_shift_h, magic_shift_w,
    DYNAMIC: tl.constexpr, PLAIN: tl.constexpr, ONE: tl.constexpr, BACKWARD: tl.constexpr, FLAT: tl.constexpr,
    EVEN: tl.constexpr, DEEP: tl.constexpr, LAST_FIRST: tl.constexpr, SPLIT: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, MERGED: tl.constexpr,
    PRECISION: tl.constexpr, AGAIN: tl.constexpr,
):  # fmt: skip
    """One BM x BN tile of one phase, group and part of the sum.

    ``c`` source channels and ``k`` output channels of a group. magic_*: for divisions by the extents of a phase's
    grid. DYNAMIC: sizes are run-time numbers. PLAIN: dilation 1. ONE: one group and one part. DEEP: 3D. LAST_FIRST:
    phases one after the other, the last first, else side by side. FLAT: taps and channels are one index, for few
    channels; else a step takes BK channels of one tap. EVEN: c is a multiple of BK. MERGED groups are one, with zeros
    between them in w: these make NaN of another group's infinity. A program that meets any sets its flag, and does
    its tile AGAIN in a second launch, each group by itself.
    """
    phases_d = stride_d if BACKWARD else 1
    phases_h = stride_h if BACKWARD else 1
    phases_w = stride_w if BACKWARD else 1
    grid_d = (out_d + phases_d - 1) // phases_d
    grid_h = (out_h + phases_h - 1) // phases_h
    grid_w = (out_w + phases_w - 1) // phases_w
    rows = n * grid_d * grid_h * grid_w
    tiles_m = (rows + BM - 1) // BM
    tiles_n = (k + BN - 1) // BN

    program = tl.program_id(0)
    if AGAIN:
        if tl.load(flags + program) == 0:
            return
    phases = phases_d * phases_h * phases_w
    if not BACKWARD:
        # Known to the compiler, and with it the number of steps: behind a loop that may end before it begins ptxas lets
        # matrix instructions wait for each other.
        phase = 0
    elif LAST_FIRST:
        phase = phases - 1 - program // (tl.num_programs(0) // phases)
        program = program % (tl.num_programs(0) // phases)
    else:
        phase = program % phases
        program = program // phases
    if ONE:
        row, column = tile_of(program, tiles_m, tiles_n, GROUP)
        part, group = 0, 0
    else:
        row, column = tile_of(program % (tiles_m * tiles_n), tiles_m, tiles_n, GROUP)
        rest = program // (tiles_m * tiles_n)
        part = rest % SPLIT
        group = rest // SPLIT
    phase_h = phase // phases_w
    phase_w = phase - phase_h * phases_w
    phase_d = 0
    if DEEP:
        phase_d = phase_h // phases_h
        phase_h = phase_h - phase_d * phases_h
    count_d, tap_d, step_d, first_d, i_d, j_d = phase_of(
        phase_d, filter_d, stride_d, pad_d, dilation_d, common_d, inverse_d, BACKWARD, PLAIN
    )
    count_h, tap_h, step_h, first_h, i_h, j_h = phase_of(
        phase_h, filter_h, stride_h, pad_h, dilation_h, common_h, inverse_h, BACKWARD, PLAIN
    )
    count_w, tap_w, step_w, first_w, i_w, j_w = phase_of(
        phase_w, filter_w, stride_w, pad_w, dilation_w, common_w, inverse_w, BACKWARD, PLAIN
    )

    m = row * BM + tl.arange(0, BM)
    image, at_w = divided(m, grid_w, magic_w, magic_shift_w, DYNAMIC)
    image, at_h = divided(image, grid_h, magic_h, magic_shift_h, DYNAMIC)
    at_d = 0
    if DEEP:
        image, at_d = divided(image, grid_d, magic_d, magic_shift_d, DYNAMIC)
    place_w = first_w + at_w * i_w
    place_h = first_h + at_h * i_h
    place_d = first_d + at_d * i_d
    rows_at = image * source_n_stride + place_d * source_d_stride + group * c
    rows_at += place_h * source_h_stride + place_w * source_w_stride
    place_h = tl.where(m < rows, place_h, -(1 << 30))
    o = column * BN + tl.arange(0, BN)
    columns_at = group * w_group_stride + o * w_out_stride
    columns_at += tap_d * w_d_stride + tap_h * w_h_stride + tap_w * w_w_stride

    blocks = (c + BK - 1) // BK
    taps = count_d * count_h * count_w
    if FLAT:
        steps = (taps * c + BK - 1) // BK
    else:
        steps = taps * blocks
    steps_each = (steps + SPLIT - 1) // SPLIT
    begin = part * steps_each
    if SPLIT == 1:
        end = steps
    else:
        end = min(begin + steps_each, steps)
    to_w = at_w * phases_w + phase_w
    to_h = at_h * phases_h + phase_h
    inside_rows = (m < rows) & (to_w < out_w) & (to_h < out_h)
    pixels_to = image * out_n_stride + to_h * out_h_stride + to_w * out_w_stride
    if DEEP:
        to_d = at_d * phases_d + phase_d
        inside_rows = inside_rows & (to_d < out_d)
        pixels_to += to_d * out_d_stride
    pixels_to += part * part_stride
    channels_to = (group * k + o) * out_c_stride
    # From a tap to the next one of its row, and to the first one of the next row (or plane).
    next_w, next_w_of_w = j_w * source_w_stride, step_w * w_w_stride
    next_h = j_h * source_h_stride - count_w * next_w
    next_h_of_w = step_h * w_h_stride - count_w * next_w_of_w
    next_d = j_d * source_d_stride - count_h * j_h * source_h_stride
    next_d_of_w = step_d * w_d_stride - count_h * step_h * w_h_stride
    for one in range(MERGED if AGAIN else 1):
        total = tl.zeros((BM, BN), tl.float32)
        # Where a step is one tap's, taps are counted on: divisions by run-time numbers in each step would cost more
        # than its loads.
        block = begin % blocks
        tap = begin // blocks
        x = tap % max(count_w, 1)
        y = tap // max(count_w, 1) % max(count_h, 1)
        z = tap // max(count_w * count_h, 1)
        move_w, move_h, move_d = x * j_w, y * j_h, z * j_d
        shift = move_d * source_d_stride + move_h * source_h_stride + move_w * source_w_stride
        w_shift = z * step_d * w_d_stride + y * step_h * w_h_stride + x * step_w * w_w_stride
        for step in range(begin, end):
            if FLAT:
                index = step * BK + tl.arange(0, BK)
                at = index // c
                at_x = at % max(count_w, 1)
                at_y = at // max(count_w, 1) % max(count_h, 1)
                at_z = at // max(count_w * count_h, 1)
                to_tap = at_z * j_d * source_d_stride + at_y * j_h * source_h_stride + at_x * next_w
                to_w_tap = at_z * step_d * w_d_stride + at_y * step_h * w_h_stride + at_x * next_w_of_w
                left, right = load_step(
                    source, w, rows_at, columns_at, place_d, place_h, place_w, o, k, index % c, index < taps * c,
                    at_z * j_d, at_y * j_h, at_x * j_w, to_tap, to_w_tap, w_sum_stride, source_d, source_h, source_w,
                    FLAT, EVEN, DEEP,
                )  # fmt: skip
                channel = index % c
            else:
                channel = block * BK + tl.arange(0, BK)
                left, right = load_step(
                    source, w, rows_at, columns_at, place_d, place_h, place_w, o, k, channel, channel < c,
                    move_d, move_h, move_w, shift, w_shift, w_sum_stride, source_d, source_h, source_w,
                    FLAT, EVEN, DEEP,
                )  # fmt: skip
            if AGAIN:
                left = tl.where((channel // (c // MERGED) == one)[None, :], left, 0.0)
            total = tl.dot(left, right, total, input_precision=PRECISION)
            if not FLAT:  # selections, because a branch would keep loads from being pipelined
                block += 1
                ends_tap = block == blocks
                block = tl.where(ends_tap, 0, block)
                x += ends_tap.to(tl.int32)
                move_w += tl.where(ends_tap, j_w, 0)
                shift += tl.where(ends_tap, next_w, 0)
                w_shift += tl.where(ends_tap, next_w_of_w, 0)
                ends_row = x == count_w
                x = tl.where(ends_row, 0, x)
                move_w = tl.where(ends_row, 0, move_w)
                move_h += tl.where(ends_row, j_h, 0)
                shift += tl.where(ends_row, next_h, 0)
                w_shift += tl.where(ends_row, next_h_of_w, 0)
                if DEEP:
                    y += ends_row.to(tl.int32)
                    ends_plane = y == count_h
                    y = tl.where(ends_plane, 0, y)
                    move_h = tl.where(ends_plane, 0, move_h)
                    move_d += tl.where(ends_plane, j_d, 0)
                    shift += tl.where(ends_plane, next_d, 0)
                    w_shift += tl.where(ends_plane, next_d_of_w, 0)
        wanted = o < k
        if AGAIN:
            wanted = wanted & (o // (k // MERGED) == one)
        elif MERGED > 1:
            tl.store(flags + tl.program_id(0), is_strange(total))
        to = out + pixels_to[:, None] + channels_to[None, :]
        tl.store(to, total.to(out.dtype.element_ty), mask=inside_rows[:, None] & wanted[None, :])
