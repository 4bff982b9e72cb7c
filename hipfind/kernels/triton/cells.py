"""Backward data for images with few channels: a cell of neighbouring pixels of dx is one row of a matrix product.

With few channels a product by pixel has too few columns for matrix cores. The pixels and channels of a cell together
have enough, and share the outputs of dy that they read. Filters are laid out for it first, with zeros where an output
is out of a pixel's reach.
"""

import triton
import triton.language as tl

from hipfind.kernels.triton.common import is_strange, tile_of


@triton.jit
def reach(o, q_h, q_w, C: tl.constexpr, CELL: tl.constexpr, LAST: tl.constexpr, GEOMETRY: tl.constexpr):
    """Channel, row and column in the cell of column ``o``, its tap at output (q_h, q_w), and whether there is one.

    CELL: rows and columns. LAST: channels are innermost. GEOMETRY: filter height and width, stride, padding, first
    output: of rows and columns each.
    """
    if LAST:
        channel = o % C
        column = o // C % CELL[1]
    else:
        column = o % CELL[1]
        channel = o // CELL[1] % C
    row = o // (C * CELL[1])
    tap_h = row + GEOMETRY[4] - GEOMETRY[2] * (GEOMETRY[6] + q_h)
    tap_w = column + GEOMETRY[5] - GEOMETRY[3] * (GEOMETRY[7] + q_w)
    real = (tap_h >= 0) & (tap_h < GEOMETRY[0]) & (tap_w >= 0) & (tap_w < GEOMETRY[1]) & (row < CELL[0])
    return channel, row, column, tap_h, tap_w, real


