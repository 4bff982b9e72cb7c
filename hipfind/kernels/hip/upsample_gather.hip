// The gradient of bilinear 2D resizing as a gather, for any strides: an item goes down the rows of dy that some pixels of
// a column of dx look at, sums each row's window once, and adds it to the two pixels that it belongs to. So every weight
// is used in registers, and nothing is added twice. Weights come from upsample_tables.
//
// An item takes PACK neighbouring channels where channels are neighbours. TAPS > 0: no window has more columns than that;
// their weights stay in registers.
#include "upsample.h"

struct GatherParams {
    int64 height, width, out_height;  // of dx, of dy
    Steps dy, dx;
    int64 planes_per_image, packs;  // packs of neighbouring channels in a pixel
    int64 segment, segments;        // pixels of a column that an item takes
    int64 wide_dy, wide_dx;         // whether packs are aligned where the tensors are
};

template <bool WIDE>
HF_DEVICE void add(acc_t (&sums)[PACK], const elem_t* HF_RESTRICT pack, acc_t weight) {
    if (WIDE) {
        const Vector<PACK> whole = *(const Vector<PACK>*)pack;
        for (int e = 0; e < PACK; ++e) sums[e] += weight * element_of(whole, e);
    } else {
        for (int e = 0; e < PACK; ++e) sums[e] += weight * load(pack[e]);
    }
}

// A window's columns.
struct Window {
    int first, count;
    const acc_t* weights;  // of output 0
#if TAPS > 0
    acc_t taps[TAPS];
#endif
};
template <bool WIDE>
HF_DEVICE void sum_row(acc_t (&sums)[PACK], const elem_t* HF_RESTRICT row, int64 pixel, const Window& window) {
    for (int e = 0; e < PACK; ++e) sums[e] = 0;
#if TAPS > 0
    for (int tap = 0; tap < TAPS; ++tap)
        if (tap < window.count) add<WIDE>(sums, row + tap * pixel, window.taps[tap]);
#else
    for (int tap = 0; tap < window.count; ++tap)
        add<WIDE>(sums, row + tap * pixel, window.weights[window.first + tap]);
#endif
}

// Pixels [top, bottom) of a column; dy and dx are where their row 0 begins.
template <bool WIDE>
HF_DEVICE void put_column(
    const elem_t* HF_RESTRICT dy, elem_t* HF_RESTRICT dx, const GatherParams& p, const Window& window,
    const acc_t* HF_RESTRICT weights, const int* HF_RESTRICT bounds, int top, int bottom, bool wide_dx) {
    acc_t sums[PACK], next[PACK];
    for (int e = 0; e < PACK; ++e) next[e] = 0;
    int o = bounds[2 * top], middle = bounds[2 * top + 1];
    const elem_t* row = dy + o * p.dy.row;
    for (; o < middle; ++o, row += p.dy.row) {
        sum_row<WIDE>(sums, row, p.dy.pixel, window);
        for (int e = 0; e < PACK; ++e) next[e] += weights[middle + o] * sums[e];
    }
    for (int i = top; i < bottom; ++i) {
        const int begin = bounds[2 * i + 2], end = bounds[2 * i + 3];
        acc_t total[PACK];
        for (int e = 0; e < PACK; ++e) {
            total[e] = next[e];
            next[e] = 0;
        }
        for (; o < end; ++o, row += p.dy.row) {
            sum_row<WIDE>(sums, row, p.dy.pixel, window);
            const acc_t weight = weights[middle + o];
            for (int e = 0; e < PACK; ++e) total[e] += weight * sums[e];
            if (o >= begin && i + 1 < bottom)
                for (int e = 0; e < PACK; ++e) next[e] += weights[end + o] * sums[e];
        }
        middle = end;
        put_pack(dx + i * p.dx.row, total, wide_dx);
    }
}

HF_KERNEL(upsample_gather, const elem_t* HF_RESTRICT dy, elem_t* HF_RESTRICT dx, const acc_t* HF_RESTRICT weights,
          const int* HF_RESTRICT bounds, GatherParams p) {
    const bool wide_dy = p.wide_dy && is_aligned<PACK>(dy), wide_dx = p.wide_dx && is_aligned<PACK>(dx);
    const acc_t* column_weights = weights + 2 * p.out_height;
    const int* column_bounds = bounds + 2 * (p.height + 1);
    HF_FOR_ITEMS(item) {
        int64 rest = quotient(item, p.packs);
        const int64 channel = (item - rest * p.packs) * PACK;
        int64 next = quotient(rest, p.width);
        const int64 j = rest - next * p.width;
        const int64 plane = quotient(next, p.segments), top = (next - plane * p.segments) * p.segment;

        const int first = column_bounds[2 * j], middle = column_bounds[2 * j + 1];
        Window window;
        window.first = first;
        window.count = column_bounds[2 * j + 3] - first;
        window.weights = column_weights + middle;
#if TAPS > 0
        for (int tap = 0; tap < TAPS; ++tap)
            if (tap < window.count) window.taps[tap] = window.weights[first + tap];
#endif
        const elem_t* from_dy = dy + plane_offset(p.dy, plane, p.planes_per_image) + first * p.dy.pixel + channel;
        elem_t* to_dx = dx + plane_offset(p.dx, plane, p.planes_per_image) + j * p.dx.pixel + channel;
        const int bottom = int(least(top + p.segment, p.height));
        if (wide_dy)
            put_column<true>(from_dy, to_dx, p, window, weights, bounds, int(top), bottom, wide_dx);
        else
            put_column<false>(from_dy, to_dx, p, window, weights, bounds, int(top), bottom, wide_dx);
    }
}
