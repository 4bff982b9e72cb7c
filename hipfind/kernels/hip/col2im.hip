// The transpose of im2col, as a gather: every image element sums the columns that im2col copied it to, in fp32 (fp64
// for fp64) and in a fixed order, without atomics; each element is written once, so nothing has to be cleared.
//   image[n, c, id, ih, iw] = sum of columns[n, (c, z, y, x), (od, oh, ow)]
// over all taps (z, y, x) and outputs with id = od*sd - pd + z*dd, ih = oh*sh - ph + y*dh, iw = ow*sw - pw + x*dw.
//
// One item is `segment` consecutive elements of one line of the image: a whole line on the host, one element on a GPU.
#include "portable.h"

struct Col2ImParams {
    int64 depth, height, width;
    int64 filter_depth, filter_height, filter_width;
    int64 out_depth, out_height, out_width;
    int64 stride_d, stride_h, stride_w;
    int64 pad_d, pad_h, pad_w;
    int64 dilation_d, dilation_h, dilation_w;
    int64 segment, segments;
};

#if defined(HF_HOST)
constexpr int64 CHUNK = 128;  // sums held at a time
#else
constexpr int64 CHUNK = 1;
#endif

HF_DEVICE int64 smaller(int64 a, int64 b) { return a < b ? a : b; }

// Output index on one axis that tap `tap` takes to image index `i`, or -1 where there is none.
HF_DEVICE int64 output_index(int64 i, int64 tap, int64 dilation, int64 pad, int64 stride, int64 extent) {
    const int64 shifted = i + pad - tap * dilation;
    if (shifted < 0) return -1;
    const int64 out = quotient(shifted, stride);
    return out < extent && out * stride == shifted ? out : -1;
}

// Adds line[ow] to the sum of every iw = ow*stride + shift in [begin, begin + count).
HF_DEVICE void add_line(acc_t* sums, int64 begin, int64 count, const elem_t* line, int64 shift, int64 stride, int64 width) {
    const int64 low = begin - shift, high = begin + count - 1 - shift;
    if (high < 0) return;
    if (stride == 1) {
        const int64 first = low > 0 ? low : 0, last = smaller(high, width - 1);
        for (int64 ow = first; ow <= last; ++ow) sums[ow - low] += load(line[ow]);
    } else {
        const int64 first = low > 0 ? quotient(low + stride - 1, stride) : 0;
        const int64 last = smaller(quotient(high, stride), width - 1);
        for (int64 ow = first; ow <= last; ++ow) sums[ow * stride - low] += load(line[ow]);
    }
}

HF_KERNEL(col2im, const elem_t* HF_RESTRICT columns, elem_t* HF_RESTRICT image, Col2ImParams p) {
    HF_FOR_ITEMS(item) {
        const int64 line = quotient(item, p.segments);
        const int64 start = (item - line * p.segments) * p.segment;
        const int64 stop = smaller(start + p.segment, p.width);
        const int64 plane = quotient(line, p.height), ih = line - plane * p.height;
        const int64 channel = quotient(plane, p.depth), id = plane - channel * p.depth;  // of all images together

        for (int64 begin = start; begin < stop; begin += CHUNK) {
            const int64 count = smaller(CHUNK, stop - begin);
            acc_t sums[CHUNK];
            for (int64 i = 0; i < count; ++i) sums[i] = 0;
            for (int64 z = 0; z < p.filter_depth; ++z) {
                const int64 od = output_index(id, z, p.dilation_d, p.pad_d, p.stride_d, p.out_depth);
                if (od < 0) continue;
                for (int64 y = 0; y < p.filter_height; ++y) {
                    const int64 oh = output_index(ih, y, p.dilation_h, p.pad_h, p.stride_h, p.out_height);
                    if (oh < 0) continue;
                    int64 row = ((channel * p.filter_depth + z) * p.filter_height + y) * p.filter_width;
                    for (int64 x = 0; x < p.filter_width; ++x, ++row) {
                        const elem_t* source = columns + ((row * p.out_depth + od) * p.out_height + oh) * p.out_width;
                        add_line(sums, begin, count, source, x * p.dilation_w - p.pad_w, p.stride_w, p.out_width);
                    }
                }
            }
            elem_t* out = image + line * p.width + begin;
            for (int64 i = 0; i < count; ++i) out[i] = store<elem_t>(sums[i]);
        }
    }
}
