// Columns of one image, so that a convolution becomes a matrix product:
//   columns[(c, z, y, x), (od, oh, ow)] = image[c, od*sd - pd + z*dd, oh*sh - ph + y*dh, ow*sw - pw + x*dw]
// and 0 where that lies in the padding. Image and columns are channel-first; 2D is 3D with a depth of 1.
//
// It only moves bits: ELEM is the unsigned type of an element's size. One item is `segment` consecutive elements of one
// row of the columns: a whole row on the host, where the inner loop becomes a copy, one element on a GPU, where
// neighbouring threads write neighbouring elements.
#include "portable.h"

struct Im2ColParams {
    int64 depth, height, width;
    int64 filter_depth, filter_height, filter_width;
    int64 out_depth, out_height, out_width;
    int64 stride_d, stride_h, stride_w;
    int64 pad_d, pad_h, pad_w;
    int64 dilation_d, dilation_h, dilation_w;
    int64 segment, segments;
};

HF_DEVICE int64 clamp(int64 value, int64 low, int64 high) {
    return value < low ? low : value > high ? high : value;
}

HF_KERNEL(im2col, const elem_t* HF_RESTRICT image, elem_t* HF_RESTRICT columns, Im2ColParams p) {
    HF_FOR_ITEMS(item) {
        int64 row = quotient(item, p.segments);
        int64 position = (item - row * p.segments) * p.segment;
        const int64 out_plane = p.out_height * p.out_width, out_size = p.out_depth * out_plane;
        const int64 end = clamp(position + p.segment, 0, out_size);

        int64 rest = quotient(row, p.filter_width);
        const int64 x = row - rest * p.filter_width;
        int64 next = quotient(rest, p.filter_height);
        const int64 y = rest - next * p.filter_height;
        const int64 c = quotient(next, p.filter_depth), z = next - c * p.filter_depth;

        int64 od = quotient(position, out_plane);
        int64 oh = quotient(position - od * out_plane, p.out_width);
        int64 ow = position - od * out_plane - oh * p.out_width;

        // Columns ow in [first, last) read inside the image's width; the same for every line of this row.
        const int64 shift = x * p.dilation_w - p.pad_w;
        const int64 first = clamp(shift < 0 ? quotient(p.stride_w - 1 - shift, p.stride_w) : 0, 0, p.out_width);
        const int64 inside = p.width - shift;
        const int64 last = clamp(inside > 0 ? quotient(inside + p.stride_w - 1, p.stride_w) : 0, first, p.out_width);

        elem_t* out = columns + row * out_size;
        while (position < end) {
            const int64 stop = clamp(ow + end - position, ow, p.out_width);
            const int64 id = od * p.stride_d - p.pad_d + z * p.dilation_d;
            const int64 ih = oh * p.stride_h - p.pad_h + y * p.dilation_h;
            const bool is_inside = id >= 0 && id < p.depth && ih >= 0 && ih < p.height;
            const int64 begin_copy = is_inside ? clamp(first, ow, stop) : stop;
            const int64 end_copy = is_inside ? clamp(last, begin_copy, stop) : stop;

            elem_t* line = out + position - ow;
            for (int64 i = ow; i < begin_copy; ++i) line[i] = 0;
            if (begin_copy < end_copy) {
                const elem_t* source = image + ((c * p.depth + id) * p.height + ih) * p.width + shift;
                if (p.stride_w == 1) {
                    for (int64 i = begin_copy; i < end_copy; ++i) line[i] = source[i];
                } else {
                    for (int64 i = begin_copy; i < end_copy; ++i) line[i] = source[i * p.stride_w];
                }
            }
            for (int64 i = end_copy; i < stop; ++i) line[i] = 0;

            position += stop - ow;
            ow = 0;
            if (++oh == p.out_height) {
                oh = 0;
                ++od;
            }
        }
    }
}