@triton.jit
def expand_cells(
    w, out,
    K: tl.constexpr, C: tl.constexpr, W_STRIDES: tl.constexpr, CELL: tl.constexpr, LAST: tl.constexpr,
    GEOMETRY: tl.constexpr, OUTPUTS: tl.constexpr, SUMMED: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Filters as [outputs of a cell, SUMMED, COLUMNS]. W_STRIDES: output channel, input channel, row, column."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    o = i % COLUMNS
    k = i // COLUMNS % SUMMED
    q = i // (COLUMNS * SUMMED)
    channel, row, column, tap_h, tap_w, real = reach(o, q // OUTPUTS[1], q % OUTPUTS[1], C, CELL, LAST, GEOMETRY)
    at = k * W_STRIDES[0] + channel * W_STRIDES[1] + tap_h * W_STRIDES[2] + tap_w * W_STRIDES[3]
    value = tl.load(w + at, mask=real & (k < K) & (q < OUTPUTS[0] * OUTPUTS[1]), other=0.0)
    tl.store(out + i, value, mask=q < OUTPUTS[0] * OUTPUTS[1])


@triton.jit
def cell_tiles(
    step, dy, w, rows_at, columns_at, place_h, place_w, DY: tl.constexpr, DY_STRIDES: tl.constexpr,
    OUTPUTS: tl.constexpr, SUMMED: tl.constexpr, COLUMNS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Tiles of dy and of the filters for one step of the sum, and the step's output in the cell."""
    blocks: tl.constexpr = SUMMED // BK
    k = step % blocks * BK + tl.arange(0, BK)
    q_w = step // blocks % OUTPUTS[1]
    q_h = step // (blocks * OUTPUTS[1])
    seen = (place_h + q_h >= 0) & (place_h + q_h < DY[0]) & (place_w + q_w >= 0) & (place_w + q_w < DY[1])
    shift = q_h * DY_STRIDES[1] + q_w * DY_STRIDES[2]
    left = tl.load(dy + rows_at[:, None] + (k + shift)[None, :], mask=seen[:, None], other=0.0)
    right = tl.load(w + (step * BK + tl.arange(0, BK))[:, None] * COLUMNS + columns_at[None, :])
    return left, right, q_h, q_w


@triton.jit
def store_cells(
    dx, total, m, o, only, N: tl.constexpr, C: tl.constexpr, GRID: tl.constexpr, CELL: tl.constexpr, LAST: tl.constexpr,
    DX: tl.constexpr, DX_STRIDES: tl.constexpr, GEOMETRY: tl.constexpr,
):  # fmt: skip
    """A tile of sums to its pixels: of each cell all, or ``only`` one (-1: all)."""
    grid_w = m % GRID[1]
    grid_h = m // GRID[1] % GRID[0]
    image = m // (GRID[1] * GRID[0])
    c, in_h, in_w, tap_h, tap_w, real = reach(o, 0, 0, C, CELL, LAST, GEOMETRY)
    wanted = (in_h < CELL[0]) & ((in_h * CELL[1] + in_w == only) | (only < 0))
    inside = (m < N * GRID[0] * GRID[1])[:, None] & wanted[None, :]
    if DX[0] % CELL[0] != 0:
        inside = inside & (grid_h[:, None] * CELL[0] + in_h[None, :] < DX[0])
    if DX[1] % CELL[1] != 0:
        inside = inside & (grid_w[:, None] * CELL[1] + in_w[None, :] < DX[1])
    cell_at = image * DX_STRIDES[0] + grid_h * (CELL[0] * DX_STRIDES[2]) + grid_w * (CELL[1] * DX_STRIDES[3])
    in_cell = c * DX_STRIDES[1] + in_h * DX_STRIDES[2] + in_w * DX_STRIDES[3]
    tl.store(dx + cell_at[:, None] + in_cell[None, :], total.to(dx.dtype.element_ty), mask=inside)


@triton.jit
def cells(
    dy, w, flags, dx,
    N: tl.constexpr, C: tl.constexpr, GRID: tl.constexpr, CELL: tl.constexpr, LAST: tl.constexpr, DX: tl.constexpr,
    DX_STRIDES: tl.constexpr, DY: tl.constexpr, DY_STRIDES: tl.constexpr, GEOMETRY: tl.constexpr,
    OUTPUTS: tl.constexpr, SUMMED: tl.constexpr, COLUMNS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, PRECISION: tl.constexpr,
    AGAIN: tl.constexpr,
):  # fmt: skip
    """BM cells by BN of their COLUMNS. GRID: cells of an image. DX_STRIDES: image, channel, row, column; DY_STRIDES:
    image, row, column. SUMMED is a multiple of BK, COLUMNS of BN.

    Zeros in the filters make NaN of an infinity out of a pixel's reach. A program that meets any sets its flag, and
    does its tile AGAIN in a second launch, each pixel of the cell by itself.
    """
    rows: tl.constexpr = N * GRID[0] * GRID[1]
    tiles_m: tl.constexpr = (rows + BM - 1) // BM
    tiles_n: tl.constexpr = COLUMNS // BN
    steps: tl.constexpr = OUTPUTS[0] * OUTPUTS[1] * (SUMMED // BK)
    program = tl.program_id(0)
    if AGAIN:
        if tl.load(flags + program) == 0:
            return
    row, column = tile_of(program, tiles_m, tiles_n, GROUP)
    m = row * BM + tl.arange(0, BM)
    place_w = m % GRID[1] * (CELL[1] // GEOMETRY[3]) + GEOMETRY[7]
    place_h = m // GRID[1] % GRID[0] * (CELL[0] // GEOMETRY[2]) + GEOMETRY[6]
    rows_at = m // (GRID[1] * GRID[0]) * DY_STRIDES[0] + place_h * DY_STRIDES[1] + place_w * DY_STRIDES[2]
    place_h = tl.where(m < rows, place_h, -(1 << 30))
    o = column * BN + tl.arange(0, BN)
    if AGAIN:
        for pixel in range(CELL[0] * CELL[1]):
            total = tl.zeros((BM, BN), tl.float32)
            for step in range(steps):
                left, right, q_h, q_w = cell_tiles(
                    step, dy, w, rows_at, o, place_h, place_w, DY, DY_STRIDES, OUTPUTS, SUMMED, COLUMNS, BK
                )
                tap_h = pixel // CELL[1] + GEOMETRY[4] - GEOMETRY[2] * (GEOMETRY[6] + q_h)
                tap_w = pixel % CELL[1] + GEOMETRY[5] - GEOMETRY[3] * (GEOMETRY[7] + q_w)
                real = (tap_h >= 0) & (tap_h < GEOMETRY[0]) & (tap_w >= 0) & (tap_w < GEOMETRY[1])
                total = tl.dot(tl.where(real, left, 0.0), right, total, input_precision=PRECISION)
            store_cells(dx, total, m, o, pixel, N, C, GRID, CELL, LAST, DX, DX_STRIDES, GEOMETRY)
    else:
        total = tl.zeros((BM, BN), tl.float32)
        for step in range(steps):
            left, right, q_h, q_w = cell_tiles(
                step, dy, w, rows_at, o, place_h, place_w, DY, DY_STRIDES, OUTPUTS, SUMMED, COLUMNS, BK
            )
            total = tl.dot(left, right, total, input_precision=PRECISION)
        tl.store(flags + program, is_strange(total))
        store_cells(dx, total, m, o, -1, N, C, GRID, CELL, LAST, DX, DX_STRIDES, GEOMETRY)
