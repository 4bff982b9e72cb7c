// The gradient of bilinear 2D resizing, a tile of dx by a group: it sums the tile's windows over rows of dy, then these
// sums over columns, so that every element of dy is read in a long run and multiplied by two weights instead of four.
// Tables of weights are made once a tile, for all planes of the group.
//
// LINE > 0: members take lines of LINE neighbouring elements; the sums over rows lie in shared memory.
// LINE 0: for the host, whose threads each are a group of one: whole rows, that are read once and one after the other.
// TAPS > 0: no window has more columns than that.
//
// Where dx has too few pixels to keep a device busy, windows are cut into chunks; their sums go to `partials` [chunk,
// plane, height, width, inner], which sum_partials adds up.
#define HF_BLOCKS 4  // groups of a compute unit: enough lines on their way to memory
#include "upsample.h"

struct BlockParams {
    Axis h, w;
    Steps dy, dx;
    int64 planes_per_image, inner, planes, planes_per_group;
    int64 tile_h, tile_w, chunks_h, chunks_w;
    int64 parts_h, parts_w, row_groups;  // of a window's rows and columns, of a tile's rows: for different members
    int64 alignment;                     // of a tile's first column of dy
    int64 wide_dy, wide_dx;              // whether lines are aligned where the tensors are
};

constexpr int UNIT = LINE > 0 ? LINE : 1;

// ---- a group's tile -----------------------------------------------------------------------------------------------

// The outputs [first, last) that a tile looks at in one chunk, counted from `origin`.
struct Range {
    int64 origin, first, last;
};
HF_DEVICE int length(const Range& range) { return int(range.last - range.origin); }
HF_DEVICE Range outputs_of(const Axis& axis, int64 begin, int64 end, int64 chunk, int64 chunks, int64 alignment) {
    const int64 start = beyond(axis, begin - 1), count = from(axis, end) - start;
    const int64 first = start + quotient(count * chunk, chunks);
    return {quotient(first, alignment) * alignment, first, start + quotient(count * (chunk + 1), chunks)};
}

// It is made in steps, with a barrier after each.
struct Tile {
    int64 first_plane, last_plane, chunk_h, chunk_w;
    int64 top, left;           // in dx
    Range rows, columns;       // of dy
    int64 corner;              // where they begin in a plane of dy
    int64 there;               // elements of a row of dy from there on
    int64 place, row, pixel;   // of the results: where they begin in a plane, steps
    int height, width;         // in dx
    int lines, pitch;          // of a row of sums: lines, elements in whole lines
};
HF_DEVICE void choose(Tile& tile, const BlockParams& p, int64 group) {
    const int64 tiles_w = ceiling(p.w.in, p.tile_w), tiles_h = ceiling(p.h.in, p.tile_h);
    int64 rest = quotient(group, tiles_w);
    tile.left = (group - rest * tiles_w) * p.tile_w;
    tile.width = int(least(p.tile_w, p.w.in - tile.left));
    int64 next = quotient(rest, tiles_h);
    tile.top = (rest - next * tiles_h) * p.tile_h;
    tile.height = int(least(p.tile_h, p.h.in - tile.top));
    rest = quotient(next, p.chunks_w);
    tile.chunk_w = next - rest * p.chunks_w;
    next = quotient(rest, p.chunks_h);
    tile.chunk_h = rest - next * p.chunks_h;
    tile.first_plane = next * p.planes_per_group;
    tile.last_plane = least(tile.first_plane + p.planes_per_group, p.planes);
}
HF_DEVICE void look(Tile& tile, const BlockParams& p, bool is_rows) {
    if (is_rows)
        tile.rows = outputs_of(p.h, tile.top, tile.top + tile.height, tile.chunk_h, p.chunks_h, 1);
    else
        tile.columns = outputs_of(p.w, tile.left, tile.left + tile.width, tile.chunk_w, p.chunks_w, p.alignment);
}
HF_DEVICE void measure(Tile& tile, const BlockParams& p) {
    const int elements = length(tile.columns) * int(p.inner);
    tile.lines = (elements + UNIT - 1) / UNIT;
    tile.pitch = tile.lines * UNIT;
    tile.corner = tile.rows.origin * p.dy.row + tile.columns.origin * p.dy.pixel;
    tile.there = p.dy.pixel == p.inner ? (p.w.out - tile.columns.origin) * p.inner : tile.pitch;
    const bool is_partial = p.chunks_h * p.chunks_w > 1;
    tile.row = is_partial ? p.w.in * p.inner : p.dx.row;
    tile.pixel = is_partial ? p.inner : p.dx.pixel;
    tile.place = tile.top * tile.row + tile.left * tile.pixel;
    if (is_partial) tile.place += (tile.chunk_h * p.chunks_w + tile.chunk_w) * p.planes * p.h.in * tile.row;
}

