// Depthwise convolution's weight gradient: dw[c, tap] = sum over images and results of dy * x.
//
// A member keeps the sums of all taps of its channel in registers. It takes tiles of dy into registers, and for each reads
// the rows of x that the tile meets, one ahead of the other; a row is multiplied by all rows of the tile that some tap
// joins it to. A group adds its members' sums up in shared memory and writes them to the workspace, as one of `parts` a
// channel; a second kernel adds up the parts. Always in one order, without atomics.
//
// Tiles at the end of a row or plane are moved back so that they are full; what another tile has already is taken as zero
// there. So an element of x only meets zeros in sums that it reaches through that other tile. Columns in the padding are
// zeros too; where a sum is not finite, a member sums once more, plainly, only what is there. Tensors that are less
// aligned than the packs are summed plainly, too.
#define BACKWARD 0
#include "depthwise.h"

constexpr int ROOM = (47 << 10) / sizeof(acc_t) - 1024;  // values in shared memory, beside the shares

struct WeightParams {
    int64 channels, x_h, x_w, y_h, y_w;
    int64 columns, rows;     // tiles of a plane
    int64 chunks, tiles;     // chunks of LANES x CHANNELS channels; tiles of all images
    int64 parts;             // that the tiles of a channel are summed in
};

constexpr int VALUES = LANES * CHANNELS * TAPS;  // of a group
// Tiles that a group works on at once: what its members and its shared memory allow.
constexpr int SLOTS = MEMBERS / LANES < ROOM / VALUES ? MEMBERS / LANES : ROOM / VALUES;
// Members that share a value's slots.
constexpr int SHARES = VALUES >= MEMBERS ? 1 : SLOTS < MEMBERS / VALUES ? SLOTS : MEMBERS / VALUES;

// Sums that are kept apart, so that the host can compute them in vectors: of channels, or of neighbouring results.
#if CHANNEL_LAST
constexpr int APART = CHANNELS;
#elif defined(HF_HOST)
constexpr int APART = TILE_W % 8 == 0 ? 8 : 1;
#else
constexpr int APART = 1;
#endif

struct Sums {
    alignas(64) acc_t taps[TAPS_H][TAPS_W][APART];
};
struct Results {
    alignas(64) acc_t at[TILE_H][TILE_W * CHANNELS];
};

// Adds the products of x's row `position` to the sums.
HF_DEVICE void multiply(Sums& sums, const Results& dy, const Line& line, int position) {
    HF_UNROLL
    for (int i = 0; i < TILE_H; ++i)
        HF_UNROLL
        for (int r = 0; r < TAPS_H; ++r)
            if (Down::source(i, r) == position)
                HF_UNROLL
                for (int s = 0; s < TAPS_W; ++s) {
                    acc_t* HF_RESTRICT to = sums.taps[r][s];
                    const acc_t* HF_RESTRICT from = line.at + Across::slot(Across::source(0, s)) * CHANNELS;
                    HF_UNROLL
                    for (int m = 0; m < TILE_W * CHANNELS; m += APART)
                        HF_SIMD
                        for (int v = 0; v < APART; ++v) to[v] += dy.at[i][m + v] * from[m + v];
                }
}

// Results before `fresh_column` belong to another tile.
HF_DEVICE void read_results(acc_t* to, const elem_t* HF_RESTRICT row, int fresh_column) {
#if defined(HF_HOST)
    for (int m = 0; m < TILE_W; ++m)
        for (int c = 0; c < CHANNELS; ++c)
            to[m * CHANNELS + c] = m < fresh_column ? acc_t(0) : load(row[m * int64(PIXEL) + c]);
#else
    constexpr int STEP = CHANNEL_LAST ? 1 : PACK_OUT, COUNT = CHANNEL_LAST ? CHANNELS : PACK_OUT;
    HF_UNROLL
    for (int m = 0; m < TILE_W; m += STEP) {
        Vector<COUNT> pack = {};
        if (m >= fresh_column) pack = *(const Vector<COUNT>*)(row + m * PIXEL);
        HF_UNROLL
        for (int e = 0; e < COUNT; ++e) to[m * CHANNELS + e] = element_of(pack, e);
    }
#endif
}

