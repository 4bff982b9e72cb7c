// Direct convolution by its definition, in all three directions, on tensors with any strides.
//
// An item computes a tile of TILE_CHANNELS output channels x TILE_POINTS output points. It gathers both operands,
// converted to the type that sums are kept in, into two small buffers and multiplies them, whatever the layout was.
// On a GPU a tile is one output and the buffers are registers; on the host a tile has one vector's worth of neighbours
// along its longer side. Every output is written once, and read only when beta is not 0.
//
// Products are summed DEPTH at a time, and these partial sums with the rounding errors kept apart (T. Dekker, 1971), so
// that a sum of a million terms in fp32 is as good as one of DEPTH terms.
#include "portable.h"

#if defined(HF_HOST) && TILE_POINTS > 1
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
typedef acc_t vec_t __attribute__((vector_size(VECTOR_BYTES), may_alias));
constexpr int DEPTH = 64;
#else
typedef acc_t vec_t;
constexpr int DEPTH = 1;
#endif

// Axes are depth, height, width; steps are strides in elements in the order of the tensor's lengths.
struct Conv {
    int64 samples, groups, in_channels, out_channels;  // channels of one group
    int64 x_size[3], y_size[3], taps[3], stride[3], dilation[3], pad[3];
    int64 x_step[5], w_step[5], y_step[5];
    int64 width, segments, units_per_tile, tiles, channels_innermost;
    double alpha, beta;
};

constexpr int CHANNELS = TILE_CHANNELS, POINTS = TILE_POINTS;
constexpr int LINE = 8;  // elements that are converted at once where they are contiguous
constexpr int VEC = sizeof(vec_t) / sizeof(acc_t);
constexpr bool LANES_ARE_CHANNELS = CHANNELS >= 16;
constexpr int LANES = LANES_ARE_CHANNELS ? CHANNELS : POINTS;
constexpr int ROWS = LANES_ARE_CHANNELS ? POINTS : CHANNELS;

HF_DEVICE int64 least(int64 a, int64 b) { return a < b ? a : b; }

// A count that the compiler knows where it cannot be but 1: then arrays of one element become registers.
template <int MOST>
HF_DEVICE int64 number(int64 count) { return MOST == 1 ? 1 : count; }

// A place along the depth of the buffers, known to the compiler for the same purpose.
HF_DEVICE int64 slot(int64 depth) { return DEPTH == 1 ? 0 : depth; }

// Steps of `stride` that reach `distance` or pass it.
HF_DEVICE int64 steps_to(int64 distance, int64 stride) {
    return stride == 1 ? distance : quotient(distance + stride - 1, stride);
}

// A block of outputs that is kept in vector registers: 8 vectors are enough to keep two multiply-add units busy.
constexpr int WIDEST = ROWS >= 4 ? 2 : 8 / ROWS;
constexpr int BLOCK_VECS = LANES / VEC < WIDEST ? LANES / VEC : WIDEST;
constexpr int BLOCK_ROWS = ROWS < 8 / BLOCK_VECS ? ROWS : 8 / BLOCK_VECS;
constexpr int BLOCK_LANES = BLOCK_VECS * VEC;

struct Tile {
    alignas(64) acc_t channel[DEPTH][CHANNELS];
    alignas(64) acc_t point[DEPTH][POINTS];
    alignas(64) acc_t sum[ROWS][LANES];
    alignas(64) acc_t lost[ROWS][LANES];
    int64 depth, channels, points;  // in use
};

HF_DEVICE void clear(acc_t* to, int64 count) {
    for (int64 i = 0; i < count; ++i) to[i] = 0;
}

HF_DEVICE void start(Tile& tile, int64 channels, int64 points) {
    constexpr int CHANNEL_BLOCK = LANES_ARE_CHANNELS ? BLOCK_LANES : BLOCK_ROWS;
    constexpr int POINT_BLOCK = LANES_ARE_CHANNELS ? BLOCK_ROWS : BLOCK_LANES;
    tile.depth = 0;
    tile.channels = channels;
    tile.points = points;
    for (int row = 0; row < ROWS; ++row) clear(tile.sum[row], LANES), clear(tile.lost[row], LANES);
    if (DEPTH == 1) return;
    // What fills up the last block is multiplied too: whatever lay there might be denormal, and slow.
    for (int d = 0; d < DEPTH; ++d) {
        clear(tile.channel[d] + channels, (CHANNELS - channels) % CHANNEL_BLOCK);
        clear(tile.point[d] + points, (POINTS - points) % POINT_BLOCK);
    }
}

