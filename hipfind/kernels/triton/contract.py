"""Convolutions without padding as one matrix product on tensors as they lie.

C[i, j] = sum over k of A[i, k] B[k, j], where each index of an operand runs over up to four nested axes of its tensor.
Forward, backward data and backward weights of point output, patches and 1x1 filters differ in these axes only.
"""

import triton
import triton.language as tl

from hipfind.kernels.triton.common import axis_offsets, load_tile, tile_of


@triton.jit
def contract(
    a, b, c,
    I: tl.constexpr, J: tl.constexpr, K: tl.constexpr,
    A_I: tl.constexpr, A_K: tl.constexpr, B_K: tl.constexpr, B_J: tl.constexpr, C_I: tl.constexpr, C_J: tl.constexpr,
    BATCH_A: tl.constexpr, BATCH_B: tl.constexpr, BATCH_C: tl.constexpr, PART: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr, GROUP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One BM x BN tile of C over one of SPLIT parts of K, in one of several products at BATCH_* elements' distance.

    Part p of C starts at p * PART elements.
    """
    tiles_m: tl.constexpr = (I + BM - 1) // BM
    tiles_n: tl.constexpr = (J + BN - 1) // BN
    steps: tl.constexpr = (K + BK - 1) // BK
    steps_each: tl.constexpr = (steps + SPLIT - 1) // SPLIT
    program = tl.program_id(0)
    row, column = tile_of(program % (tiles_m * tiles_n), tiles_m, tiles_n, GROUP)
    rest = program // (tiles_m * tiles_n)
    part = rest % SPLIT
    batch = rest // SPLIT

    i = row * BM + tl.arange(0, BM)
    j = column * BN + tl.arange(0, BN)
    a_rows = a + batch * BATCH_A + axis_offsets(i, A_I)[:, None]
    b_columns = b + batch * BATCH_B + axis_offsets(j, B_J)[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    first = part * steps_each
    # As many steps in every part, the last ones' beyond K: after a loop that may end before it begins ptxas lets matrix
    # instructions wait for each other.
    EVEN: tl.constexpr = K % (BK * steps_each * SPLIT) == 0
    for step in range(first, first + steps_each):
        k = step * BK + tl.arange(0, BK)
        left = load_tile(a_rows + axis_offsets(k, A_K)[None, :], i < I, k < K, I % BM == 0, EVEN)
        right = load_tile(b_columns + axis_offsets(k, B_K)[:, None], k < K, j < J, EVEN, J % BN == 0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    c_at = c + batch * BATCH_C + part * PART + axis_offsets(i, C_I)[:, None] + axis_offsets(j, C_J)[None, :]
    result = total.to(c.dtype.element_ty)
    if I % BM == 0 and J % BN == 0:
        tl.store(c_at, result)
    else:
        tl.store(c_at, result, mask=(i[:, None] < I) & (j[None, :] < J))
