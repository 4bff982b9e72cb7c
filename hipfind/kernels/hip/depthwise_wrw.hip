// Depthwise convolution's weight gradient: dw[c, tap] = sum over images and results of dy * x.
//
// A member keeps the sums of all taps of its channel in registers. It takes tiles of dy into registers, and for each
// reads the rows of x that the tile meets, one ahead of the other; a row is multiplied by all rows of the tile that
// some tap joins it to. A group adds its members' sums up in shared memory and writes them to the workspace, as one of
// `parts` a channel; a second kernel adds up the parts. Always in one order, without atomics.
//
// Tiles at the end of a row or plane are moved back so that they are full; what another tile has already is taken as
// zero there. So an element of x only meets zeros in sums that it reaches through that other tile. Columns in the
// padding are zeros too; where a sum is not finite, a member sums once more, plainly, only what is there. Tensors that
// are less aligned than the packs are summed plainly, too.
#define BACKWARD 0
#include "depthwise.h"

constexpr int ROOM = (47 << 10) / sizeof(acc_t) - 1024;  // values in shared memory, beside the shares

struct WeightParams {
    int64 channels, x_h, x_w, y_h, y_w;
    int64 columns, rows;  // tiles of a plane
    int64 chunks, tiles;  // chunks of LANES x CHANNELS channels; tiles of all images
    int64 parts;          // that the tiles of a channel are summed in
};

constexpr int VALUES = LANES * CHANNELS * TAPS;  // of a group
// Tiles that a group works on at once: what its members and its shared memory allow.
constexpr int SLOTS = MEMBERS / LANES < ROOM / VALUES ? MEMBERS / LANES : ROOM / VALUES;
// Members that share a value's slots.
constexpr int SHARES = VALUES >= MEMBERS ? 1 : SLOTS < MEMBERS / VALUES ? SLOTS : MEMBERS / VALUES;

// Sums that are kept apart: of channels, or of a vector's columns.
constexpr int APART = CHANNEL_LAST ? CHANNELS : VECTOR;

struct Sums {
    alignas(64) acc_t taps[TAPS_H][TAPS_W][APART];
};
struct Results {
    alignas(64) acc_t at[TILE_H][TILE_W * CHANNELS];
};

// Adds the products of x's row `position` to the sums.
HF_DEVICE void multiply(Sums& sums, const Results& dy, const Line& line, int position) {
    HF_UNROLL
    for (int i = 0; i < TILE_H; ++i) {
        const int r = Down::tap(i, position);
        if (r < 0) continue;
        HF_UNROLL
        for (int s = 0; s < TAPS_W; ++s) {
            vec_t* to = (vec_t*)sums.taps[r][s];
            const vec_t* from = (const vec_t*)(line.at + Across::slot(Across::source(0, s)) * CHANNELS);
            HF_UNROLL
            for (int m = 0; m < TILE_W * CHANNELS / VECTOR; ++m)
                to[m % (APART / VECTOR)] += ((const vec_t*)dy.at[i])[m] * from[m];
        }
    }
}

// The first `known` results are another tile's.
HF_DEVICE void read_results(acc_t* to, const elem_t* HF_RESTRICT row, int known) {
#if defined(HF_HOST)
    for (int m = 0; m < known * CHANNELS; ++m) to[m] = 0;
    for (int m = known; m < TILE_W; ++m)
        for (int c = 0; c < CHANNELS; ++c) to[m * CHANNELS + c] = load(row[m * int64(PIXEL) + c]);
#else
    constexpr int STEP = CHANNEL_LAST ? 1 : PACK_OUT, COUNT = CHANNEL_LAST ? CHANNELS : PACK_OUT;
    HF_UNROLL
    for (int m = 0; m < TILE_W; m += STEP) {
        Vector<COUNT> pack = {};
        if (m >= known) pack = *(const Vector<COUNT>*)(row + m * PIXEL);
        HF_UNROLL
        for (int e = 0; e < COUNT; ++e) to[m * CHANNELS + e] = element_of(pack, e);
    }
#endif
}

