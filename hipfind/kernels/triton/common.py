"""Pieces of the Triton kernels: offsets along axes of compile-time extents, tiles and their order, sums of parts."""

import triton
import triton.language as tl


@triton.jit
def axis_offsets(i, AXES: tl.constexpr):
    """Offsets in elements of indices ``i`` along nested axes.

    AXES is (extent, stride) of four axes, the innermost first, as one tuple; an extent of 0 takes the rest. Extents are
    compile-time numbers, so divisions become multiplications and runs of neighbours are seen by the compiler.
    """
    if AXES[0] == 0:
        result = i * AXES[1]
    else:
        result = (i % AXES[0]) * AXES[1]
        i = i // AXES[0]
        if AXES[2] == 0:
            result += i * AXES[3]
        else:
            result += (i % AXES[2]) * AXES[3]
            i = i // AXES[2]
            if AXES[4] == 0:
                result += i * AXES[5]
            else:
                result += (i % AXES[4]) * AXES[5] + (i // AXES[4]) * AXES[7]
    return result


@triton.jit
def tile_of(program, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Row and column of a program's output tile: GROUP rows at a time, so that programs near in time share operands."""
    in_band = GROUP * tiles_n
    band = program // in_band
    rows = min(tiles_m - band * GROUP, GROUP)
    within = program % in_band
    return band * GROUP + within % rows, within // rows


@triton.jit
def load_tile(at, row_inside, column_inside, ALL_ROWS: tl.constexpr, ALL_COLUMNS: tl.constexpr):
    """A tile, zero where its row or column is outside; what is known to be inside costs no predicate."""
    if ALL_ROWS and ALL_COLUMNS:
        return tl.load(at)
    elif ALL_ROWS:
        return tl.load(at, mask=column_inside[None, :], other=0.0)
    elif ALL_COLUMNS:
        return tl.load(at, mask=row_inside[:, None], other=0.0)
    else:
        return tl.load(at, mask=row_inside[:, None] & column_inside[None, :], other=0.0)


@triton.jit
def split_sum(parts, out, elements, PARTS: tl.constexpr, ROWS: tl.constexpr, AXES: tl.constexpr, BLOCK: tl.constexpr):
    """Sum of PARTS fp32 arrays, which lie one after the other, in one order always, rounded once.

    ROWS: a power of two, at least PARTS. AXES: where an array's elements go.
    """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.arange(0, ROWS)
    inside = (part < PARTS)[:, None] & (i < elements)[None, :]
    tile = tl.load(parts + part[:, None] * elements + i[None, :], mask=inside, other=0.0)
    tl.store(out + axis_offsets(i, AXES), tl.sum(tile, axis=0).to(out.dtype.element_ty), mask=i < elements)


@triton.jit
def is_strange(total):
    """1 where any sum is infinite or not a number, else 0."""
    return tl.max(tl.max(tl.where(total - total == 0.0, 0, 1), axis=1), axis=0)