// Adds the products of the gathered operands to the sums.
HF_DEVICE void multiply(Tile& tile) {
    const acc_t* rows = LANES_ARE_CHANNELS ? tile.point[0] : tile.channel[0];
    const acc_t* lanes = LANES_ARE_CHANNELS ? tile.channel[0] : tile.point[0];
    const int64 row_count = number<ROWS>(LANES_ARE_CHANNELS ? tile.points : tile.channels);
    const int64 lane_count = number<LANES>(LANES_ARE_CHANNELS ? tile.channels : tile.points);
    const int64 depth = number<DEPTH>(tile.depth);
    for (int64 row = 0; row < row_count; row += BLOCK_ROWS)
        for (int64 lane = 0; lane < lane_count; lane += BLOCK_LANES) {
            vec_t part[BLOCK_ROWS][BLOCK_VECS] = {};
            for (int64 d = 0; d < depth; ++d)
                for (int i = 0; i < BLOCK_ROWS; ++i)
                    for (int v = 0; v < BLOCK_VECS; ++v)
                        part[i][v] += rows[d * ROWS + row + i] * *(const vec_t*)(lanes + d * LANES + lane + v * VEC);
            for (int i = 0; i < BLOCK_ROWS; ++i)
                for (int v = 0; v < BLOCK_VECS; ++v) {
                    vec_t& sum = *(vec_t*)&tile.sum[row + i][lane + v * VEC];
                    vec_t& lost = *(vec_t*)&tile.lost[row + i][lane + v * VEC];
                    vec_t total = sum + part[i][v];
                    lost += part[i][v] - (total - sum);
                    sum = total;
                }
        }
    tile.depth = 0;
}

HF_DEVICE acc_t result(const Tile& tile, int64 channel, int64 point) {
    const int64 row = LANES_ARE_CHANNELS ? point : channel, lane = LANES_ARE_CHANNELS ? channel : point;
    acc_t sum = tile.sum[row][lane];
    return sum - sum == 0 ? sum + tile.lost[row][lane] : sum;  // the error of an infinite sum is NaN
}

HF_DEVICE void write(elem_t& out, acc_t value, const Conv& p) {
    acc_t scaled = acc_t(p.alpha) * value;
    out = store<elem_t>(p.beta == 0 ? scaled : scaled + acc_t(p.beta) * load(out));
}

// to[0..count) = from[0], from[step], ...
HF_DEVICE void gather(acc_t* HF_RESTRICT to, const elem_t* HF_RESTRICT from, int64 step, int64 count) {
    int64 i = 0;
    if (step == 1)
        for (; i + LINE <= count; i += LINE)
            for (int lane = 0; lane < LINE; ++lane) to[i + lane] = load(from[i + lane]);
    for (; i < count; ++i) to[i] = load(from[i * step]);
}

// ---- forward and backward data ------------------------------------------------------------------------------------

// Neighbouring output points of one row. Backward, neighbours are a stride apart, so that they share their taps.
struct Unit {
    int64 sample, d, h, w, count;
    const elem_t* row;  // what the present taps of depth and height read; null outside of the source
    const elem_t* from;  // what the present tap reads for the points begin..end; the others lie in the padding
    int64 begin, end;
};

template <bool BACKWARD>
struct Sides {  // out: what is written (y, or dx backward); source: what is gathered
    HF_DEVICE const int64* out_size(const Conv& p) { return BACKWARD ? p.x_size : p.y_size; }
    HF_DEVICE const int64* out_step(const Conv& p) { return BACKWARD ? p.x_step : p.y_step; }
    HF_DEVICE const int64* source_size(const Conv& p) { return BACKWARD ? p.y_size : p.x_size; }
    HF_DEVICE const int64* source_step(const Conv& p) { return BACKWARD ? p.y_step : p.x_step; }
    HF_DEVICE int64 outputs(const Conv& p) { return BACKWARD ? p.in_channels : p.out_channels; }
    HF_DEVICE int64 reduced(const Conv& p) { return BACKWARD ? p.out_channels : p.in_channels; }
    // Distance of neighbouring points of a unit in the output and in the source.
    HF_DEVICE int64 point_stride(const Conv& p) { return BACKWARD ? least(p.stride[2], p.x_size[2]) : 1; }
    HF_DEVICE int64 source_stride(const Conv& p) { return BACKWARD ? 1 : p.stride[2]; }
};

// Position in the source that an output position reads through a tap; it may lie outside. `size` where there is none.
template <bool BACKWARD>
HF_DEVICE int64 source_of(const Conv& p, int axis, int64 position, int64 tap) {
    const int64 reach = tap * p.dilation[axis] - p.pad[axis], stride = p.stride[axis];
    if (!BACKWARD) return position * stride + reach;
    if (stride == 1) return position - reach;
    const int64 whole = (position - reach) / stride;
    return whole * stride == position - reach ? whole : p.y_size[axis];
}

