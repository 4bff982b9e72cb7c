// The gradient of bilinear 2D resizing to a whole number S of outputs for each pixel of an axis, without align_corners.
// Then all pixels have the same window: 2 S outputs (one fewer where S is odd) from S / 2 before the pixel's own S on,
// with weights that rise and fall by 1 / S. Weights are compile-time constants, and no tables are needed.
//
// At the borders sources are limited to the first and last pixel. That is the same as dy going on beyond its border as
// its own mirror image: an output and its mirror image have weights that add up to 1.
//
// An item goes over the rows of dy that a strip of pixels looks at. It sums each row over columns (or channels of
// columns) for COLUMNS pixels, and adds that to the two pixel rows that the row belongs to. Every second strip goes up,
// so that neighbours read the rows that both look at at the same time.
#pragma once
#include "upsample.h"

#if defined(HF_HOST)
#define HF_UNROLL
#define HF_ROLLED
#else
#define HF_UNROLL _Pragma("unroll")
#define HF_ROLLED _Pragma("unroll 1")  // several rounds at once take too many registers
#endif

HF_DEVICE constexpr int window_of(int scale) { return 2 * scale - scale % 2; }
HF_DEVICE acc_t weight_of(int scale, int output) {
    const int mirrored = window_of(scale) - 1 - output, rank = output < mirrored ? output : mirrored;
    return acc_t(2 * rank + 1 + scale % 2) / acc_t(2 * scale);
}

// With align_corners and twice as many outputs as pixels (CORNERS), pixel k of n looks at the outputs 2 k - 1 to
// 2 k + 2 as well, with weights that depend on k. At a border the output that the mirror doubles has the weight 1 in
// all.
HF_DEVICE acc_t corner_weight(int tap, int pixel, int size, acc_t unit) {
    const int parts = tap == 0 ? size - pixel : tap == 1 ? 2 * size - 1 - pixel : tap == 2 ? size + pixel : pixel + 1;
    const bool is_doubled = tap < 2 ? pixel == 0 : pixel == size - 1;
    return is_doubled ? acc_t(0.5) : acc_t(parts) * unit;
}
HF_DEVICE acc_t unit_of(int size) { return acc_t(1) / acc_t(2 * size - 1); }

struct WholeParams {
    int64 height, width;  // of dx
    Steps dy, dx;
    int64 planes_per_image, packs;  // packs of neighbouring channels in a pixel
    int64 rows, strips;             // pixel rows of a strip
    int64 wide_dy, wide_dx;         // whether what is read and written at once is aligned where the tensors are
};

// What an item works on; `dy` and `dx` begin at its first column's row 0.
struct Part {
    const elem_t* dy;
    elem_t* dx;
    int top, bottom;  // pixel rows
    int column;       // first pixel of a row
    int out;          // rows of dy
    int first_row;    // of dy that it looks at; there may be none, see above
    bool is_upwards, is_first, is_last;  // the way; whether there are no pixels before, behind its columns
};
HF_DEVICE Part part_of(const WholeParams& p, const elem_t* dy, elem_t* dx, int64 item) {
    const int64 groups = quotient(p.width, COLUMNS);
    int64 rest = quotient(item, p.packs);
    const int64 channel = (item - rest * p.packs) * PACK;
    int64 next = quotient(rest, groups);
    const int64 group = rest - next * groups, plane = quotient(next, p.strips), strip = next - plane * p.strips;
    Part part;
    part.dy = dy + plane_offset(p.dy, plane, p.planes_per_image) + group * (COLUMNS * SW) * p.dy.pixel + channel;
    part.dx = dx + plane_offset(p.dx, plane, p.planes_per_image) + group * COLUMNS * p.dx.pixel + channel;
    part.top = int(strip * p.rows);
    part.bottom = int(least(part.top + p.rows, p.height));
    part.column = int(group * COLUMNS);
    part.out = int(p.height) * SH;
    part.is_upwards = strip % 2 != 0;
    part.first_row = part.is_upwards ? SH * part.bottom + SH / 2 - 1 : SH * part.top - SH / 2;
    part.is_first = group == 0;
    part.is_last = group == groups - 1;
    return part;
}

