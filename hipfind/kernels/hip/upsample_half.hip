// The gradient of bilinear 2D resizing to half the pixels of both axes: every output is the mean of 2 x 2 pixels, each
// of which gets a quarter of it. An item reads LINE neighbours: columns, written as lines of twice the length to
// two rows, or channels (OUT_LINE is LINE), which it writes to four pixels. With a LINE of 1 both are the same.
#include "upsample.h"

struct HalfParams {
    int64 out_height, lines;  // rows of dy; lines in a row of dy, channels of all pixels included
    Steps dy, dx;
    int64 planes_per_image, packs;  // lines in a pixel
    int64 wide_dy, wide_dx;
};

HF_DEVICE void put_line(elem_t* HF_RESTRICT to, const Vector<OUT_LINE>& line, bool wide) {
    if (wide) {
        put_whole(to, line);
    } else {
        HF_KEEP_APART();
        for (int e = 0; e < OUT_LINE; ++e) to[e] = line.elements[e];
        HF_KEEP_APART();
    }
}

HF_KERNEL(upsample_half, const elem_t* HF_RESTRICT dy, elem_t* HF_RESTRICT dx, HalfParams p) {
    const bool wide_dy = p.wide_dy && is_aligned<LINE>(dy), wide_dx = p.wide_dx && is_aligned<OUT_LINE>(dx);
    HF_FOR_ITEMS(item) {
        const int64 row = quotient(item, p.lines), line = item - row * p.lines;
        const int64 plane = quotient(row, p.out_height), i = row - plane * p.out_height;
        const int64 pixel = quotient(line, p.packs), channel = (line - pixel * p.packs) * LINE;
        const int64 column = pixel * (OUT_LINE == LINE ? 1 : LINE);
        const elem_t* from =
            dy + plane_offset(p.dy, plane, p.planes_per_image) + i * p.dy.row + column * p.dy.pixel + channel;
        elem_t* to =
            dx + plane_offset(p.dx, plane, p.planes_per_image) + 2 * i * p.dx.row + 2 * column * p.dx.pixel + channel;
        Vector<LINE> values;
        if (wide_dy)
            values = *(const Vector<LINE>*)from;
        else
            for (int e = 0; e < LINE; ++e) values.elements[e] = from[e];
        Vector<OUT_LINE> shares;
        for (int e = 0; e < OUT_LINE; ++e)
            shares.elements[e] = store<elem_t>(element_of(values, e * LINE / OUT_LINE) * acc_t(0.25));
        put_line(to, shares, wide_dx);
        put_line(to + p.dx.row, shares, wide_dx);
        if (OUT_LINE == LINE) {
            put_line(to + p.dx.pixel, shares, wide_dx);
            put_line(to + p.dx.row + p.dx.pixel, shares, wide_dx);
        }
    }
}