template <bool BACKWARD>
HF_DEVICE Unit unit_at(const Conv& p, int64 index) {
    const int64* size = Sides<BACKWARD>::out_size(p);
    const int64 step = Sides<BACKWARD>::point_stride(p);
    Unit unit = {};
    int64 rest = quotient(index, p.segments);
    const int64 segment = index - rest * p.segments;
    index = rest, rest = quotient(index, p.samples), unit.sample = index - rest * p.samples;
    index = rest, rest = quotient(index, step);
    const int64 phase = index - rest * step;
    unit.d = quotient(rest, size[1]), unit.h = rest - unit.d * size[1];
    unit.w = phase + segment * p.width * step;
    if (unit.w < size[2]) unit.count = least(p.width, steps_to(size[2] - unit.w, step));
    return unit;
}

// Turns the units to their source rows under these taps; false when all of them lie outside.
template <bool BACKWARD>
HF_DEVICE bool find_rows(const Conv& p, const elem_t* source, Unit* units, int64 depth_tap, int64 height_tap) {
    const int64 *size = Sides<BACKWARD>::source_size(p), *step = Sides<BACKWARD>::source_step(p);
    bool any = false;
    for (int64 u = 0; u < number<POINTS>(p.units_per_tile); ++u) {
        const int64 d = source_of<BACKWARD>(p, 0, units[u].d, depth_tap);
        const int64 h = source_of<BACKWARD>(p, 1, units[u].h, height_tap);
        const bool inside = units[u].count > 0 && d >= 0 && d < size[0] && h >= 0 && h < size[1];
        units[u].row = inside ? source + units[u].sample * step[0] + d * step[2] + h * step[3] : nullptr;
        any |= inside;
    }
    return any;
}

// The same for a tap of the width axis: which points of each unit read inside of the source.
template <bool BACKWARD>
HF_DEVICE bool find_points(const Conv& p, Unit* units, int64 tap) {
    const int64 size = Sides<BACKWARD>::source_size(p)[2], stride = Sides<BACKWARD>::source_stride(p);
    bool any = false;
    for (int64 u = 0; u < number<POINTS>(p.units_per_tile); ++u) {
        Unit& unit = units[u];
        unit.begin = unit.end = 0;
        if (!unit.row) continue;
        const int64 first = source_of<BACKWARD>(p, 2, unit.w, tap);
        if (first >= size) continue;
        unit.end = least(steps_to(size - first, stride), unit.count);
        if (first < 0) unit.begin = least(steps_to(-first, stride), unit.end);
        unit.from = unit.row + (first + unit.begin * stride) * Sides<BACKWARD>::source_step(p)[4];
        any |= unit.begin < unit.end;
    }
    return any;
}

template <bool BACKWARD>
HF_DEVICE void gather_points(Tile& tile, const Conv& p, const Unit* units, int64 first, int64 count) {
    const int64* step = Sides<BACKWARD>::source_step(p);
    const int64 width = number<POINTS>(p.width), point_step = Sides<BACKWARD>::source_stride(p) * step[4];
    for (int64 u = 0; u < number<POINTS>(p.units_per_tile); ++u) {
        const Unit& unit = units[u];
        acc_t* to = tile.point[slot(tile.depth)] + u * width;
        const bool reads = unit.begin < unit.end;
        const elem_t* from = reads ? unit.from + first * step[1] : nullptr;
        if (width == 1) {
            for (int64 r = 0; r < count; ++r) to[r * POINTS] = reads ? load(from[r * step[1]]) : 0;
            continue;
        }
        for (int64 r = 0; r < count; ++r, to += POINTS) {
            clear(to, unit.begin);
            if (reads) gather(to + unit.begin, from + r * step[1], point_step, unit.end - unit.begin);
            clear(to + unit.end, width - unit.end);
        }
    }
}

