// Bilinear 2D resizing line by line: an item makes LINE neighbouring elements of a row of y, and those below them of a
// strip of rows. It resizes the rows of x across, keeps the two around its row of y, and goes on with the lower one.
//
// FORM says how a row of x is read and resized across:
//   ELEMENTS  one element after the other, wherever its two neighbours lie;
//   CHANNELS  a line is neighbouring channels of one pixel, so are its neighbours;
//   WHOLE     SCALE outputs for each pixel, a power of two: which columns an output reads is known to the compiler, and
//             so are the weights, but for CORNERS (align_corners, twice the size), where they depend on the column;
//   ROWS      for hosts: lines are as long as a row, or LINE; loops over neighbours are for vectors.
#define ELEMENTS 0
#define CHANNELS 1
#define WHOLE 2
#define ROWS 3
#include "upsample_fwd.h"

#if defined(HF_HOST)
#define HF_UNROLL
#define HF_VECTORS _Pragma("omp simd")
#else
#define HF_UNROLL _Pragma("unroll")
#define HF_VECTORS
#endif

struct LinesParams {
    Axis h, w;
    Steps x, y;
    int64 planes_per_image, inner;  // neighbouring channels of a pixel
    int64 planes, lines;            // of all; of a row of y
    int64 rows, strips;             // rows of y of a strip
    int64 wide_x, wide_y;           // whether what is read and written at once is aligned where the tensors are
};

// `Reader` is where a line's sources lie in a row of x, `Raw` what is read of a row, PIECE how many elements at once.
// Elements are counted from the row's begin; `first` is the line's first element in a row of y.
#if FORM == ELEMENTS
struct Reader {
    int before[LINE], behind[LINE];
    acc_t fraction[LINE];
};
struct Raw {
    elem_t before[LINE], behind[LINE];
};
constexpr int PIECE = 1;

HF_DEVICE void prepare(Reader& reader, const LinesParams& p, int64 first) {
    const acc_t share = 1 / acc_t(p.w.unit);
    const Walk step = step_of(p.w);
    const int64 column = quotient(first, p.inner);
    Walk walk = walk_to(p.w, column);
    int channel = int(first - column * p.inner);
    HF_UNROLL for (int e = 0; e < LINE; ++e) {
        const Taps taps = taps_of(source_at(walk, p.w, share));
        reader.before[e] = taps.before * int(p.x.pixel) + channel;
        reader.behind[e] = taps.behind * int(p.x.pixel) + channel;
        reader.fraction[e] = taps.fraction;
        if (++channel == p.inner) {
            channel = 0;
            advance(walk, step, p.w.unit);
        }
    }
}
// A place that a compiler makes an address of where it is used: made ahead of the loop over rows, there are too many.
HF_DEVICE int settled(int place) {
#if defined(HF_CUDA)
    asm volatile("" : "+r"(place));
#endif
    return place;
}
template <bool WIDE>
HF_DEVICE void read(Raw& raw, const Reader& reader, const elem_t* HF_RESTRICT row) {
    HF_UNROLL for (int e = 0; e < LINE; ++e) {
        raw.before[e] = row[settled(reader.before[e])];
        raw.behind[e] = row[settled(reader.behind[e])];
    }
}
HF_DEVICE void resize(acc_t (&sums)[LINE], const Reader& reader, const Raw& raw) {
    HF_UNROLL for (int e = 0; e < LINE; ++e)
        sums[e] = between(load(raw.before[e]), load(raw.behind[e]), reader.fraction[e]);
}
#endif

#if FORM == CHANNELS || FORM == WHOLE
template <bool WIDE, int COUNT>
HF_DEVICE void read_vector(Vector<COUNT>& vector, const elem_t* HF_RESTRICT from) {
    if (WIDE)
        vector = *(const Vector<COUNT>*)from;
    else
        HF_UNROLL for (int e = 0; e < COUNT; ++e) vector.elements[e] = from[e];
}
#endif

#if FORM == CHANNELS
struct Reader {
    int64 before, behind;
    acc_t fraction;
};
struct Raw {
    Vector<LINE> before, behind;
};
constexpr int PIECE = LINE;

