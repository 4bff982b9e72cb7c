// The gradient of bilinear 2D resizing as a scatter: every element of dy is added to the four pixels that it reads, into
// sums that were cleared. Where an item is one element, it adds atomically: in no fixed order. On the host an item is a
// whole plane, which no other item touches.
#include "upsample.h"

struct ScatterParams {
    Axis h, w;
    Steps dy, sums;
    int64 planes_per_image, inner;
    int64 whole_planes;  // 1: an item is one element of a pixel in all of a plane
};

// ALONE: no other item adds to these sums.
template <bool ALONE>
HF_DEVICE void add(acc_t* to, acc_t value) {
    if (ALONE)
        *to += value;
    else
        add_atomically(to, value);
}
template <bool ALONE>
HF_DEVICE void scatter(acc_t* row, const Steps& steps, const Source& column, acc_t value) {
    acc_t* pixel = row + column.pixel * steps.pixel;
    add<ALONE>(pixel, (1 - column.fraction) * value);
    if (column.fraction > 0) add<ALONE>(pixel + steps.pixel, column.fraction * value);
}
template <bool ALONE>
HF_DEVICE void scatter(acc_t* plane, const Steps& steps, const Source& row, const Source& column, acc_t value) {
    acc_t* pixels = plane + row.pixel * steps.row;
    scatter<ALONE>(pixels, steps, column, (1 - row.fraction) * value);
    if (row.fraction > 0) scatter<ALONE>(pixels + steps.row, steps, column, row.fraction * value);
}

HF_KERNEL(upsample_scatter, const elem_t* HF_RESTRICT dy, acc_t* HF_RESTRICT sums, ScatterParams p) {
    const int64 height = p.whole_planes ? 1 : p.h.out, width = p.whole_planes ? 1 : p.w.out;
    HF_FOR_ITEMS(item) {
        const int64 pixel = quotient(item, p.inner), c = item - pixel * p.inner;
        const int64 line = quotient(pixel, width), ow = pixel - line * width;
        const int64 plane = quotient(line, height), oh = line - plane * height;
        const elem_t* from_dy = dy + plane_offset(p.dy, plane, p.planes_per_image) + c;
        acc_t* to = sums + plane_offset(p.sums, plane, p.planes_per_image) + c;
        if (p.whole_planes) {
            for (int64 y = 0; y < p.h.out; ++y)
                for (int64 x = 0; x < p.w.out; ++x)
                    scatter<true>(
                        to, p.sums, source(p.h, y), source(p.w, x), load(from_dy[y * p.dy.row + x * p.dy.pixel]));
        } else {
            scatter<false>(
                to, p.sums, source(p.h, oh), source(p.w, ow), load(from_dy[oh * p.dy.row + ow * p.dy.pixel]));
        }
    }
}