// A tile's first row and column, and how many of its rows and columns another tile has already.
struct Place {
    int top, left, known_rows, known_columns;
};
HF_DEVICE Place place_of(const WeightParams& p, int row, int column) {
    const int last_top = int(p.y_h) - TILE_H, last_left = int(p.y_w) - TILE_W;
    const int top = row * TILE_H < last_top ? row * TILE_H : last_top;
    const int left = column * TILE_W < last_left ? column * TILE_W : last_left;
    return {top, left, row * TILE_H - top, column * TILE_W - left};
}

// One tile: `x` and `dy` begin the plane, or the image at the member's channels.
template <bool INSIDE>
HF_DEVICE void add_tile(const WeightParams& p, Sums& sums, const elem_t* HF_RESTRICT x, const elem_t* HF_RESTRICT dy,
                        const Place& at) {
    const int x_h = int(p.x_h), x_w = int(p.x_w);
    const int64 pitch = p.x_w * PIXEL, y_pitch = p.y_w * PIXEL;
    const int base = at.top * STRIDE_H + Down::low, base_column = at.left * STRIDE_W;
    const elem_t* HF_RESTRICT row = x + settled(base * pitch + base_column * int64(PIXEL));
    dy = dy + settled(at.top * y_pitch + at.left * int64(PIXEL));
    Results results;
    HF_UNROLL
    for (int i = 0; i < TILE_H; ++i)
        read_results(results.at[i], dy + i * y_pitch, i < at.known_rows ? TILE_W : at.known_columns);
#if defined(HF_HOST)
    for (int j = 0; j < Down::count; ++j, row += pitch)
        if (base + j >= 0 && base + j < x_h) {
            Line line;
            fill(line, row, base_column, x_w);
            multiply(sums, results, line, Down::low + j);
        }
#else
    const uint32 columns = bits_inside<PACKS>(base_column + FIRST, WIDTH, x_w);
    const uint32 rows = bits_inside<Down::count>(base, 1, x_h);
    RawRow raw;
    read_row<INSIDE>(raw, row, rows & 1 ? columns : 0);
    HF_UNROLL
    for (int j = 0; j < Down::count; ++j) {
        Line line;
        convert(line, raw);
        row += pitch;
        if (j + 1 < Down::count) read_row<INSIDE>(raw, row, rows >> (j + 1) & 1 ? columns : 0);
        multiply(sums, results, line, Down::low + j);
        HF_UNROLL
        for (int k = 0; k < TAPS; ++k) settle(sums.taps[k / TAPS_W][k % TAPS_W]);
    }
#endif
}

// A tile by its image, and its row and column of tiles.
struct Tile {
    int64 image;
    int row, column;
};
HF_DEVICE Tile tile_at(const WeightParams& p, int64 index) {
    const int64 above = quotient(index, p.columns), image = quotient(above, p.rows);
    return {image, int(above - image * p.rows), int(index - above * p.columns)};
}

// The tiles of one part that fall to a member: each SLOTS-th one. Steps are added up, since divisions take long.
HF_DEVICE void add_tiles(const WeightParams& p, Sums& sums, const elem_t* x, const elem_t* dy, int64 index, int64 end) {
    const int64 x_image = p.x_h * p.x_w * p.channels, y_image = p.y_h * p.y_w * p.channels;
    const Tile step = tile_at(p, SLOTS);
    Tile tile = tile_at(p, index);
    for (; index < end; index += SLOTS) {
        const Place at = place_of(p, tile.row, tile.column);
        const int first = at.left * STRIDE_W + Across::low, last = at.left * STRIDE_W + Across::high;
        if (CHANNEL_LAST && first >= 0 && last < int(p.x_w))
            add_tile<true>(p, sums, x + tile.image * x_image, dy + tile.image * y_image, at);
        else
            add_tile<false>(p, sums, x + tile.image * x_image, dy + tile.image * y_image, at);
        tile.column += step.column;
        const bool is_next_row = tile.column >= int(p.columns);
        tile.column -= is_next_row ? int(p.columns) : 0;
        tile.row += step.row + is_next_row;
        const bool is_next_image = tile.row >= int(p.rows);
        tile.row -= is_next_image ? int(p.rows) : 0;
        tile.image += step.image + is_next_image;
    }
}