HF_DEVICE void prepare(Reader& reader, const LinesParams& p, int64 first) {
    const int64 column = quotient(first, p.inner), channel = first - column * p.inner;
    const Taps taps = taps_of(source(p.w, column));
    reader.before = taps.before * p.x.pixel + channel;
    reader.behind = taps.behind * p.x.pixel + channel;
    reader.fraction = taps.fraction;
}
template <bool WIDE>
HF_DEVICE void read(Raw& raw, const Reader& reader, const elem_t* HF_RESTRICT row) {
    read_vector<WIDE>(raw.before, row + reader.before);
    read_vector<WIDE>(raw.behind, row + reader.behind);
}
HF_DEVICE void resize(acc_t (&sums)[LINE], const Reader& reader, const Raw& raw) {
    HF_UNROLL for (int e = 0; e < LINE; ++e)
        sums[e] = between(element_of(raw.before, e), element_of(raw.behind, e), reader.fraction);
}
#endif

#if FORM == WHOLE
// A line reads its OWN columns and one on each side of them; where it is half a pixel's outputs or fewer, two columns.
// Beyond a border is the border's own column, whose two weights add up to 1.
constexpr bool IS_PART = SCALE > LINE;
constexpr int OWN = IS_PART ? 1 : LINE / SCALE;
struct Reader {
    int left, own, right;
    acc_t fraction[CORNERS ? LINE : 1];  // of outputs, or of the first one where a line is part of a pixel's
};
struct Raw {
    Vector<OWN> own;
    elem_t left, right;
};
constexpr int PIECE = OWN;

HF_DEVICE void prepare(Reader& reader, const LinesParams& p, int64 first) {
    const int last = int(p.w.in) - 1, own = int(quotient(first, SCALE));
    reader.own = own;
    reader.left = own > 0 ? own - 1 : 0;
    reader.right = own + OWN <= last ? own + OWN : last;
    if (IS_PART) {
        const int output = int(first) - own * SCALE;
        const bool is_second = output >= SCALE / 2;  // half: between its pixel and the next one
        if (is_second) reader.left = own;
        else reader.right = own;
        reader.fraction[0] = acc_t(2 * output + 1 + (is_second ? -SCALE : SCALE)) / acc_t(2 * SCALE);
    }
#if CORNERS
    const acc_t share = 1 / acc_t(p.w.unit);
    const Walk step = step_of(p.w);
    Walk walk = walk_to(p.w, first);
    HF_UNROLL for (int e = 0; e < LINE; ++e) {
        reader.fraction[e] = taps_of(source_at(walk, p.w, share)).fraction;
        advance(walk, step, p.w.unit);
    }
#endif
}
template <bool WIDE>
HF_DEVICE void read(Raw& raw, const Reader& reader, const elem_t* HF_RESTRICT row) {
    raw.left = row[reader.left];
    if (!IS_PART) read_vector<WIDE>(raw.own, row + reader.own);
    raw.right = row[reader.right];
}
HF_DEVICE void resize(acc_t (&sums)[LINE], const Reader& reader, const Raw& raw) {
    acc_t columns[OWN + 2];
    columns[0] = load(raw.left);
    columns[OWN + 1] = load(raw.right);
    if (IS_PART) {
        HF_UNROLL for (int e = 0; e < LINE; ++e)
            sums[e] = between(columns[0], columns[OWN + 1], reader.fraction[0] + acc_t(e) * (acc_t(1) / SCALE));
    } else {
        HF_UNROLL for (int c = 0; c < OWN; ++c) columns[1 + c] = element_of(raw.own, c);
        HF_UNROLL for (int e = 0; e < LINE; ++e) {
            const int output = e % SCALE, before = e / SCALE + (output < SCALE / 2 ? 0 : 1);
            const acc_t constant =
                acc_t(2 * output + 1 + (output < SCALE / 2 ? SCALE : -SCALE)) * (acc_t(1) / acc_t(2 * SCALE));
            sums[e] = between(columns[before], columns[before + 1], CORNERS ? reader.fraction[CORNERS ? e : 0] : constant);
        }
    }
}
#endif