HF_DEVICE int larger(int a, int b) { return a > b ? a : b; }
HF_DEVICE int smaller(int a, int b) { return a < b ? a : b; }

// Distance in bytes of a row from the first one, for steps of less than 2^32 bytes. A compiler that has widened the
// step ahead of a loop does not see that one instruction is enough.
HF_DEVICE int64 distance(int row, uint32 step_bytes) {
#if defined(HF_CUDA)
    int64 product;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(row), "r"(step_bytes));
    return product;
#else
    return int64(row) * step_bytes;
#endif
}

// Where the row of dy begins that is the `index`th of a strip.
HF_DEVICE int64 row_of(const Part& part, int index, uint32 step_bytes) {
    const int row = part.first_row + (part.is_upwards ? -index : index);
    return distance(smaller(larger(row, -1 - row), 2 * part.out - 1 - row), step_bytes);
}
HF_DEVICE const elem_t* behind(const elem_t* first, int64 bytes) { return (const elem_t*)((const char*)first + bytes); }

constexpr int SUMS = COLUMNS * PACK;
HF_DEVICE void clear(acc_t (&sums)[SUMS]) {
    HF_UNROLL for (int e = 0; e < SUMS; ++e) sums[e] = 0;
}
HF_DEVICE void add(acc_t (&to)[SUMS], const acc_t (&sums)[SUMS], acc_t weight) {
    HF_UNROLL for (int e = 0; e < SUMS; ++e) to[e] += weight * sums[e];
}

template <bool WIDE>
struct Wide {
    static constexpr bool value = WIDE;
};

// Goes down or up a strip. The kernel's own are `Reader`, which says where columns lie, sum_rows(sums, reader, rows,
// wide), which sums ROWS rows of dy, so many bytes from the first, over columns, and put_row(reader, to, total,
// pixel step, wide).
template <typename Reader, typename W>
HF_DEVICE void go(const Part& part, const Reader& reader, const WholeParams& p, W wide_dy, bool wide_dx) {
    acc_t total[SUMS], next[SUMS];  // of the pixel rows behind and ahead of the rows that are read
    clear(total);
    clear(next);
    const int periods = part.bottom - part.top + 1, height = int(p.height);
    const int first = part.is_upwards ? height - part.bottom : part.top;  // pixel row, counted the way that it goes
    const acc_t unit = unit_of(height);
    const uint32 step = uint32(p.dy.row * sizeof(elem_t)), dx_step = uint32(p.dx.row * sizeof(elem_t));
    for (int period = 0; period < periods; ++period) {
        HF_ROLLED for (int row = 0; row < SH; row += ROWS) {
            int64 rows[ROWS];
            HF_UNROLL for (int r = 0; r < ROWS; ++r) rows[r] = row_of(part, period * SH + row + r, step);
            acc_t sums[ROWS][SUMS];
            HF_UNROLL for (int r = 0; r < ROWS; ++r) clear(sums[r]);
            sum_rows(sums, reader, rows, wide_dy);
            HF_UNROLL for (int r = 0; r < ROWS; ++r) {
#if CORNERS
                add(next, sums[r], corner_weight(row + r, first + period, height, unit));
                add(total, sums[r], corner_weight(2 + row + r, first + period - 1, height, unit));
#else
                const acc_t weight = acc_t(2 * (row + r) + 1 + SH % 2) * (acc_t(1) / acc_t(2 * SH));
                add(next, sums[r], weight);
                // What has no weight is not looked at: it may be NaN.
                if (SH % 2 == 0 || row + r < SH - 1) add(total, sums[r], 1 - weight);
#endif
            }
        }
        if (period > 0) {
            const int pixel_row = part.is_upwards ? part.bottom - period : part.top + period - 1;
            put_row(reader, (elem_t*)((char*)part.dx + distance(pixel_row, dx_step)), total, p.dx.pixel, wide_dx);
        }
        HF_UNROLL for (int e = 0; e < SUMS; ++e) total[e] = next[e];
        clear(next);
    }
}