template <bool BACKWARD>
HF_DEVICE void sum_taps(Tile& tile, const Conv& p, const elem_t* source, const elem_t* w, Unit* units) {
    const int64 out_step = p.w_step[BACKWARD ? 1 : 0], reduced_step = p.w_step[BACKWARD ? 0 : 1];
    const int64 reduced = Sides<BACKWARD>::reduced(p);
    for (int64 d = 0; d < p.taps[0]; ++d)
        for (int64 h = 0; h < p.taps[1]; ++h) {
            if (!find_rows<BACKWARD>(p, source, units, d, h)) continue;
            for (int64 t = 0; t < p.taps[2]; ++t) {
                if (!find_points<BACKWARD>(p, units, t)) continue;
                const elem_t* filter = w + d * p.w_step[2] + h * p.w_step[3] + t * p.w_step[4];
                for (int64 first = 0, count; first < reduced; first += count) {
                    count = number<DEPTH>(least(DEPTH - tile.depth, reduced - first));
                    for (int64 r = 0; r < count; ++r)
                        gather(tile.channel[slot(tile.depth + r)], filter + (first + r) * reduced_step, out_step,
                               number<CHANNELS>(tile.channels));
                    gather_points<BACKWARD>(tile, p, units, first, count);
                    tile.depth += count;
                    if (DEPTH == 1 || tile.depth == DEPTH) multiply(tile);
                }
            }
        }
    if (DEPTH > 1 && tile.depth > 0) multiply(tile);
}

// The results, to the first channel's element of each unit's first point and on.
template <bool BACKWARD>
HF_DEVICE void write_units(const Tile& tile, const Conv& p, const Unit* units, elem_t* out) {
    const int64* step = Sides<BACKWARD>::out_step(p);
    const int64 point_step = Sides<BACKWARD>::point_stride(p) * step[4];
    for (int64 u = 0; u < number<POINTS>(p.units_per_tile); ++u) {
        const Unit& unit = units[u];
        if (unit.count == 0) continue;
        elem_t* row = out + unit.sample * step[0] + unit.d * step[2] + unit.h * step[3] + unit.w * step[4];
        for (int64 c = 0; c < number<CHANNELS>(tile.channels); ++c)
            for (int64 i = 0; i < number<POINTS>(unit.count); ++i)
                write(row[c * step[1] + i * point_step], result(tile, c, u * number<POINTS>(p.width) + i), p);
    }
}

template <bool BACKWARD>
HF_DEVICE void data_tile(int64 item, const elem_t* source, const elem_t* w, elem_t* out, const Conv& p) {
    typedef Sides<BACKWARD> sides;
    const int64 outputs = sides::outputs(p), blocks = quotient(outputs + CHANNELS - 1, CHANNELS);
    const int64 inner = p.channels_innermost ? blocks * p.groups : p.tiles;
    const int64 high = quotient(item, inner), low = item - high * inner;
    const int64 block = p.channels_innermost ? low : high, points_tile = p.channels_innermost ? high : low;
    const int64 group = quotient(block, blocks), channel = (block - group * blocks) * CHANNELS;

    const int64* size = sides::out_size(p);
    const int64 all = p.segments * p.samples * sides::point_stride(p) * size[0] * size[1];
    Unit units[POINTS];
    for (int64 u = 0; u < number<POINTS>(p.units_per_tile); ++u) {
        const int64 index = points_tile * p.units_per_tile + u;
        units[u] = unit_at<BACKWARD>(p, least(index, all - 1));
        if (index >= all) units[u].count = 0;
    }
    Tile tile;
    start(tile, least(CHANNELS, outputs - channel), p.units_per_tile * p.width);
    sum_taps<BACKWARD>(tile, p, source + group * sides::reduced(p) * sides::source_step(p)[1],
                       w + group * p.out_channels * p.w_step[0] + channel * p.w_step[BACKWARD ? 1 : 0], units);
    write_units<BACKWARD>(tile, p, units, out + (group * outputs + channel) * sides::out_step(p)[1]);
}

HF_KERNEL(naive_conv_fwd, const elem_t* x, const elem_t* w, elem_t* y, Conv p) {
    HF_FOR_ITEMS(i) data_tile<false>(i, x, w, y, p);
}

HF_KERNEL(naive_conv_bwd, const elem_t* y, const elem_t* w, elem_t* x, Conv p) {
    HF_FOR_ITEMS(i) data_tile<true>(i, y, w, x, p);
}

// ---- backward weights ----------------------------------------------------------------------------------------------

// An output point: one input channel and one tap. All reads of a point through one row of y lie in one row of x.
struct Column {
    int64 channel, tap[3];
    int64 begin, end, first;  // positions of y's row that read inside of x, and where position 0 reads
    const elem_t* row;  // null outside of x
};