#if FORM == ROWS
struct Reader {
    int before[LINE], behind[LINE];  // by pixel
    acc_t fraction[LINE];
    int count, channel;  // elements of the line, and the first one's channel
};
constexpr int PIECE = 1;

HF_DEVICE void prepare(Reader& reader, const LinesParams& p, int64 first) {
    const acc_t share = 1 / acc_t(p.w.unit);
    const Walk step = step_of(p.w);
    const int64 column = quotient(first, p.inner);
    Walk walk = walk_to(p.w, column);
    reader.channel = int(first - column * p.inner);
    reader.count = int(least(LINE, p.w.out * p.inner - first));
    const int pixels = int(ceiling(reader.channel + reader.count, p.inner));
    for (int pixel = 0; pixel < pixels; ++pixel) {
        const Taps taps = taps_of(source_at(walk, p.w, share));
        reader.before[pixel] = taps.before * int(p.x.pixel);
        reader.behind[pixel] = taps.behind * int(p.x.pixel);
        reader.fraction[pixel] = taps.fraction;
        advance(walk, step, p.w.unit);
    }
}
HF_DEVICE void resize_columns(acc_t* HF_RESTRICT sums, const Reader& reader, const elem_t* HF_RESTRICT row) {
    const int count = reader.count, first = reader.before[0], span = reader.behind[count - 1] - first + 1;
    if (span > LINE) {
        for (int e = 0; e < count; ++e)
            sums[e] = between(load(row[reader.before[e]]), load(row[reader.behind[e]]), reader.fraction[e]);
        return;
    }
    acc_t columns[LINE];  // converted once: gathers are of what sums are kept in
    HF_VECTORS for (int c = 0; c < span; ++c) columns[c] = load(row[first + c]);
    HF_VECTORS for (int e = 0; e < count; ++e)
        sums[e] = between(columns[reader.before[e] - first], columns[reader.behind[e] - first], reader.fraction[e]);
}
HF_DEVICE void resize_pixels(acc_t* HF_RESTRICT sums, const Reader& reader, const elem_t* HF_RESTRICT row, int inner) {
    int channel = reader.channel, pixel = 0;
    for (int e = 0; e < reader.count; ++pixel, channel = 0) {
        const int run = int(least(inner - channel, reader.count - e));
        const elem_t *before = row + reader.before[pixel] + channel, *behind = row + reader.behind[pixel] + channel;
        const acc_t fraction = reader.fraction[pixel];
        HF_VECTORS for (int r = 0; r < run; ++r) sums[e + r] = between(load(before[r]), load(behind[r]), fraction);
        e += run;
    }
}
#endif

// The rows of x that a strip looks at, read one ahead where each of them is used.
struct Feed {
    const elem_t* first;
    int64 step;
    int last;
    bool is_ahead;
#if FORM != ROWS
    int ahead;  // row that `raw` holds, -1 for none
    Raw raw;
#endif
};
template <bool WIDE>
HF_DEVICE void fetch(acc_t (&sums)[LINE], Feed& feed, const Reader& reader, const LinesParams& p, int row) {
#if FORM == ROWS
    const elem_t* from = feed.first + row * feed.step;
    if (p.inner == 1 && p.x.pixel == 1)
        resize_columns(sums, reader, from);
    else
        resize_pixels(sums, reader, from, int(p.inner));
#else
    if (feed.ahead != row) read<WIDE>(feed.raw, reader, feed.first + row * feed.step);
    resize(sums, reader, feed.raw);
    feed.ahead = feed.is_ahead && row < feed.last ? row + 1 : -1;
    if (feed.ahead > 0) read<WIDE>(feed.raw, reader, feed.first + feed.ahead * feed.step);
#endif
}

