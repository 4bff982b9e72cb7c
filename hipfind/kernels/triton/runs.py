"""Forward for images with few channels: a few neighbouring outputs of a row are one row of a matrix product.

With few channels, padded to FEW, a row of a window is one run of memory. Neighbouring outputs share most of theirs, so
a row of the product reads the run of P outputs once, and has the output channels of all of them as columns. Filters are
laid out for it first, with zeros where a column of the run is out of an output's window.
"""

import triton
import triton.language as tl

from hipfind.kernels.triton.common import is_strange, tile_of


@triton.jit
def expand_runs(
    w, out,
    C: tl.constexpr, K: tl.constexpr, FILTER: tl.constexpr, W_STRIDES: tl.constexpr, STEP: tl.constexpr,
    FEW: tl.constexpr, RUN: tl.constexpr, DEPTH: tl.constexpr, P: tl.constexpr, COLUMNS: tl.constexpr,
    TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Filters as [DEPTH, tile of output channels, output, channel of the tile]; DEPTH counts (row, place in the run).

    W_STRIDES: output channel, input channel, row, column. STEP: columns from one output's window to the next one's.
    """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = i % COLUMNS
    k = column // (TILE * P) * TILE + column % TILE
    output = column // TILE % P
    place = i // COLUMNS % RUN
    row = i // (COLUMNS * RUN)
    channel = place % FEW
    tap = place // FEW - output * STEP
    real = (channel < C) & (tap >= 0) & (tap < FILTER[1]) & (k < K) & (row < FILTER[0])
    at = k * W_STRIDES[0] + channel * W_STRIDES[1] + row * W_STRIDES[2] + tap * W_STRIDES[3]
    tl.store(out + i, tl.load(w + at, mask=real, other=0.0), mask=i < DEPTH * COLUMNS)


@triton.jit
def run_tiles(
    step, x, w, rows_at, inside, columns_at, RUN: tl.constexpr, PITCH: tl.constexpr, DEPTH: tl.constexpr,
    COLUMNS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Tiles of x and of the filters for one step of the sum, and the step's places in the run."""
    index = step * BK + tl.arange(0, BK)
    place = index % RUN
    left_at = x + rows_at[:, None] + (index // RUN * PITCH + place)[None, :]
    right_at = w + index[:, None] * COLUMNS + columns_at[None, :]
    if DEPTH % BK == 0:
        left = tl.load(left_at, mask=inside[:, None], other=0.0)
        right = tl.load(right_at)
    else:
        left = tl.load(left_at, mask=inside[:, None] & (index < DEPTH)[None, :], other=0.0)
        right = tl.load(right_at, mask=(index < DEPTH)[:, None], other=0.0)
    return left, right, place


@triton.jit
def store_runs(
    y, total, row, column, only, N: tl.constexpr, K: tl.constexpr, Y: tl.constexpr, Y_STRIDES: tl.constexpr,
    GRID_W: tl.constexpr, P: tl.constexpr, BM: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """A tile of sums to its outputs: of each P neighbours all, or ``only`` one (P: all)."""
    pixel = row * (BM * P) + tl.arange(0, BM * P)
    to_w = pixel % (GRID_W * P)
    line = pixel // (GRID_W * P)
    k = column * TILE + tl.arange(0, TILE)
    to = line // Y[0] * Y_STRIDES[0] + line % Y[0] * Y_STRIDES[2] + to_w * Y_STRIDES[3]
    inside = (line < N * Y[0]) & (to_w < Y[1]) & ((pixel % P == only) | (only == P))
    result = tl.reshape(total, (BM * P, TILE)).to(y.dtype.element_ty)
    tl.store(y + to[:, None] + (k * Y_STRIDES[1])[None, :], result, mask=inside[:, None] & (k < K)[None, :])


@triton.jit
def runs(
    x, w, flags, y,
    N: tl.constexpr, K: tl.constexpr, Y: tl.constexpr, Y_STRIDES: tl.constexpr, GRID_W: tl.constexpr,
    X_STRIDES: tl.constexpr, COLUMN_TAPS: tl.constexpr, STEP: tl.constexpr, FEW: tl.constexpr, RUN: tl.constexpr,
    PITCH: tl.constexpr, DEPTH: tl.constexpr, P: tl.constexpr, COLUMNS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, PRECISION: tl.constexpr,
    AGAIN: tl.constexpr,
):  # fmt: skip
    """BM times P outputs by BN / P channels.

    Y: height, width. Y_STRIDES: image, channel, row, column. GRID_W: runs of a row of outputs. X_STRIDES: image, row of
    outputs, run. PITCH: a row of x. DEPTH: rows of a window times RUN.

    Zeros in the filters make NaN of an infinity out of an output's window. A program that meets any sets its flag, and
    does its tile AGAIN in a second launch, each output of a run by itself.
    """
    rows: tl.constexpr = N * Y[0] * GRID_W
    tiles_m: tl.constexpr = (rows + BM - 1) // BM
    tiles_n: tl.constexpr = COLUMNS // BN
    TILE: tl.constexpr = BN // P
    steps: tl.constexpr = (DEPTH + BK - 1) // BK
    program = tl.program_id(0)
    if AGAIN:
        if tl.load(flags + program) == 0:
            return
    row, column = tile_of(program, tiles_m, tiles_n, GROUP)
    m = row * BM + tl.arange(0, BM)
    rows_at = m // (GRID_W * Y[0]) * X_STRIDES[0] + m // GRID_W % Y[0] * X_STRIDES[1] + m % GRID_W * X_STRIDES[2]
    columns_at = column * BN + tl.arange(0, BN)
    if AGAIN:
        for output in range(P):
            total = tl.zeros((BM, BN), tl.float32)
            for step in range(steps):
                left, right, place = run_tiles(
                    step, x, w, rows_at, m < rows, columns_at, RUN, PITCH, DEPTH, COLUMNS, BK
                )
                tap = place // FEW - output * STEP
                left = tl.where(((tap >= 0) & (tap < COLUMN_TAPS))[None, :], left, 0.0)
                total = tl.dot(left, right, total, input_precision=PRECISION)
            store_runs(y, total, row, column, output, N, K, Y, Y_STRIDES, GRID_W, P, BM, TILE)
    else:
        total = tl.zeros((BM, BN), tl.float32)
        for step in range(steps):
            left, right, place = run_tiles(step, x, w, rows_at, m < rows, columns_at, RUN, PITCH, DEPTH, COLUMNS, BK)
            total = tl.dot(left, right, total, input_precision=PRECISION)
        tl.store(flags + program, is_strange(total))
        store_runs(y, total, row, column, P, N, K, Y, Y_STRIDES, GRID_W, P, BM, TILE)
