// Rows of neighbouring pixels: an item reads its COLUMNS * SW columns of dy in lines of LINE elements, and SW / 2 on
// each side of them in lines of SIDE. See upsample_whole.h.
#define PACK 1
#include "upsample_whole.h"

constexpr int OWN = COLUMNS * SW, HALO = SW / 2;

// Where the item's columns and those on both sides of them lie in row 0. Beyond a border it is the item's own columns
// again, whose weights come in reverse order then.
struct Reader {
    const elem_t *own, *before, *behind;
    acc_t weights_before[HALO], weights_behind[HALO];
#if CORNERS
    acc_t taps[COLUMNS][4];
#endif
};
#if CORNERS
HF_DEVICE acc_t weight_at(const Reader& reader, int c, int tap) { return reader.taps[c][tap]; }
#else
HF_DEVICE acc_t weight_at(const Reader&, int, int tap) { return weight_of(SW, tap); }
#endif
HF_DEVICE Reader reader_of(const Part& part, int width) {
    Reader reader;
    reader.own = part.dy;
    reader.before = part.dy - (part.is_first ? 0 : HALO);
    reader.behind = part.dy + (part.is_last ? OWN - HALO : OWN);
    HF_UNROLL for (int o = 0; o < HALO; ++o) {
        const acc_t rising = weight_of(SW, o), falling = weight_of(SW, HALO - 1 - o);
        reader.weights_before[o] = part.is_first ? falling : rising;
        reader.weights_behind[o] = part.is_last ? rising : falling;
    }
#if CORNERS
    const acc_t unit = unit_of(width);
    HF_UNROLL for (int c = 0; c < COLUMNS; ++c)
        HF_UNROLL for (int tap = 0; tap < 4; ++tap)
            reader.taps[c][tap] = corner_weight(tap, part.column + c, width, unit);
    reader.weights_before[0] = reader.taps[0][0];
    reader.weights_behind[0] = reader.taps[COLUMNS - 1][3];
#endif
    return reader;
}

struct Lines {
    Vector<SIDE> before[HALO / SIDE];
    Vector<LINE> own[OWN / LINE];
    Vector<SIDE> behind[HALO / SIDE];
};
template <bool WIDE, int COUNT>
HF_DEVICE void read_line(Vector<COUNT>& line, const elem_t* HF_RESTRICT from) {
    if (WIDE)
        line = *(const Vector<COUNT>*)from;
    else
        HF_UNROLL for (int e = 0; e < COUNT; ++e) line.elements[e] = from[e];
}
template <bool WIDE>
HF_DEVICE void read(Lines& lines, const Reader& reader, int64 row) {
    const elem_t* own = behind(reader.own, row);
    const elem_t *left = behind(reader.before, row), *right = behind(reader.behind, row);
    HF_UNROLL for (int l = 0; l < OWN / LINE; ++l) read_line<WIDE>(lines.own[l], own + l * LINE);
    HF_UNROLL for (int l = 0; l < HALO / SIDE; ++l) read_line<WIDE>(lines.before[l], left + l * SIDE);
    HF_UNROLL for (int l = 0; l < HALO / SIDE; ++l) read_line<WIDE>(lines.behind[l], right + l * SIDE);
}
HF_DEVICE void sum_columns(acc_t (&sums)[COLUMNS], const Reader& reader, const Lines& lines) {
    HF_UNROLL for (int o = 0; o < HALO; ++o) {
        sums[0] += reader.weights_before[o] * element_of(lines.before[o / SIDE], o % SIDE);
        sums[COLUMNS - 1] += reader.weights_behind[o] * element_of(lines.behind[o / SIDE], o % SIDE);
    }
    HF_UNROLL for (int o = 0; o < OWN; ++o) {
        const acc_t value = element_of(lines.own[o / LINE], o % LINE);
        HF_UNROLL for (int c = 0; c < COLUMNS; ++c) {
            const int tap = o + HALO - c * SW;
            if (tap >= 0 && tap < window_of(SW)) sums[c] += weight_at(reader, c, tap) * value;
        }
    }
}

template <typename W>
HF_DEVICE void sum_rows(acc_t (&sums)[ROWS][COLUMNS], const Reader& reader, const int64 (&rows)[ROWS], W) {
    Lines lines[ROWS];
    HF_UNROLL for (int r = 0; r < ROWS; ++r) read<W::value>(lines[r], reader, rows[r]);
    HF_UNROLL for (int r = 0; r < ROWS; ++r) sum_columns(sums[r], reader, lines[r]);
}

HF_DEVICE void put_row(const Reader&, elem_t* HF_RESTRICT to, const acc_t (&total)[COLUMNS], int64 pixel, bool wide) {
    if (pixel == 1)
        put_pack(to, total, wide);
    else
        HF_UNROLL for (int c = 0; c < COLUMNS; ++c) to[c * pixel] = store<elem_t>(total[c]);
}

HF_KERNEL(upsample_whole_first, const elem_t* HF_RESTRICT dy, elem_t* HF_RESTRICT dx, WholeParams p) {
    const bool wide_dy = p.wide_dy && is_aligned<LINE>(dy), wide_dx = p.wide_dx && is_aligned<COLUMNS>(dx);
    HF_FOR_ITEMS(item) {
        const Part part = part_of(p, dy, dx, item);
        const Reader reader = reader_of(part, int(p.width));
        if (wide_dy)
            go(part, reader, p, Wide<true>(), wide_dx);
        else
            go(part, reader, p, Wide<false>(), wide_dx);
    }
}
