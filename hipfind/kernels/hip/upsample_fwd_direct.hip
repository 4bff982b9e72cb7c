// Bilinear 2D resizing for any strides: an item makes one element of y from the four pixels around its source.
#include "upsample_fwd.h"

struct DirectParams {
    Axis h, w;
    Steps x, y;
    int64 planes_per_image, inner;  // neighbouring channels of a pixel
};

HF_KERNEL(upsample_fwd_direct, const elem_t* HF_RESTRICT x, elem_t* HF_RESTRICT y, DirectParams p) {
    HF_FOR_ITEMS(item) {
        int64 rest = quotient(item, p.inner);
        const int64 channel = item - rest * p.inner;
        int64 next = quotient(rest, p.w.out);
        const int64 column = rest - next * p.w.out, plane = quotient(next, p.h.out), row = next - plane * p.h.out;

        const Taps h = taps_of(source(p.h, row)), w = taps_of(source(p.w, column));
        const elem_t* from = x + plane_offset(p.x, plane, p.planes_per_image) + channel;
        const elem_t *upper = from + h.before * p.x.row, *lower = from + h.behind * p.x.row;
        const int64 before = w.before * p.x.pixel, behind = w.behind * p.x.pixel;
        const acc_t above = between(load(upper[before]), load(upper[behind]), w.fraction);
        const acc_t below = between(load(lower[before]), load(lower[behind]), w.fraction);
        elem_t* to = y + plane_offset(p.y, plane, p.planes_per_image) + row * p.y.row + column * p.y.pixel + channel;
        *to = store<elem_t>(between(above, below, h.fraction));
    }
}
