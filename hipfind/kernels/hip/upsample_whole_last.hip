// Neighbouring channels: an item takes PACK of them, and the windows of COLUMNS pixels. PIXEL > 0: a pixel has so many
// elements, and pixels of dy are neighbours; single elements then cost no instruction for their address. See
// upsample_whole.h.
#include "upsample_whole.h"

constexpr int OWN = COLUMNS * SW, HALO = SW / 2, SEEN = OWN + 2 * HALO;

// Where columns of dy lie, as distances from the item's first one: its own, and those on both sides of them. Beyond a
// border it is the item's own columns again, backwards.
struct Reader {
    const elem_t* first;
    int64 pixel, before, before_step, behind, behind_step;
#if CORNERS
    acc_t taps[COLUMNS][4];
#endif
};
#if CORNERS
HF_DEVICE acc_t weight_at(const Reader& reader, int c, int tap) { return reader.taps[c][tap]; }
#else
HF_DEVICE acc_t weight_at(const Reader&, int, int tap) { return weight_of(SW, tap); }
#endif
HF_DEVICE Reader reader_of(const Part& part, int64 pixel, int width) {
    Reader reader;
    reader.first = part.dy;
    reader.pixel = pixel;
    reader.before = (part.is_first ? HALO - 1 : -HALO) * pixel;
    reader.before_step = part.is_first ? -pixel : pixel;
    reader.behind = (part.is_last ? OWN - 1 : OWN) * pixel;
    reader.behind_step = part.is_last ? -pixel : pixel;
#if CORNERS
    const acc_t unit = unit_of(width);
    HF_UNROLL for (int c = 0; c < COLUMNS; ++c)
        HF_UNROLL for (int tap = 0; tap < 4; ++tap)
            reader.taps[c][tap] = corner_weight(tap, part.column + c, width, unit);
#endif
    return reader;
}
HF_DEVICE int64 place_of(const Reader& reader, int column) {
    if (column < HALO) return reader.before + column * reader.before_step;
    if (column < HALO + OWN) return (column - HALO) * reader.pixel;
    return reader.behind + (column - HALO - OWN) * reader.behind_step;
}

// Adds a column's pack to the pixels that it belongs to.
HF_DEVICE void add_pack(acc_t (&sums)[SUMS], const Reader& reader, const Vector<PACK>& pack, int column) {
    HF_UNROLL for (int c = 0; c < COLUMNS; ++c) {
        const int tap = column - c * SW;
        if (tap >= 0 && tap < window_of(SW))
            HF_UNROLL for (int e = 0; e < PACK; ++e)
                sums[c * PACK + e] += weight_at(reader, c, tap) * element_of(pack, e);
    }
}

// The sums of a row of dy over columns, with so many columns read before they are used.
constexpr int AT_ONCE = SEEN < 8 ? SEEN : 8;
HF_DEVICE void sum_row(acc_t (&sums)[SUMS], const Reader& reader, const elem_t* HF_RESTRICT row, Wide<true>) {
    HF_UNROLL for (int begin = 0; begin < SEEN; begin += AT_ONCE) {
        Vector<PACK> packs[AT_ONCE];
        HF_UNROLL for (int o = 0; o < AT_ONCE; ++o)
            if (begin + o < SEEN) packs[o] = *(const Vector<PACK>*)(row + place_of(reader, begin + o));
        HF_UNROLL for (int o = 0; o < AT_ONCE; ++o)
            if (begin + o < SEEN) add_pack(sums, reader, packs[o], begin + o);
    }
}
// Of few columns all are written out, as weights that are not constants must lie in registers.
#if CORNERS
#define HF_ONE_BY_ONE HF_UNROLL
#else
#define HF_ONE_BY_ONE HF_ROLLED
#endif
HF_DEVICE void sum_row(acc_t (&sums)[SUMS], const Reader& reader, const elem_t* HF_RESTRICT row, Wide<false>) {
    HF_ONE_BY_ONE for (int column = 0; column < SEEN; ++column) {
        const elem_t* from = row + place_of(reader, column);
        Vector<PACK> pack;
        HF_UNROLL for (int e = 0; e < PACK; ++e) pack.elements[e] = from[e];
        add_pack(sums, reader, pack, column);
    }
}
template <typename W>
HF_DEVICE void sum_rows(acc_t (&sums)[ROWS][SUMS], const Reader& reader, const int64 (&rows)[ROWS], W wide) {
    HF_UNROLL for (int r = 0; r < ROWS; ++r) sum_row(sums[r], reader, behind(reader.first, rows[r]), wide);
}

HF_DEVICE void put_row(const Reader&, elem_t* HF_RESTRICT to, const acc_t (&total)[SUMS], int64 pixel, bool wide) {
    HF_UNROLL for (int c = 0; c < COLUMNS; ++c) {
        acc_t pack[PACK];
        HF_UNROLL for (int e = 0; e < PACK; ++e) pack[e] = total[c * PACK + e];
        put_pack(to + c * pixel, pack, wide);
    }
}

HF_KERNEL(upsample_whole_last, const elem_t* HF_RESTRICT dy, elem_t* HF_RESTRICT dx, WholeParams p) {
    const bool wide_dy = PACK == 1 || (p.wide_dy && is_aligned<PACK>(dy));
    const bool wide_dx = p.wide_dx && is_aligned<PACK>(dx);
    HF_FOR_ITEMS(item) {
        const Part part = part_of(p, dy, dx, item);
        const Reader reader = reader_of(part, PIXEL > 0 ? PIXEL : p.dy.pixel, int(p.width));
        if (wide_dy)
            go(part, reader, p, Wide<true>(), wide_dx);
        else
            go(part, reader, p, Wide<false>(), wide_dx);
    }
}