// Where a line begins in a row of y.
HF_DEVICE int64 place_of(const LinesParams& p, int64 first) {
    if (FORM != CHANNELS) return first;
    const int64 column = quotient(first, p.inner);
    return column * p.y.pixel + first - column * p.inner;
}
HF_DEVICE void move(acc_t (&to)[LINE], const acc_t (&from)[LINE], const Reader& reader) {
#if FORM == ROWS
    HF_VECTORS for (int e = 0; e < reader.count; ++e) to[e] = from[e];
#else
    HF_UNROLL for (int e = 0; e < LINE; ++e) to[e] = from[e];
#endif
}
constexpr int PIECE_Y = FORM == ROWS ? 1 : LINE;
HF_DEVICE void put_line(elem_t* HF_RESTRICT to, const acc_t (&upper)[LINE], const acc_t (&lower)[LINE], acc_t fraction,
                        const Reader& reader, bool wide) {
#if FORM == ROWS
    HF_VECTORS for (int e = 0; e < reader.count; ++e) to[e] = store<elem_t>(between(upper[e], lower[e], fraction));
#else
    acc_t sums[LINE];
    HF_UNROLL for (int e = 0; e < LINE; ++e) sums[e] = between(upper[e], lower[e], fraction);
    put_pack(to, sums, wide);
#endif
}

// Rows [top, bottom) of a line; x and y are where their row 0 begins.
template <bool WIDE>
HF_DEVICE void put_strip(const elem_t* HF_RESTRICT x, elem_t* HF_RESTRICT y, const LinesParams& p, const Reader& reader,
                         int top, int bottom, bool wide_y) {
    Feed feed;
    feed.first = x;
    feed.step = p.x.row;
    feed.last = int(p.h.in) - 1;
    feed.is_ahead = FORM != ELEMENTS && p.h.step < p.h.unit;  // single elements ahead take too many registers
#if FORM != ROWS
    feed.ahead = -1;
#endif
    const acc_t share = 1 / acc_t(p.h.unit);
    const Walk step = step_of(p.h);
    Walk walk = walk_to(p.h, top);
    acc_t upper[LINE], lower[LINE];
    int lower_row = -1;  // none
    elem_t* to = y + top * p.y.row;
    for (int row = top; row < bottom; ++row, to += p.y.row, advance(walk, step, p.h.unit)) {
        const Taps taps = taps_of(source_at(walk, p.h, share));
        while (lower_row != taps.behind) {  // sources never go back: once a row of x, twice where rows are passed over
            if (lower_row >= 0) move(upper, lower, reader);
            lower_row = lower_row < taps.before ? taps.before : taps.behind;
            fetch<WIDE>(lower, feed, reader, p, lower_row);
        }
        if (taps.before == taps.behind) move(upper, lower, reader);
        put_line(to, upper, lower, taps.fraction, reader, wide_y);
    }
}

HF_KERNEL(upsample_fwd_lines, const elem_t* HF_RESTRICT x, elem_t* HF_RESTRICT y, LinesParams p) {
    const bool wide_x = p.wide_x && is_aligned<PIECE>(x), wide_y = p.wide_y && is_aligned<PIECE_Y>(y);
    Reader reader;
#if FORM == ROWS
    int64 prepared = -1;
#endif
    HF_FOR_ITEMS(item) {
#if FORM == ROWS  // the next plane's line in the same place takes the same reader
        const int64 part = quotient(item, p.strips), strip = item - part * p.strips;
        const int64 line = quotient(part, p.planes), plane = part - line * p.planes;
        if (line != prepared) prepare(reader, p, line * LINE);
        prepared = line;
#else
        const int64 part = quotient(item, p.lines), line = item - part * p.lines;
        const int64 plane = quotient(part, p.strips), strip = part - plane * p.strips;
        prepare(reader, p, line * LINE);
#endif
        const elem_t* from = x + plane_offset(p.x, plane, p.planes_per_image);
        elem_t* to = y + plane_offset(p.y, plane, p.planes_per_image) + place_of(p, line * LINE);
        const int top = int(strip * p.rows), bottom = int(least(top + p.rows, p.h.out));
        if (PIECE == 1 || wide_x)
            put_strip<true>(from, to, p, reader, top, bottom, wide_y);
        else
            put_strip<false>(from, to, p, reader, top, bottom, wide_y);
    }
}