// Pixel k of a tile looks at the outputs [begin[k], middle[k + 1]), and weighs output o by weights[middle[k] + o]. The
// places of neighbouring pixels do not overlap, since begin[k + 1] >= middle[k].
template <int OUTPUTS, int PIXELS>
struct Table {
    acc_t weights[2 * OUTPUTS];
    int begin[PIXELS + 1], middle[PIXELS + 1];
};
typedef Table<ROWS, TILE_H> RowTable;
typedef Table<COLUMNS, TILE_W> ColumnTable;

HF_DEVICE int within(const Range& range, int64 output) {
    return int((output < range.first ? range.first : least(output, range.last)) - range.origin);
}
template <typename T>
HF_DEVICE void fill_bounds(T& table, const Axis& axis, const Range& range, int64 first_pixel, int pixel) {
    table.begin[pixel] = within(range, beyond(axis, first_pixel + pixel - 1));
    table.middle[pixel] = within(range, from(axis, first_pixel + pixel));
}
template <typename T>
HF_DEVICE void fill_weights(T& table, const Axis& axis, const Range& range, int64 first_pixel, int pixels, int output) {
    const Source at = source(axis, range.origin + output);
    const int64 pixel = at.pixel - first_pixel;
    if (pixel >= 0 && pixel < pixels) table.weights[table.middle[pixel] + output] = 1 - at.fraction;
    if (pixel >= -1 && pixel + 1 < pixels && at.fraction > 0)
        table.weights[table.middle[pixel + 1] + output] = at.fraction;
}

// Where the results of a plane go: partial sums where there are such.
struct Results {
    elem_t* dx;
    acc_t* partials;
    bool is_wide;
};
HF_DEVICE Results results_of(const BlockParams& p, const Tile& tile, elem_t* dx, acc_t* partials, int64 plane) {
    if (p.chunks_h * p.chunks_w > 1) return {nullptr, partials + tile.place + plane * p.h.in * tile.row, false};
    return {dx + tile.place + plane_offset(p.dx, plane, p.planes_per_image), nullptr, p.wide_dx && is_aligned<PACK>(dx)};
}
HF_DEVICE void put(const Results& results, int64 place, const acc_t (&sums)[PACK]) {
    if (results.partials) {
        for (int e = 0; e < PACK; ++e) results.partials[place + e] = sums[e];
    } else {
        put_pack(results.dx + place, sums, results.is_wide);
    }
}

#if LINE > 0
// ---- members of a group -------------------------------------------------------------------------------------------

// One line of part `part` of pixel row i's window, over its rows.
// WHOLE: all of the line is there, and aligned; else `count` elements of it are.
template <bool WHOLE>
HF_DEVICE void sum_rows(
    acc_t* HF_RESTRICT to, const elem_t* HF_RESTRICT line, int64 step, int count, const RowTable& table, int i, int part,
    int parts) {
    const int first = table.begin[i], all = table.middle[i + 1] - first;
    const int begin = first + all * part / parts, end = first + all * (part + 1) / parts;
    // Up in one pixel row, down in the next: so they read the rows that they share at nearly the same time.
    const int direction = i % 2 == 0 ? 1 : -1, start = i % 2 == 0 ? begin : end - 1;
    const acc_t* weight = table.weights + table.middle[i] + start;
    line += start * step;
    step *= direction;
    acc_t sums[LINE];
    for (int e = 0; e < LINE; ++e) sums[e] = 0;
    for (int left = end - begin; left > 0; --left, weight += direction, line += step) {
        if (WHOLE) {
            const Vector<LINE> whole = *(const Vector<LINE>*)line;
            for (int e = 0; e < LINE; ++e) sums[e] += *weight * element_of(whole, e);
        } else {
            for (int e = 0; e < LINE; ++e)
                if (e < count) sums[e] += *weight * load(line[e]);
        }
    }
    for (int e = 0; e < LINE; ++e) to[e] = sums[e];
}
HF_DEVICE void sum_rows(
    acc_t* HF_RESTRICT row_sums, const BlockParams& p, const Tile& tile, const RowTable& table,
    const elem_t* HF_RESTRICT corner, bool is_wide, int t) {
    const int slot = t / tile.lines, f = (t - slot * tile.lines) * LINE;
    const int parts = int(p.parts_h), inner = int(p.inner), i = slot / parts, part = slot - i * parts;
    const elem_t* line = corner + (p.dy.pixel == inner ? f : f / inner * p.dy.pixel + f % inner);
    const int count = int(least(tile.there - f, LINE));
    acc_t* to = row_sums + slot * tile.pitch + f;
    if (is_wide && count == LINE)
        sum_rows<true>(to, line, p.dy.row, LINE, table, i, part, parts);
    else
        sum_rows<false>(to, line, p.dy.row, count, table, i, part, parts);
}

