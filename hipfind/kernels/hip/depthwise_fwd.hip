// Depthwise convolution, forward and (BACKWARD) its data gradient: each channel has one filter of its own.
//
// A member keeps its channel's filter and a tile of sums in registers and goes down a strip of tiles. For each tile it
// reads the rows of the source that the tile meets, one ahead of the other, and converts each once; a row is multiplied
// by all taps that join it to a row of the tile. Backward, results a stride apart have the same taps, so the gradient
// is gathered: no atomics, nothing is cleared.
//
// Columns in the padding are zeros in a tile, so a weight that is not finite takes the plain path, which multiplies
// only what is there; so do tensors that are less aligned than the packs.
#include "depthwise.h"

constexpr int SLOTS = MEMBERS / LANES;  // strips that a group works on at once; LANES members take one's channels

struct DepthwiseParams {
    int64 channels, source_h, source_w, out_h, out_w;
    int64 columns, strips, depth;  // tiles of a row; strips of an image or plane; tiles of a strip
    int64 chunks, tiles;           // chunks of LANES x CHANNELS channels; strips x columns of all images or planes
};

struct Filter {
    alignas(64) acc_t taps[TAPS_H][TAPS_W][CHANNELS];
};
struct Sums {
    alignas(64) acc_t at[TILE_H][TILE_W * CHANNELS];
};

// Adds a row of the source, as one row of taps meets it, to a row of sums.
HF_DEVICE void add_row(acc_t (&sums)[TILE_W * CHANNELS], const acc_t (&taps)[TAPS_W][CHANNELS], const Line& line) {
    constexpr int COUNT = Across::per_phase * CHANNELS / VECTOR, CHANNEL_VECTORS = CHANNEL_LAST ? CHANNELS / VECTOR : 1;
    HF_UNROLL
    for (int phase = 0; phase < Across::phases; ++phase) {
        vec_t* to = (vec_t*)sums + phase * COUNT;
        HF_UNROLL
        for (int s = 0; s < TAPS_W; ++s) {
            if (!Across::meets(phase, s)) continue;
            const vec_t* from = (const vec_t*)(line.at + Across::slot(Across::source(phase, s)) * CHANNELS);
            HF_UNROLL
            for (int m = 0; m < COUNT; ++m)
#if CHANNEL_LAST
                to[m] += ((const vec_t*)taps[s])[m % CHANNEL_VECTORS] * from[m];
#else
                to[m] += taps[s][0] * from[m];
#endif
        }
    }
}

// Adds source row `position` to all rows of sums that meet it.
HF_DEVICE void multiply(Sums& sums, const Filter& filter, const Line& line, int position) {
    HF_UNROLL
    for (int i = 0; i < TILE_H; ++i) {
        const int r = Down::tap(i, position);
        if (r >= 0) add_row(sums.at[i], filter.taps[r], line);
    }
}

template <bool INSIDE>
HF_DEVICE void put_row(elem_t* HF_RESTRICT row, const acc_t* sums, int column, int width) {
#if defined(HF_HOST) && !CHANNEL_LAST
    const int count = int(least(TILE_W, width - column));
    for (int phase = 0; phase < Across::phases; ++phase)
        for (int k = 0; k * Across::phases + phase < count; ++k)
            row[k * Across::phases + phase] = store<elem_t>(sums[phase * Across::per_phase + k]);
#else
    constexpr int STEP = CHANNEL_LAST ? 1 : PACK_OUT, COUNT = CHANNEL_LAST ? CHANNELS : PACK_OUT;
    HF_UNROLL
    for (int j = 0; j < TILE_W; j += STEP)
        if (INSIDE || column + j < width) {
            acc_t pack[COUNT];
            HF_UNROLL
            for (int e = 0; e < COUNT; ++e)
                pack[e] = sums[CHANNEL_LAST ? Across::result_slot(j) * CHANNELS + e : Across::result_slot(j + e)];
            put_pack(row + j * int64(PIXEL), pack, true);
        }
#endif
}

// Where a member's strip begins. `source` is the base column of row 0, `out` the first column of row 0.
struct Strip {
    const elem_t* source;
    elem_t* out;
    int top, bottom, column;
};

HF_DEVICE bool is_finite(const Filter& filter) {
    acc_t sum = 0;
    HF_UNROLL
    for (int k = 0; k < TAPS; ++k)
        HF_UNROLL
        for (int c = 0; c < CHANNELS; ++c) sum += 0 * filter.taps[k / TAPS_W][k % TAPS_W][c];
    return sum == 0;
}

// One result after the other. `source` and `w` begin the plane, or the image at a channel, and that channel's filter.
HF_DEVICE void go_plainly(const DepthwiseParams& p, const elem_t* HF_RESTRICT source, const elem_t* HF_RESTRICT w,
                          elem_t* HF_RESTRICT out, const Strip& s) {
    const int64 end = least(s.column + TILE_W, p.out_w);
    for (int64 y = s.top; y < s.bottom; ++y)
        for (int64 x = s.column; x < end; ++x) {
            acc_t sum = 0;
            for (int k = 0; k < TAPS; ++k) {
                int64 row, column;
                if (joins<Down>(y, k / TAPS_W, p.source_h, row) && joins<Across>(x, k % TAPS_W, p.source_w, column))
                    sum += load(w[k]) * load(source[(row * p.source_w + column) * PIXEL]);
            }
            out[(y * p.out_w + x) * PIXEL] = store<elem_t>(sum);
        }
}