// The same for one tap of one channel, result by result.
HF_DEVICE acc_t add_plainly(const WeightParams& p, const elem_t* HF_RESTRICT x, const elem_t* HF_RESTRICT dy,
                            int64 index, int64 end, int tap) {
    acc_t sum = 0;
    for (; index < end; index += SLOTS) {
        const Tile tile = tile_at(p, index);
        const int64 image = tile.image, top = tile.row * int64(TILE_H), left = tile.column * int64(TILE_W);
        for (int64 i = top; i < least(top + TILE_H, p.y_h); ++i)
            for (int64 j = left; j < least(left + TILE_W, p.y_w); ++j) {
                int64 row, column;
                if (joins<Down>(i, tap / TAPS_W, p.x_h, row) && joins<Across>(j, tap % TAPS_W, p.x_w, column))
                    sum += load(dy[(image * p.channels * p.y_h * p.y_w) + (i * p.y_w + j) * PIXEL]) *
                           load(x[(image * p.channels * p.x_h * p.x_w) + (row * p.x_w + column) * PIXEL]);
            }
    }
    return sum;
}

HF_KERNEL(depthwise_wrw, const elem_t* HF_RESTRICT dy, const elem_t* HF_RESTRICT x, acc_t* HF_RESTRICT partials,
          WeightParams p) {
    HF_SHARED acc_t sums_of[SLOTS * VALUES];
    HF_SHARED acc_t shares[SHARES == 1 ? 1 : SHARES * VALUES];
    const bool is_wide = is_aligned<UNIT>(x) && is_aligned<CHANNEL_LAST ? CHANNELS : PACK_OUT>(dy);
    HF_FOR_GROUPS(group) {
        const int64 part = quotient(group, p.chunks), first = (group - part * p.chunks) * (LANES * CHANNELS);
        HF_FOR_MEMBERS(t, LANES * SLOTS) {
            const int lane = t % LANES, slot = t / LANES;
            const int64 channel = first + lane * CHANNELS;
            const int64 x_plane = CHANNEL_LAST ? 1 : p.x_h * p.x_w, y_plane = CHANNEL_LAST ? 1 : p.y_h * p.y_w;
            const int64 begin = quotient(p.tiles * part, p.parts) + slot, end = quotient(p.tiles * (part + 1), p.parts);
            acc_t* to = sums_of + slot * VALUES + lane * CHANNELS * TAPS;
            bool is_plain = !is_wide;
            Sums sums = {};
            if (is_wide && channel < p.channels)
                add_tiles(p, sums, x + channel * x_plane, dy + channel * y_plane, begin, end);
            HF_UNROLL
            for (int k = 0; k < TAPS; ++k)
                HF_UNROLL
                for (int c = 0; c < CHANNELS; ++c) {
                    acc_t sum = sums.taps[k / TAPS_W][k % TAPS_W][c];
                    for (int v = 1; v < APART / CHANNELS; ++v) sum += sums.taps[k / TAPS_W][k % TAPS_W][v];
                    to[c * TAPS + k] = sum;
                    is_plain |= !(0 * sum == 0);
                }
            if (is_plain && channel < p.channels)
                for (int v = 0; v < CHANNELS * TAPS; ++v) {
                    const int64 one = channel + v / TAPS;
                    to[v] = add_plainly(p, x + one * x_plane, dy + one * y_plane, begin, end, v % TAPS);
                }
        }
        HF_BARRIER();
        acc_t* const to = partials + (part * p.channels + first) * TAPS;
        const int64 there = least((p.channels - first) * TAPS, VALUES);
        HF_FOR_MEMBERS(t, SHARES * VALUES) {
            const int share = t / VALUES;
            acc_t sum = 0;
            for (int slot = SLOTS * share / SHARES; slot < SLOTS * (share + 1) / SHARES; ++slot)
                sum += sums_of[slot * VALUES + t - share * VALUES];
            if (SHARES > 1)
                shares[t] = sum;
            else if (t < there)
                to[t] = sum;
        }
        HF_BARRIER();
        if (SHARES > 1) {
            HF_FOR_MEMBERS(t, there) {
                acc_t sum = shares[t];
                for (int share = 1; share < SHARES; ++share) sum += shares[share * VALUES + t];
                to[t] = sum;
            }
            HF_BARRIER();
        }
    }
}
