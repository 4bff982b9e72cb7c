// The gradient's columns for one phase of a backward-data convolution: for every pixel of the phase the outputs that
// its taps meet, so that the phase becomes a matrix product. Pixel q and tap t meet output first + q - t * step on each
// axis; where there is no such output, the column holds 0. 2D is 3D with a depth of 1.
//   v4r1_columns_first: columns[(channel, td, th, tw), (image, qd, qh, qw)], y channel-first
//   v4r1_columns_last:  columns[(image, qd, qh, qw), (group, td, th, tw, channel)], y channel-last
// `pitch` is the distance of the columns' rows.
//
// They only move bits: ELEM is the unsigned type of an element's size. One item is `segment` consecutive elements: of the
// pixels of an image for one channel and tap, or of the row of one pixel; all of them on the host, one on a GPU.
#include "portable.h"

struct ColumnsParams {
    int64 depth, height, width;
    int64 pixels_d, pixels_h, pixels_w;
    int64 taps_d, taps_h, taps_w;
    int64 first_d, first_h, first_w;
    int64 step_d, step_h, step_w;
    int64 images, groups, channels;
    int64 pitch;
    int64 segment, segments;
};

HF_DEVICE int64 clamp(int64 value, int64 low, int64 high) {
    return value < low ? low : value > high ? high : value;
}

HF_DEVICE bool is_inside(int64 index, int64 extent) { return index >= 0 && index < extent; }

HF_KERNEL(v4r1_columns_first, const elem_t* HF_RESTRICT y, elem_t* HF_RESTRICT columns, ColumnsParams p) {
    HF_FOR_ITEMS(item) {
        const int64 piece = quotient(item, p.segments);
        int64 position = (item - piece * p.segments) * p.segment;
        const int64 plane = p.pixels_h * p.pixels_w, size = p.pixels_d * plane;
        const int64 end = clamp(position + p.segment, 0, size);

        const int64 row = quotient(piece, p.images), image = piece - row * p.images;
        const int64 above = quotient(row, p.taps_w), tw = row - above * p.taps_w;
        const int64 next = quotient(above, p.taps_h), th = above - next * p.taps_h;
        const int64 channel = quotient(next, p.taps_d), td = next - channel * p.taps_d;

        int64 qd = quotient(position, plane);
        int64 qh = quotient(position - qd * plane, p.pixels_w);
        int64 qw = position - qd * plane - qh * p.pixels_w;

        // Pixels qw in [first, last) meet an output of the line; the same for every line.
        const int64 shift = p.first_w - tw * p.step_w;
        const int64 first = clamp(-shift, 0, p.pixels_w), last = clamp(p.width - shift, first, p.pixels_w);

        const elem_t* source = y + (image * p.groups * p.channels + channel) * p.depth * p.height * p.width + shift;
        elem_t* out = columns + row * p.pitch + image * size;
        while (position < end) {
            const int64 stop = clamp(qw + end - position, qw, p.pixels_w);
            const int64 od = p.first_d + qd - td * p.step_d, oh = p.first_h + qh - th * p.step_h;
            const bool has_line = is_inside(od, p.depth) && is_inside(oh, p.height);
            const int64 begin_copy = has_line ? clamp(first, qw, stop) : stop;
            const int64 end_copy = has_line ? clamp(last, begin_copy, stop) : stop;
            elem_t* line = out + position - qw;
            for (int64 i = qw; i < begin_copy; ++i) line[i] = 0;
            if (begin_copy < end_copy) {
                const elem_t* from = source + (od * p.height + oh) * p.width;
                for (int64 i = begin_copy; i < end_copy; ++i) line[i] = from[i];
            }
            for (int64 i = end_copy; i < stop; ++i) line[i] = 0;
            position += stop - qw;
            qw = 0;
            if (++qh == p.pixels_h) {
                qh = 0;
                ++qd;
            }
        }
    }
}

HF_KERNEL(v4r1_columns_last, const elem_t* HF_RESTRICT y, elem_t* HF_RESTRICT columns, ColumnsParams p) {
    HF_FOR_ITEMS(item) {
        const int64 pixel = quotient(item, p.segments);
        int64 place = (item - pixel * p.segments) * p.segment;
        const int64 end = clamp(place + p.segment, 0, p.groups * p.taps_d * p.taps_h * p.taps_w * p.channels);

        const int64 above = quotient(pixel, p.pixels_w), qw = pixel - above * p.pixels_w;
        const int64 next = quotient(above, p.pixels_h), qh = above - next * p.pixels_h;
        const int64 image = quotient(next, p.pixels_d), qd = next - image * p.pixels_d;

        int64 run = quotient(place, p.channels);
        int64 channel = place - run * p.channels;
        int64 rest = quotient(run, p.taps_w);
        int64 tw = run - rest * p.taps_w;
        run = quotient(rest, p.taps_h);
        int64 th = rest - run * p.taps_h;
        int64 group = quotient(run, p.taps_d);
        int64 td = run - group * p.taps_d;

        elem_t* out = columns + pixel * p.pitch;
        while (place < end) {
            const int64 stop = clamp(channel + end - place, channel, p.channels);
            const int64 od = p.first_d + qd - td * p.step_d;
            const int64 oh = p.first_h + qh - th * p.step_h;
            const int64 ow = p.first_w + qw - tw * p.step_w;
            elem_t* to = out + place - channel;
            if (is_inside(od, p.depth) && is_inside(oh, p.height) && is_inside(ow, p.width)) {
                const int64 output = ((image * p.depth + od) * p.height + oh) * p.width + ow;
                const elem_t* from = y + (output * p.groups + group) * p.channels;
                for (int64 i = channel; i < stop; ++i) to[i] = from[i];
            } else {
                for (int64 i = channel; i < stop; ++i) to[i] = 0;
            }
            place += stop - channel;
            channel = 0;
            if (++tw == p.taps_w) {
                tw = 0;
                if (++th == p.taps_h) {
                    th = 0;
                    if (++td == p.taps_d) {
                        td = 0;
                        ++group;
                    }
                }
            }
        }
    }
}
