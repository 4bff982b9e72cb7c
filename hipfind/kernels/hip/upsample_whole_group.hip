// Few pixels with large windows: a group takes some neighbouring pixels of a row. Its members share the rows of the
// windows, sum lines of LINE neighbours over them, and then the lines' sums over columns. See upsample_whole.h for the
// windows; SH is even, and a border of a window is one of a line.
#define COLUMNS 1
#define ROWS 1
#define PACK 1
#define CORNERS 0
#define SW SH
#include "upsample_whole.h"

struct GroupParams {
    int64 height, width;  // of dx
    Steps dy, dx;
    int64 planes_per_image, inner;  // neighbouring channels in a pixel
    int64 columns, parts, parts_w;  // pixels of a group; members that share a line's rows, and a window's columns
    int64 wide_dy;
};

constexpr int WINDOW = 2 * SH, HALF = SH / 2, AT_ONCE = 8;

struct Tile {
    int64 dy, dx;  // where its columns of dy begin in row 0, and its pixels
    int row, left, right;  // pixels
    int first, lines;      // first column of dy; lines of a row
    int out_height, out_width;
};
HF_DEVICE Tile tile_of(const GroupParams& p, int64 group) {
    const int64 tiles = ceiling(p.width, p.columns), rest = quotient(group, tiles), plane = quotient(rest, p.height);
    Tile tile;
    tile.row = int(rest - plane * p.height);
    tile.left = int((group - rest * tiles) * p.columns);
    tile.right = int(least(tile.left + p.columns, p.width));
    tile.out_height = int(p.height) * SH;
    tile.out_width = int(p.width) * SH;
    tile.first = larger(tile.left * SH - HALF, 0);
    tile.lines = (smaller(tile.right * SH + HALF, tile.out_width) - tile.first) * int(p.inner) / LINE;
    tile.dy = plane_offset(p.dy, plane, p.planes_per_image) + tile.first * p.inner;
    tile.dx = plane_offset(p.dx, plane, p.planes_per_image) + tile.row * p.dx.row + tile.left * p.dx.pixel;
    return tile;
}

// One line over every parts'th row of the windows, with several rows read before they are used.
HF_DEVICE const elem_t* row_of(const elem_t* line, const GroupParams& p, const Tile& tile, int index) {
    const int row = tile.row * SH - HALF + index;
    return line + smaller(larger(row, -1 - row), 2 * tile.out_height - 1 - row) * p.dy.row;
}
HF_DEVICE void add(acc_t (&sums)[LINE], const Vector<LINE>& line, int index) {
    const acc_t weight = weight_of(SH, index);
    HF_UNROLL for (int e = 0; e < LINE; ++e) sums[e] += weight * element_of(line, e);
}
HF_DEVICE void sum_rows(
    acc_t* HF_RESTRICT to, const elem_t* HF_RESTRICT line, const GroupParams& p, const Tile& tile, int part,
    bool wide) {
    const int parts = int(p.parts);
    acc_t sums[LINE];
    HF_UNROLL for (int e = 0; e < LINE; ++e) sums[e] = 0;
    if (wide) {
        HF_ROLLED for (int begin = part; begin < WINDOW; begin += parts * AT_ONCE) {
            Vector<LINE> lines[AT_ONCE];
            HF_UNROLL for (int r = 0; r < AT_ONCE; ++r)
                lines[r] = *(const Vector<LINE>*)row_of(line, p, tile, smaller(begin + r * parts, WINDOW - 1));
            HF_UNROLL for (int r = 0; r < AT_ONCE; ++r)
                if (begin + r * parts < WINDOW) add(sums, lines[r], begin + r * parts);
        }
    } else {
        HF_ROLLED for (int index = part; index < WINDOW; index += parts) {
            const elem_t* from = row_of(line, p, tile, index);
            Vector<LINE> single;
            HF_UNROLL for (int e = 0; e < LINE; ++e) single.elements[e] = from[e];
            add(sums, single, index);
        }
    }
    HF_UNROLL for (int e = 0; e < LINE; ++e) to[e] = sums[e];
}

// One channel of a pixel, over every parts_w'th column of its window.
HF_DEVICE acc_t sum_columns(
    const acc_t* HF_RESTRICT sums, const GroupParams& p, const Tile& tile, int output, int part) {
    const int inner = int(p.inner), parts = int(p.parts), parts_w = int(p.parts_w);
    const int pixel = tile.left + output / inner, channel = output % inner, pitch = tile.lines * LINE;
    acc_t sum = 0;
    for (int tap = part; tap < WINDOW; tap += parts_w) {
        const int column = pixel * SH - HALF + tap;
        if (column < 0 || column >= tile.out_width) continue;
        // At a border a weight has that of its mirror image added to it.
        const bool is_border = column < HALF || column >= tile.out_width - HALF;
        const acc_t weight = is_border ? acc_t(1) : weight_of(SW, tap);
        const acc_t* from = sums + (column - tile.first) * inner + channel;
        acc_t total = 0;
        for (int q = 0; q < parts; ++q) total += from[q * pitch];
        sum += weight * total;
    }
    return sum;
}

HF_KERNEL(upsample_whole_group, const elem_t* HF_RESTRICT dy, elem_t* HF_RESTRICT dx, GroupParams p) {
    HF_SHARED acc_t sums[HF_BLOCK * LINE];
    HF_SHARED acc_t scratch[HF_BLOCK];
    const bool wide = p.wide_dy && is_aligned<LINE>(dy);
    HF_FOR_GROUPS(group) {
        const Tile tile = tile_of(p, group);
        const int inner = int(p.inner), parts_w = int(p.parts_w), outputs = (tile.right - tile.left) * inner;
        HF_FOR_MEMBERS(t, HF_BLOCK) {
            const int part = t / tile.lines, line = t - part * tile.lines;
            if (part < p.parts) sum_rows(sums + t * LINE, dy + tile.dy + line * LINE, p, tile, part, wide);
        }
        HF_BARRIER();
        HF_FOR_MEMBERS(t, outputs * parts_w) scratch[t] = sum_columns(sums, p, tile, t / parts_w, t % parts_w);
        HF_BARRIER();
        HF_FOR_MEMBERS(t, outputs) {
            acc_t sum = 0;
            for (int part = 0; part < parts_w; ++part) sum += scratch[t * parts_w + part];
            dx[tile.dx + t / inner * p.dx.pixel + t % inner] = store<elem_t>(sum);
        }
        HF_BARRIER();  // before the next group's sums
    }
}