// One tile: `x` and `dy` begin the plane, or the image at the member's channels.
HF_DEVICE void add_tile(const WeightParams& p, Sums& sums, const elem_t* HF_RESTRICT x, const elem_t* HF_RESTRICT dy,
                        int tile_row, int tile_column) {
    const int x_h = int(p.x_h), x_w = int(p.x_w), y_h = int(p.y_h), y_w = int(p.y_w);
    const int top = tile_row * TILE_H + TILE_H <= y_h ? tile_row * TILE_H : y_h - TILE_H;
    const int left = tile_column * TILE_W + TILE_W <= y_w ? tile_column * TILE_W : y_w - TILE_W;
    const int fresh_row = tile_row * TILE_H - top, fresh_column = tile_column * TILE_W - left;
    const int64 pitch = p.x_w * PIXEL, y_pitch = p.y_w * PIXEL;
    const int base = top * STRIDE_H + Down::low, base_column = left * STRIDE_W;
    const elem_t* HF_RESTRICT row = x + base * pitch + base_column * int64(PIXEL);
    dy += top * y_pitch + left * int64(PIXEL);
    Results results;
    HF_UNROLL
    for (int i = 0; i < TILE_H; ++i)
        read_results(results.at[i], dy + i * y_pitch, i < fresh_row ? TILE_W : fresh_column);
#if defined(HF_HOST)
    for (int j = 0; j <= Down::high - Down::low; ++j, row += pitch)
        if (base + j >= 0 && base + j < x_h) {
            Line line;
            fill(line, row, base_column, x_w);
            multiply(sums, results, line, Down::low + j);
        }
#else
    RawRow next = {};
    if (unsigned(base) < unsigned(x_h)) next = read_row(row, base_column, x_w);
    HF_UNROLL
    for (int j = 0; j <= Down::high - Down::low; ++j) {
        const RawRow raw = next;
        row += pitch;
        if (j < Down::high - Down::low && unsigned(base + j + 1) < unsigned(x_h))
            next = read_row(row, base_column, x_w);
        if (unsigned(base + j) < unsigned(x_h)) {
            Line line;
            convert(line, raw);
            multiply(sums, results, line, Down::low + j);
        }
    }
#endif
}

// The tiles of one part that fall to a member: each SLOTS-th one.
HF_DEVICE void add_tiles(const WeightParams& p, Sums& sums, const elem_t* x, const elem_t* dy, int64 tile, int64 end) {
    const int64 x_image = p.x_h * p.x_w * p.channels, y_image = p.y_h * p.y_w * p.channels;
    for (; tile < end; tile += SLOTS) {
        const int64 above = quotient(tile, p.columns), image = quotient(above, p.rows);
        add_tile(p, sums, x + image * x_image, dy + image * y_image, int(above - image * p.rows),
                 int(tile - above * p.columns));
    }
}

// The same for one tap of one channel, result by result.
HF_DEVICE acc_t add_plainly(const WeightParams& p, const elem_t* HF_RESTRICT x, const elem_t* HF_RESTRICT dy, int64 tile,
                            int64 end, int tap) {
    acc_t sum = 0;
    for (; tile < end; tile += SLOTS) {
        const int64 above = quotient(tile, p.columns), image = quotient(above, p.rows);
        const int64 top = (above - image * p.rows) * TILE_H, left = (tile - above * p.columns) * TILE_W;
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
            if (is_wide && channel < p.channels) add_tiles(p, sums, x + channel * x_plane, dy + channel * y_plane, begin, end);
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
                for (int v = 0; v < CHANNELS * TAPS; ++v)
                    to[v] = add_plainly(p, x + (channel + v / TAPS) * x_plane, dy + (channel + v / TAPS) * y_plane, begin,
                                        end, v % TAPS);
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
