// The gradient of bilinear 2D resizing in two passes: over rows of dy into a workspace of sums, then over its columns.
// Weights come from upsample_tables.
#include "upsample.h"

struct RowParams {
    int64 height, length;          // rows of dx, elements of a row of dy: neighbours
    Steps dy;
    int64 planes_per_image;
    int64 pitch, lines;            // of a row of sums: elements, lines of LINE
    int64 segment, segments;       // rows of dx that an item takes
    int64 wide;                    // whether lines are aligned where dy is
};

// WHOLE: all of the line is there, and aligned on a GPU; else `count` elements of it are.
template <bool WHOLE>
HF_DEVICE void load_line(acc_t (&values)[LINE], const elem_t* HF_RESTRICT line, int count) {
#if defined(HF_HOST)
    for (int e = 0; e < LINE; ++e) values[e] = WHOLE || e < count ? load(line[e]) : acc_t(0);
#else
    if (WHOLE) {
        const Vector<LINE> whole = *(const Vector<LINE>*)line;
        for (int e = 0; e < LINE; ++e) values[e] = element_of(whole, e);
    } else {
        for (int e = 0; e < LINE; ++e) values[e] = e < count ? load(line[e]) : acc_t(0);
    }
#endif
}

// One line of the sums of rows [top, bottom) of dx: it goes down dy and adds each row to the two that it belongs to.
template <bool WHOLE>
HF_DEVICE void sum_rows(
    acc_t* HF_RESTRICT to, const elem_t* HF_RESTRICT line, const RowParams& p, int count,
    const acc_t* HF_RESTRICT weights, const int* HF_RESTRICT bounds, int top, int bottom) {
    acc_t next[LINE], values[LINE];
    for (int e = 0; e < LINE; ++e) next[e] = 0;
    int o = bounds[2 * top], middle = bounds[2 * top + 1];
    line += o * p.dy.row;
    for (; o < middle; ++o, line += p.dy.row) {
        load_line<WHOLE>(values, line, count);
        for (int e = 0; e < LINE; ++e) next[e] += weights[middle + o] * values[e];
    }
    for (int i = top; i < bottom; ++i) {
        const int begin = bounds[2 * i + 2], end = bounds[2 * i + 3];
        acc_t total[LINE];
        for (int e = 0; e < LINE; ++e) {
            total[e] = next[e];
            next[e] = 0;
        }
        for (; o < end; ++o, line += p.dy.row) {
            load_line<WHOLE>(values, line, count);
            for (int e = 0; e < LINE; ++e) total[e] += weights[middle + o] * values[e];
            if (o >= begin && i + 1 < bottom)
                for (int e = 0; e < LINE; ++e) next[e] += weights[end + o] * values[e];
        }
        middle = end;
        for (int e = 0; e < LINE; ++e) to[i * p.pitch + e] = total[e];
    }
}

HF_KERNEL(upsample_rows, const elem_t* HF_RESTRICT dy, acc_t* HF_RESTRICT sums, const acc_t* HF_RESTRICT weights,
          const int* HF_RESTRICT bounds, RowParams p) {
    const bool wide = p.wide && is_aligned<LINE>(dy);
    HF_FOR_ITEMS(item) {
        const int64 rest = quotient(item, p.lines), first = (item - rest * p.lines) * LINE;
        const int64 plane = quotient(rest, p.segments), top = (rest - plane * p.segments) * p.segment;
        const elem_t* line = dy + plane_offset(p.dy, plane, p.planes_per_image) + first;
        acc_t* to = sums + plane * p.height * p.pitch + first;
        const int count = int(least(p.length - first, LINE)), bottom = int(least(top + p.segment, p.height));
        if (wide && count == LINE)
            sum_rows<true>(to, line, p, count, weights, bounds, int(top), bottom);
        else
            sum_rows<false>(to, line, p, count, weights, bounds, int(top), bottom);
    }
}

struct ColumnParams {
    int64 height, width, out_height;  // of dx, of dy
    Steps dx;
    int64 planes_per_image, inner, packs;  // elements and packs of a pixel
    int64 pitch;
    int64 wide;  // whether packs are aligned where dx is
};

// One item is PACK neighbouring channels of a pixel.
HF_KERNEL(upsample_columns, const acc_t* HF_RESTRICT sums, elem_t* HF_RESTRICT dx, const acc_t* HF_RESTRICT weights,
          const int* HF_RESTRICT bounds, ColumnParams p) {
    const bool wide = p.wide && is_aligned<PACK>(dx);
    weights += 2 * p.out_height;
    bounds += 2 * (p.height + 1);
    HF_FOR_ITEMS(item) {
        int64 rest = quotient(item, p.packs);
        const int64 c = (item - rest * p.packs) * PACK;
        const int64 row = quotient(rest, p.width), j = rest - row * p.width;
        const int64 plane = quotient(row, p.height), i = row - plane * p.height;
        const acc_t *from_row = sums + row * p.pitch + c, *weight = weights + bounds[2 * j + 1];
        acc_t total[PACK];
        for (int e = 0; e < PACK; ++e) total[e] = 0;
        for (int o = bounds[2 * j]; o < bounds[2 * j + 3]; ++o)
            for (int e = 0; e < PACK; ++e) total[e] += weight[o] * from_row[o * p.inner + e];
        put_pack(dx + plane_offset(p.dx, plane, p.planes_per_image) + i * p.dx.row + j * p.dx.pixel + c, total, wide);
    }
}
