// The transpose of im2col, as a gather: every image element sums the columns that im2col copied it to, in a fixed
// order, without atomics; each element is written once, so nothing has to be cleared. Columns and sums are fp32 (fp64
// for fp64), so that a 16-bit gradient is rounded once.
//   image[n, c, id, ih, iw] = sum of columns[n, (c, z, y, x), (od, oh, ow)]
// over all taps (z, y, x) and outputs with id = od*sd - pd + z*dd, ih = oh*sh - ph + y*dh, iw = ow*sw - pw + x*dw.
//
// One item is a block of an image plane, `block_lines` high and `block_columns` wide, of at most BLOCK elements: on the
// host some lines, so that the columns are read in long runs; one element on a GPU.
#include "portable.h"

struct Col2ImParams {
    int64 depth, height, width;
    int64 filter_depth, filter_height, filter_width;
    int64 out_depth, out_height, out_width;
    int64 stride_d, stride_h, stride_w;
    int64 pad_d, pad_h, pad_w;
    int64 dilation_d, dilation_h, dilation_w;
    int64 block_lines, block_columns;
};

// A block of one element keeps its sum in a register: the place is then known when compiling.
HF_DEVICE int64 place(int64 i) { return BLOCK == 1 ? 0 : i; }

HF_DEVICE int64 smaller(int64 a, int64 b) { return a < b ? a : b; }

// Outputs o in [first, last] on one axis that a tap takes to image indices i = o*stride + shift in [begin, end).
struct Range {
    int64 first, last, shift;
};
HF_DEVICE Range outputs(int64 begin, int64 end, int64 shift, int64 stride, int64 extent) {
    const int64 low = begin - shift, high = end - 1 - shift;
    Range range = {low > 0 ? quotient(low + stride - 1, stride) : 0, -1, shift};
    if (high >= 0) range.last = smaller(quotient(high, stride), extent - 1);
    return range;
}

HF_KERNEL(col2im, const acc_t* HF_RESTRICT columns, elem_t* HF_RESTRICT image, Col2ImParams p) {
    const int64 across = quotient(p.width + p.block_columns - 1, p.block_columns);
    const int64 down = quotient(p.height + p.block_lines - 1, p.block_lines);
    HF_FOR_ITEMS(item) {
        const int64 upper = quotient(item, across), left = (item - upper * across) * p.block_columns;
        const int64 plane = quotient(upper, down), top = (upper - plane * down) * p.block_lines;
        const int64 channel = quotient(plane, p.depth), id = plane - channel * p.depth;  // of all images together
        const int64 right = smaller(left + p.block_columns, p.width), bottom = smaller(top + p.block_lines, p.height);
        const int64 width = right - left;

        acc_t sums[BLOCK];
        for (int64 i = 0; i < (bottom - top) * width; ++i) sums[place(i)] = 0;
        for (int64 z = 0; z < p.filter_depth; ++z) {
            const Range d = outputs(id, id + 1, z * p.dilation_d - p.pad_d, p.stride_d, p.out_depth);
            if (d.first > d.last) continue;
            for (int64 y = 0; y < p.filter_height; ++y) {
                const Range h = outputs(top, bottom, y * p.dilation_h - p.pad_h, p.stride_h, p.out_height);
                if (h.first > h.last) continue;
                for (int64 x = 0; x < p.filter_width; ++x) {
                    const Range w = outputs(left, right, x * p.dilation_w - p.pad_w, p.stride_w, p.out_width);
                    const int64 row = ((channel * p.filter_depth + z) * p.filter_height + y) * p.filter_width + x;
                    const acc_t* source = columns + (row * p.out_depth + d.first) * p.out_height * p.out_width;
                    for (int64 oh = h.first; oh <= h.last; ++oh) {
                        const acc_t* line = source + oh * p.out_width;
                        const int64 start = (oh * p.stride_h + h.shift - top) * width + w.shift - left;
                        if (p.stride_w == 1) {
                            for (int64 ow = w.first; ow <= w.last; ++ow) sums[place(start + ow)] += line[ow];
                        } else {
                            for (int64 ow = w.first; ow <= w.last; ++ow)
                                sums[place(start + ow * p.stride_w)] += line[ow];
                        }
                    }
                }
            }
        }
        for (int64 ih = top; ih < bottom; ++ih) {
            elem_t* out = image + (plane * p.height + ih) * p.width + left;
            const int64 start = (ih - top) * width;
            for (int64 i = 0; i < width; ++i) out[i] = store<elem_t>(sums[place(start + i)]);
        }
    }
}