template <bool INSIDE>
HF_DEVICE void go_down(const DepthwiseParams& p, const Filter& filter, const Strip& s) {
    const int source_h = int(p.source_h), source_w = int(p.source_w), out_h = int(p.out_h), out_w = int(p.out_w);
    const int64 pitch = p.source_w * PIXEL, out_pitch = p.out_w * PIXEL;
    const int base_column = int(Across::base(s.column));
#if !defined(HF_HOST)
    const uint32 columns = bits_inside<PACKS>(base_column + FIRST, WIDTH, source_w);
#endif
    for (int top = s.top; top < s.bottom; top += TILE_H) {
        const int base = int(Down::base(top)) + Down::low;
        const elem_t* HF_RESTRICT row = s.source + settled(base * pitch);
        Sums sums = {};
#if defined(HF_HOST)
        for (int j = 0; j < Down::count; ++j, row += pitch)
            if (base + j >= 0 && base + j < source_h) {
                Line line;
                fill(line, row, base_column, source_w);
                multiply(sums, filter, line, Down::low + j);
            }
#else
        const uint32 rows = bits_inside<Down::count>(base, 1, source_h);
        RawRow raw;
        read_row<INSIDE>(raw, row, rows & 1 ? columns : 0);
        HF_UNROLL
        for (int j = 0; j < Down::count; ++j) {
            Line line;
            convert(line, raw);
            row += pitch;
            if (j + 1 < Down::count) read_row<INSIDE>(raw, row, rows >> (j + 1) & 1 ? columns : 0);
            multiply(sums, filter, line, Down::low + j);
            HF_UNROLL
            for (int i = 0; i < TILE_H; ++i) settle(sums.at[i]);
        }
#endif
        elem_t* HF_RESTRICT to = s.out + settled(top * out_pitch);
        HF_UNROLL
        for (int i = 0; i < TILE_H; ++i, to += out_pitch)
            if (top + i < out_h) put_row<INSIDE>(to, sums.at[i], s.column, out_w);
    }
}

HF_KERNEL(depthwise_fwd, const elem_t* HF_RESTRICT source, const elem_t* HF_RESTRICT w, elem_t* HF_RESTRICT out,
          DepthwiseParams p) {
#if CHANNEL_LAST
    HF_SHARED acc_t weights[LANES * CHANNELS * TAPS];
#endif
    const bool is_wide = is_aligned<UNIT>(source) && is_aligned<CHANNEL_LAST ? CHANNELS : PACK_OUT>(out);
    HF_FOR_GROUPS(group) {
        const int64 set = quotient(group, p.chunks), first = (group - set * p.chunks) * (LANES * CHANNELS);
#if CHANNEL_LAST
        HF_FOR_MEMBERS(t, LANES * CHANNELS * TAPS)
            if (first * TAPS + t < p.channels * TAPS) weights[t] = load(w[first * TAPS + t]);
        HF_BARRIER();
#endif
        HF_FOR_MEMBERS(t, LANES * SLOTS) {
            const int lane = t % LANES;
            const int64 tile = set * SLOTS + t / LANES, above = quotient(tile, p.columns);
            const int64 image = quotient(above, p.strips);  // or plane
            const int64 channel =
                CHANNEL_LAST ? first + lane * CHANNELS : image - quotient(image, p.channels) * p.channels;
            if (tile < p.tiles && channel < p.channels) {
                Filter filter;
                HF_UNROLL
                for (int k = 0; k < TAPS; ++k)
                    HF_UNROLL
                    for (int c = 0; c < CHANNELS; ++c)
#if CHANNEL_LAST
                        filter.taps[k / TAPS_W][k % TAPS_W][c] = weights[(lane * CHANNELS + c) * TAPS + k];
#else
                        filter.taps[k / TAPS_W][k % TAPS_W][c] = load(w[channel * TAPS + k]);
#endif
                Strip s;
                s.column = int(tile - above * p.columns) * TILE_W;
                s.top = int(above - image * p.strips) * int(p.depth) * TILE_H;
                s.bottom = int(least(s.top + p.depth * TILE_H, p.out_h));
                const elem_t* from = source + image * p.source_h * p.source_w * PIXEL + (CHANNEL_LAST ? channel : 0);
                elem_t* to = out + image * p.out_h * p.out_w * PIXEL + (CHANNEL_LAST ? channel : 0);
                s.source = from + Across::base(s.column) * PIXEL;
                s.out = to + s.column * int64(PIXEL);
                const int64 base = Across::base(s.column);
                const bool is_inside = CHANNEL_LAST && base + Across::low >= 0 && base + Across::high < p.source_w &&
                                       s.column + TILE_W <= p.out_w;
                if (is_wide && is_finite(filter) && is_inside)
                    go_down<true>(p, filter, s);
                else if (is_wide && is_finite(filter))
                    go_down<false>(p, filter, s);
                else
                    for (int c = 0; c < CHANNELS; ++c) go_plainly(p, from + c, w + (channel + c) * TAPS, to + c, s);
            }
        }
#if CHANNEL_LAST
        HF_BARRIER();  // before the next group's weights
#endif
    }
}
