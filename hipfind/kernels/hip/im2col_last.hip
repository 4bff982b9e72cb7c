// Columns of channel-last images, so that a convolution becomes a matrix product with w as it lies:
//   columns[(n, od, oh, ow), (g, z, y, x, c)] = images[n, od*sd - pd + z*dd, oh*sh - ph + y*dh, ow*sw - pw + x*dw, (g, c)]
// and 0 where that lies in the padding. `pitch` is the distance of the columns' rows. 2D is 3D with a depth of 1.
//
// It only moves bits: ELEM is the unsigned type of an element's size. One item is `segment` consecutive elements of one
// row: a whole row on the host, where runs of channels (of all taps of a line that lie side by side) become copies, UNIT
// elements (16 bytes) on a GPU, where neighbouring threads write neighbouring vectors.
#include "vector.h"

struct Im2ColLastParams {
    int64 depth, height, width;
    int64 filter_depth, filter_height, filter_width;
    int64 out_depth, out_height, out_width;
    int64 stride_d, stride_h, stride_w;
    int64 pad_d, pad_h, pad_w;
    int64 dilation_d, dilation_h, dilation_w;
    int64 groups, channels;  // channels of a group
    int64 pitch;
    int64 segment, segments;
};

HF_DEVICE int64 clamp(int64 value, int64 low, int64 high) {
    return value < low ? low : value > high ? high : value;
}

HF_KERNEL(im2col_last, const elem_t* HF_RESTRICT images, elem_t* HF_RESTRICT columns, Im2ColLastParams p) {
    const bool is_dense = p.groups == 1 && p.dilation_w == 1;  // the taps of a line are one run
    const int64 taps = is_dense ? 1 : p.filter_width, run = is_dense ? p.filter_width * p.channels : p.channels;
    const int64 pixel = p.groups * p.channels, line = p.width * pixel;
    HF_FOR_ITEMS(item) {
        const int64 row = quotient(item, p.segments);
        int64 place = (item - row * p.segments) * p.segment;
        const int64 end = clamp(place + p.segment, 0, p.groups * p.filter_depth * p.filter_height * taps * run);

        const int64 above = quotient(row, p.out_width), ow = row - above * p.out_width;
        const int64 next = quotient(above, p.out_height), oh = above - next * p.out_height;
        const int64 image = quotient(next, p.out_depth), od = next - image * p.out_depth;

        int64 rest = quotient(place, run);
        int64 offset = place - rest * run;
        int64 outer = quotient(rest, taps);
        int64 x = rest - outer * taps;
        rest = quotient(outer, p.filter_height);
        int64 y = outer - rest * p.filter_height;
        int64 group = quotient(rest, p.filter_depth);
        int64 z = rest - group * p.filter_depth;

        elem_t* out = columns + row * p.pitch;
        while (place < end) {
            const int64 stop = clamp(offset + end - place, offset, run);
            const int64 id = od * p.stride_d - p.pad_d + z * p.dilation_d;
            const int64 ih = oh * p.stride_h - p.pad_h + y * p.dilation_h;
            const int64 iw = ow * p.stride_w - p.pad_w + x * p.dilation_w;
            const bool has_line = id >= 0 && id < p.depth && ih >= 0 && ih < p.height;
            const int64 start = iw * pixel + group * p.channels;  // of the run in its line, which may reach beyond both ends
            const int64 first = has_line ? clamp(iw < 0 ? -iw * pixel : 0, offset, stop) : stop;
            const int64 last = has_line ? clamp((p.width - iw) * pixel, first, stop) : stop;
            elem_t* to = out + place - offset;
            for (int64 i = offset; i < first; ++i) to[i] = 0;
            if (first < last) {
                const elem_t* from = images + ((image * p.depth + id) * p.height + ih) * line + start;
                if (UNIT > 1 && last - first == UNIT && is_aligned<UNIT>(from + first) && is_aligned<UNIT>(to + first)) {
                    put_whole(to + first, *(const Vector<UNIT>*)(from + first));
                } else {
                    for (int64 i = first; i < last; ++i) to[i] = from[i];
                }
            }
            for (int64 i = last; i < stop; ++i) to[i] = 0;
            place += stop - offset;
            offset = 0;
            if (++x == taps) {
                x = 0;
                if (++y == p.filter_height) {
                    y = 0;
                    if (++z == p.filter_depth) {
                        z = 0;
                        ++group;
                    }
                }
            }
        }
    }
}