#if TAPS > 0
// PACK neighbours of a pixel column: a member keeps its weights and goes down the rows, in steps of row_groups.
HF_DEVICE void put_column(
    const Results& results, const acc_t* HF_RESTRICT row_sums, const BlockParams& p, const Tile& tile,
    const ColumnTable& table, int t) {
    const int inner = int(p.inner), packs = inner / PACK, across = tile.width * packs, parts = int(p.parts_h);
    const int begin = t / across, column = t - begin * across, j = column / packs, c = (column - j * packs) * PACK;
    const int first = table.begin[j], count = table.middle[j + 1] - first;
    acc_t weights[TAPS];
    for (int tap = 0; tap < TAPS; ++tap)
        if (tap < count) weights[tap] = table.weights[table.middle[j] + first + tap];
    for (int i = begin; i < tile.height; i += int(p.row_groups)) {
        acc_t sums[PACK];
        for (int e = 0; e < PACK; ++e) sums[e] = 0;
        for (int slot = i * parts; slot < (i + 1) * parts; ++slot) {
            const acc_t* row = row_sums + slot * tile.pitch + first * inner + c;
            for (int tap = 0; tap < TAPS; ++tap)
                if (tap < count)
                    for (int e = 0; e < PACK; ++e) sums[e] += weights[tap] * row[tap * inner + e];
        }
        put(results, i * tile.row + j * tile.pixel + c, sums);
    }
}
#else
// PACK neighbours of a pixel, over every parts_w'th column of its window; left in `scratch` where there are more parts.
HF_DEVICE void sum_columns(
    const Results& results, acc_t* HF_RESTRICT scratch, const acc_t* HF_RESTRICT row_sums, const BlockParams& p,
    const Tile& tile, const ColumnTable& table, int t) {
    const int inner = int(p.inner), packs = inner / PACK, parts_h = int(p.parts_h), parts_w = int(p.parts_w);
    const int at = t / packs, c = (t - at * packs) * PACK, pixel = at / parts_w, part = at - pixel * parts_w;
    const int i = pixel / tile.width, j = pixel - i * tile.width;
    const acc_t* weights = table.weights + table.middle[j];
    acc_t sums[PACK];
    for (int e = 0; e < PACK; ++e) sums[e] = 0;
    for (int slot = i * parts_h; slot < (i + 1) * parts_h; ++slot) {
        const acc_t* row = row_sums + slot * tile.pitch + c;
        for (int o = table.begin[j] + part; o < table.middle[j + 1]; o += parts_w)
            for (int e = 0; e < PACK; ++e) sums[e] += weights[o] * row[o * inner + e];
    }
    if (parts_w == 1)
        put(results, i * tile.row + j * tile.pixel + c, sums);
    else
        for (int e = 0; e < PACK; ++e) scratch[t * PACK + e] = sums[e];
}
HF_DEVICE void sum_parts(
    const Results& results, const acc_t* HF_RESTRICT scratch, const BlockParams& p, const Tile& tile, int t) {
    const int packs = int(p.inner) / PACK, parts_w = int(p.parts_w);
    const int pixel = t / packs, pack = t - pixel * packs, i = pixel / tile.width, j = pixel - i * tile.width;
    acc_t sums[PACK];
    for (int e = 0; e < PACK; ++e) sums[e] = 0;
    for (int part = 0; part < parts_w; ++part)
        for (int e = 0; e < PACK; ++e) sums[e] += scratch[((pixel * parts_w + part) * packs + pack) * PACK + e];
    put(results, i * tile.row + j * tile.pixel + pack * PACK, sums);
}
#endif