HF_DEVICE Column column_at(const Conv& p, int64 index) {
    Column column = {};
    int64 rest = quotient(index, p.in_channels);
    column.channel = index - rest * p.in_channels;
    for (int axis = 2; axis > 0; --axis) {
        index = rest, rest = quotient(index, p.taps[axis]);
        column.tap[axis] = index - rest * p.taps[axis];
    }
    column.tap[0] = rest;
    const int64 stride = p.stride[2], size = p.x_size[2];
    column.first = column.tap[2] * p.dilation[2] - p.pad[2];
    if (column.first < size) column.end = least(steps_to(size - column.first, stride), p.y_size[2]);
    if (column.first < 0) column.begin = least(steps_to(-column.first, stride), column.end);
    return column;
}

HF_DEVICE void find_columns(const Conv& p, const elem_t* x, Column* columns, int64 count, int64 d, int64 h) {
    for (int64 j = 0; j < number<POINTS>(count); ++j) {
        Column& column = columns[j];
        const int64 x_d = source_of<false>(p, 0, d, column.tap[0]), x_h = source_of<false>(p, 1, h, column.tap[1]);
        const bool inside = x_d >= 0 && x_d < p.x_size[0] && x_h >= 0 && x_h < p.x_size[1];
        column.row = inside ? x + column.channel * p.x_step[1] + x_d * p.x_step[2] + x_h * p.x_step[3] : nullptr;
    }
}

// Gathers `count` positions of x's rows from position `first` of y's row on.
HF_DEVICE void gather_columns(Tile& tile, const Conv& p, const Column* columns, int64 first, int64 count) {
    for (int64 j = 0; j < number<POINTS>(tile.points); ++j) {
        const Column& column = columns[j];
        acc_t(*to)[POINTS] = tile.point + slot(tile.depth);
        int64 q = 0;
        if (column.row) {
            const int64 end = least(count, column.end - first);
            for (; q < column.begin - first && q < count; ++q) to[slot(q)][j] = 0;
            const elem_t* from = column.row + (column.first + first * p.stride[2]) * p.x_step[4];
            for (; q < end; ++q) to[slot(q)][j] = load(from[q * p.stride[2] * p.x_step[4]]);
        }
        for (; q < count; ++q) to[slot(q)][j] = 0;
    }
}

HF_DEVICE void weights_tile(int64 item, const elem_t* y, const elem_t* x, elem_t* w, const Conv& p) {
    const int64 blocks = quotient(p.out_channels + CHANNELS - 1, CHANNELS);
    const int64 block = quotient(item, p.tiles), group = quotient(block, blocks);
    const int64 channel = (block - group * blocks) * CHANNELS, point = (item - block * p.tiles) * POINTS;
    const int64 points = p.in_channels * p.taps[0] * p.taps[1] * p.taps[2];
    Tile tile;
    start(tile, least(CHANNELS, p.out_channels - channel), least(POINTS, points - point));
    Column columns[POINTS];
    for (int64 j = 0; j < number<POINTS>(tile.points); ++j) columns[j] = column_at(p, point + j);
    y += (group * p.out_channels + channel) * p.y_step[1];
    x += group * p.in_channels * p.x_step[1];
    for (int64 n = 0; n < p.samples; ++n)
        for (int64 d = 0; d < p.y_size[0]; ++d)
            for (int64 h = 0; h < p.y_size[1]; ++h) {
                const elem_t* row = y + n * p.y_step[0] + d * p.y_step[2] + h * p.y_step[3];
                find_columns(p, x + n * p.x_step[0], columns, tile.points, d, h);
                for (int64 first = 0, count; first < p.y_size[2]; first += count) {
                    count = number<DEPTH>(least(DEPTH - tile.depth, p.y_size[2] - first));
                    for (int64 q = 0; q < count; ++q)
                        gather(tile.channel[slot(tile.depth + q)], row + (first + q) * p.y_step[4], p.y_step[1],
                               number<CHANNELS>(tile.channels));
                    gather_columns(tile, p, columns, first, count);
                    tile.depth += count;
                    if (DEPTH == 1 || tile.depth == DEPTH) multiply(tile);
                }
            }
    if (DEPTH > 1 && tile.depth > 0) multiply(tile);
    for (int64 j = 0; j < number<POINTS>(tile.points); ++j)
        for (int64 k = 0; k < number<CHANNELS>(tile.channels); ++k) {
            const Column& c = columns[j];
            write(w[(group * p.out_channels + channel + k) * p.w_step[0] + c.channel * p.w_step[1] +
                    c.tap[0] * p.w_step[2] + c.tap[1] * p.w_step[3] + c.tap[2] * p.w_step[4]],
                  result(tile, k, j), p);
        }
}

HF_KERNEL(naive_conv_wrw, const elem_t* y, const elem_t* x, elem_t* w, Conv p) {
    HF_FOR_ITEMS(i) weights_tile(i, y, x, w, p);
}
