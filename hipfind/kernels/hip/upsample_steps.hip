// Small steps that several solvers of bilinear 2D resizing need: tables of weights before, totals of partial sums after.
#include "upsample.h"

// Tables of both axes for the kernels that take them from memory. Pixel k looks at the outputs [begin[k], middle[k + 1])
// and weighs output o by weights[middle[k] + o]; these places do not overlap, since begin[k + 1] >= middle[k].
//   bounds: begin and middle of pixels 0..in, in turn, of the height, then of the width
//   weights: 2 * out of the height, then of the width
// One item is one output or one bound.
struct TableParams {
    Axis h, w;
};

HF_DEVICE void fill(acc_t* HF_RESTRICT weights, int* HF_RESTRICT bounds, const Axis& axis, int64 item) {
    if (item > axis.in) {
        const int64 output = item - axis.in - 1;
        const Source at = source(axis, output);
        weights[from(axis, at.pixel) + output] = 1 - at.fraction;
        if (at.fraction > 0) weights[from(axis, at.pixel + 1) + output] = at.fraction;
    } else {
        bounds[2 * item] = int(beyond(axis, item - 1));
        bounds[2 * item + 1] = int(from(axis, item));
    }
}

HF_KERNEL(upsample_tables, acc_t* HF_RESTRICT weights, int* HF_RESTRICT bounds, TableParams p) {
    HF_FOR_ITEMS(item) {
        const int64 height = p.h.in + 1 + p.h.out;
        if (item < height)
            fill(weights, bounds, p.h, item);
        else
            fill(weights + 2 * p.h.out, bounds + 2 * (p.h.in + 1), p.w, item - height);
    }
}

struct SumParams {
    int64 chunks, elements, planes_per_image, height, width, inner;
    Steps dx;
};

// dx from partial sums [chunk, plane, height, width, inner]. One item is one element.
HF_KERNEL(sum_partials, const acc_t* HF_RESTRICT partials, elem_t* HF_RESTRICT dx, SumParams p) {
    HF_FOR_ITEMS(item) {
        acc_t sum = 0;
        for (int64 chunk = 0; chunk < p.chunks; ++chunk) sum += partials[chunk * p.elements + item];
        int64 rest = quotient(item, p.inner);
        const int64 c = item - rest * p.inner;
        const int64 row = quotient(rest, p.width), column = rest - row * p.width;
        const int64 plane = quotient(row, p.height);
        dx[plane_offset(p.dx, plane, p.planes_per_image) + (row - plane * p.height) * p.dx.row + column * p.dx.pixel +
           c] = store<elem_t>(sum);
    }
}