#else
// ---- a group of one -----------------------------------------------------------------------------------------------

constexpr int RUN = 512, FEW = 32;  // sums of a row at once

// Adds a row of dy to the sums of the pixel row that it belongs to, and of the next one.
template <typename T>
HF_DEVICE void add(acc_t* HF_RESTRICT to, const T* HF_RESTRICT row, acc_t weight, int length) {
    for (int e = 0; e < length; ++e) to[e] += weight * load(row[e]);
}
HF_DEVICE void add_to_both(
    acc_t* HF_RESTRICT to, acc_t* HF_RESTRICT next, const elem_t* HF_RESTRICT row, acc_t weight, acc_t next_weight,
    int length) {
    for (int e = 0; e < length; ++e) {
        const acc_t value = load(row[e]);
        to[e] += weight * value;
        next[e] += next_weight * value;
    }
}

// Pixels [begin, end) of a row where a pixel is one element. With TAPS there are no loops inside: what a narrower window
// does not have is read and left out, never multiplied by 0.
HF_DEVICE void sum_columns(
    acc_t* HF_RESTRICT sums, const acc_t* HF_RESTRICT row, const ColumnTable& table, const acc_t* HF_RESTRICT taps,
    int begin, int end) {
    for (int j = begin; j < end; ++j) {
        const int first = table.begin[j], count = table.middle[j + 1] - first;
        acc_t sum = 0;
        if (TAPS > 0) {
            for (int tap = 0; tap < TAPS; ++tap) {
                const acc_t product = taps[tap * TILE_W + j] * row[first + tap];
                sum += tap < count ? product : 0;
            }
        } else {
            const acc_t* weights = table.weights + table.middle[j] + first;
            for (int tap = 0; tap < count; ++tap) sum += weights[tap] * row[first + tap];
        }
        sums[j - begin] = sum;
    }
}
HF_DEVICE void put_run(const Results& results, int64 place, int64 step, const acc_t* HF_RESTRICT sums, int count) {
    if (results.partials)
        for (int e = 0; e < count; ++e) results.partials[place + e * step] = sums[e];
    else if (step == 1)
        for (int e = 0; e < count; ++e) results.dx[place + e] = store<elem_t>(sums[e]);
    else
        for (int e = 0; e < count; ++e) results.dx[place + e * step] = store<elem_t>(sums[e]);
}
// A row of results where a pixel is one element, a few at a time: a long row of sums would lie in the way of what is
// read, as addresses that differ by 4096 do.
HF_DEVICE void put_elements(
    const Results& results, const acc_t* HF_RESTRICT row, const Tile& tile, const ColumnTable& table,
    const acc_t* HF_RESTRICT taps, int i) {
    acc_t sums[FEW];
    for (int j = 0; j < tile.width; j += FEW) {
        const int end = int(least(j + FEW, tile.width));
        sum_columns(sums, row, table, taps, j, end);
        put_run(results, i * tile.row + j * tile.pixel, tile.pixel, sums, end - j);
    }
}
// A row of results where a pixel is several neighbouring channels.
HF_DEVICE void put_pixels(
    const Results& results, const acc_t* HF_RESTRICT row, const Tile& tile, const ColumnTable& table, int inner, int i) {
    acc_t sums[RUN];
    for (int j = 0; j < tile.width; ++j)
        for (int c = 0; c < inner; c += RUN) {
            const int count = int(least(RUN, inner - c));
            for (int e = 0; e < count; ++e) sums[e] = 0;
            for (int o = table.begin[j]; o < table.middle[j + 1]; ++o)
                add(sums, row + o * inner + c, table.weights[table.middle[j] + o], count);
            put_run(results, i * tile.row + j * tile.pixel + c, 1, sums, count);
        }
}

// The whole tile: each row of dy is read once; as it goes, the sums of a pixel row become complete and are put.
HF_DEVICE void put_tile(
    const Results& results, acc_t* HF_RESTRICT row_sums, const BlockParams& p, const Tile& tile, const RowTable& rows,
    const ColumnTable& columns, const elem_t* HF_RESTRICT corner) {
    acc_t taps[TILE_W * TAPS + 1];
    for (int j = 0; j < tile.width; ++j)
        for (int tap = 0; tap < least(TAPS, columns.middle[j + 1] - columns.begin[j]); ++tap)
            taps[tap * TILE_W + j] = columns.weights[columns.middle[j] + columns.begin[j] + tap];

    const int inner = int(p.inner), pieces = p.dy.pixel == inner ? 1 : length(tile.columns);
    const int run = p.dy.pixel == inner ? tile.pitch : inner;
    acc_t *sums = row_sums, *next_sums = row_sums + tile.pitch;
    for (int e = 0; e < 2 * tile.pitch; ++e) row_sums[e] = 0;
    for (int i = -1; i < tile.height; ++i) {
        for (int o = i < 0 ? rows.begin[0] : rows.middle[i]; o < rows.middle[i + 1]; ++o)
            for (int piece = 0; piece < pieces; ++piece) {
                const elem_t* row = corner + o * p.dy.row + piece * p.dy.pixel;
                acc_t *to = sums + piece * run, *next = next_sums + piece * run;
                if (i < 0)
                    add(next, row, rows.weights[rows.middle[0] + o], run);
                else if (i + 1 == tile.height || o < rows.begin[i + 1])
                    add(to, row, rows.weights[rows.middle[i] + o], run);
                else
                    add_to_both(
                        to, next, row, rows.weights[rows.middle[i] + o], rows.weights[rows.middle[i + 1] + o], run);
            }
        if (i >= 0) {
            if (inner == 1)
                put_elements(results, sums, tile, columns, taps, i);
            else
                put_pixels(results, sums, tile, columns, inner, i);
            for (int e = 0; e < tile.pitch; ++e) sums[e] = 0;
        }
        acc_t* done = sums;
        sums = next_sums;
        next_sums = done;
    }
}
#endif

// ---- a group's tile in all its planes -----------------------------------------------------------------------------

HF_KERNEL(upsample_block, const elem_t* HF_RESTRICT dy, elem_t* HF_RESTRICT dx, acc_t* HF_RESTRICT partials,
          BlockParams p) {
    HF_SHARED acc_t row_sums[SUMS + TAPS];
    HF_SHARED RowTable rows;
    HF_SHARED ColumnTable columns;
    HF_SHARED Tile tile;
#if LINE > 0 && TAPS == 0
    HF_SHARED acc_t scratch[SCRATCH];
#endif
    HF_FOR_GROUPS(group) {
        HF_FOR_MEMBERS(t, 1) choose(tile, p, group);
        HF_BARRIER();
        HF_FOR_MEMBERS(t, 2) look(tile, p, t == 0);
        HF_BARRIER();
        HF_FOR_MEMBERS(t, 1) measure(tile, p);
        HF_FOR_MEMBERS(t, tile.height + 1) fill_bounds(rows, p.h, tile.rows, tile.top, t);
        HF_FOR_MEMBERS(t, tile.width + 1) fill_bounds(columns, p.w, tile.columns, tile.left, t);
        HF_BARRIER();
        HF_FOR_MEMBERS(t, length(tile.rows)) fill_weights(rows, p.h, tile.rows, tile.top, tile.height, t);
        HF_FOR_MEMBERS(t, length(tile.columns)) fill_weights(columns, p.w, tile.columns, tile.left, tile.width, t);
        HF_BARRIER();
        for (int64 plane = tile.first_plane; plane < tile.last_plane; ++plane) {
            const elem_t* corner = dy + plane_offset(p.dy, plane, p.planes_per_image) + tile.corner;
            const Results results = results_of(p, tile, dx, partials, plane);
#if LINE == 0
            put_tile(results, row_sums, p, tile, rows, columns, corner);
#else
            const bool is_wide = p.wide_dy && is_aligned<LINE>(dy);
            HF_FOR_MEMBERS(t, tile.height * int(p.parts_h) * tile.lines)
                sum_rows(row_sums, p, tile, rows, corner, is_wide, t);
            HF_BARRIER();
#if TAPS > 0
            HF_FOR_MEMBERS(t, tile.width * (int(p.inner) / PACK) * int(p.row_groups))
                put_column(results, row_sums, p, tile, columns, t);
            HF_BARRIER();
#else
            const int packs = tile.height * tile.width * (int(p.inner) / PACK);
            HF_FOR_MEMBERS(t, packs * int(p.parts_w)) sum_columns(results, scratch, row_sums, p, tile, columns, t);
            HF_BARRIER();
            if (p.parts_w > 1) {
                HF_FOR_MEMBERS(t, packs) sum_parts(results, scratch, p, tile, t);
                HF_BARRIER();
            }
#endif
#endif
        }
    }
}
