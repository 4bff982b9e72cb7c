// The gradient of bilinear 2D resizing by groups that go down strips of dy: a member takes a line of LINE neighbouring
// elements, adds each row to the two pixel rows that it belongs to, in registers, and reads on while it does. When a
// pixel row is complete its sums go to shared memory, and the members sum their columns. So every element of dy is read
// once, in 16-byte loads, and multiplied by two weights.
//
// A group works on several planes at once where a strip has few lines. Where a pixel row has many rows and there are few
// groups, its members share these rows instead (`parts`). TAPS > 0: no window has more columns than that. PACK:
// neighbouring channels that a member sums columns of. SINGLE: a pixel is one element. AHEAD: rows that a member reads
// ahead.
//
// For GPUs only: sums stay in registers from phase to phase.
#include "upsample.h"

#if defined(HF_HOST)
#error "upsample_strip keeps values in registers across barriers, which the host's groups cannot"
#endif

struct StripParams {
    Axis h, w;
    Steps dy, dx;
    int64 planes_per_image, inner, planes;
    int64 tile_h, tile_w;          // pixels of a group's strip
    int64 lines, at_once, parts;   // lines of a row; planes of a group; members that share a pixel row's rows
    int64 parts_w;                 // members that share a window's columns
    int64 alignment;               // of a strip's first column of dy
    int64 wide_dy, wide_dx;        // whether lines and packs are aligned where the tensors are
};

#define ONE_WINDOW (TAPS > 0 && SINGLE)  // a member sums windows of one pixel column, with weights in registers

typedef Vector<LINE> Line;

struct Row {
    acc_t fraction;
    int pixel;
};
struct Shared {
    alignas(64) acc_t sums[2][HF_BLOCK * LINE];
    Row rows[ROWS];
    // Pixel k looks at the columns [begin[k], middle[k + 1]) and weighs column o by weights[middle[k] + o].
    acc_t weights[2 * COLUMNS];
    int begin[TILE_W + 1], middle[TILE_W + 1];
    acc_t scratch[HF_BLOCK * PACK];
    int64 places[HF_BLOCK];  // where planes of dx begin
};

// A group's strip: pixels [top, bottom) x [left, left + width), rows and columns of dy counted from their first ones.
struct Strip {
    int64 first_plane, first_row, first_column;
    int64 there;  // elements of a row of dy from the first column on
    int top, bottom, left, width, rows, columns, planes;
};
HF_DEVICE Strip strip_of(const StripParams& p, int64 group) {
    Strip s;
    const int64 strips = ceiling(p.w.in, p.tile_w), segments = ceiling(p.h.in, p.tile_h);
    const int64 rest = quotient(group, strips), next = quotient(rest, segments);
    s.left = int((group - rest * strips) * p.tile_w);
    s.width = int(least(p.tile_w, p.w.in - s.left));
    s.top = int((rest - next * segments) * p.tile_h);
    s.bottom = int(least(s.top + p.tile_h, p.h.in));
    s.first_plane = next * p.at_once;
    s.planes = int(least(p.at_once, p.planes - s.first_plane));
    s.first_row = beyond(p.h, s.top - 1);
    s.rows = int(from(p.h, s.bottom) - s.first_row);
    s.first_column = quotient(beyond(p.w, s.left - 1), p.alignment) * p.alignment;
    s.columns = int(from(p.w, s.left + s.width) - s.first_column);
    s.there = (p.dy.pixel == p.inner ? p.w.out - s.first_column : s.columns) * p.inner;
    return s;
}

// The tables, in two steps with a barrier after each.
HF_DEVICE void fill_rows_and_bounds(Shared& shared, const StripParams& p, const Strip& s, int t) {
    for (int o = t; o < s.rows; o += HF_BLOCK) {
        const Source at = source(p.h, s.first_row + o);
        shared.rows[o] = {at.fraction, int(at.pixel)};
    }
    for (int j = t; j <= s.width; j += HF_BLOCK) {
        shared.begin[j] = int(beyond(p.w, s.left + j - 1) - s.first_column);
        shared.middle[j] = int(from(p.w, s.left + j) - s.first_column);
    }
    for (int k = t; k < s.planes; k += HF_BLOCK)
        shared.places[k] = plane_offset(p.dx, s.first_plane + k, p.planes_per_image);
}
HF_DEVICE void fill_weights(Shared& shared, const StripParams& p, const Strip& s, int t) {
    for (int o = t; o < s.columns; o += HF_BLOCK) {
        const Source at = source(p.w, s.first_column + o);
        const int j = int(at.pixel) - s.left;
        if (j >= 0 && j < s.width) shared.weights[shared.middle[j] + o] = 1 - at.fraction;
        if (j >= -1 && j + 1 < s.width && at.fraction > 0) shared.weights[shared.middle[j + 1] + o] = at.fraction;
    }
}

// What a member reads: its line of rows [begin, end), where the next one is and how many are left.
struct Reader {
    const elem_t* next;
    int begin, end, left;
    int count;  // elements that are there
};
HF_DEVICE Reader reader_of(const StripParams& p, const Strip& s, const elem_t* dy, int t) {
    const int lines = int(p.lines), parts = int(p.parts), inner = int(p.inner);
    const int lane = t / lines, f = (t - lane * lines) * LINE, k = lane / parts, part = lane - k * parts;
    // Who has nothing to read goes along all the same: all members meet at the same barriers.
    Reader r = {dy, s.rows * part / parts, s.rows * (part + 1) / parts, 0, 0};
    if (k >= s.planes || f >= s.there) return r;
    r.left = r.end - r.begin;
    r.count = int(least(s.there - f, LINE));
    const int column = f / inner;
    r.next = dy + plane_offset(p.dy, s.first_plane + k, p.planes_per_image) + (s.first_row + r.begin) * p.dy.row +
             (s.first_column + column) * p.dy.pixel + (f - column * inner);
    return r;
}
// WHOLE: all lines of the strip are there, and aligned.
template <bool WHOLE>
HF_DEVICE Line read(Reader& r, int64 step) {
    Line line = {};
    if (r.left > 0) {
        if (WHOLE)
            line = *(const Line*)r.next;
        else
            for (int e = 0; e < LINE; ++e)
                if (e < r.count) line.elements[e] = r.next[e];
    }
    r.next += step;
    --r.left;
    return line;
}

// The lines that were read ahead, the next one first. Moving them costs less than code for each place would.
struct Queue {
    Line lines[AHEAD];
};
HF_DEVICE void push(Queue& queue, const Line& line) {
    for (int u = 0; u + 1 < AHEAD; ++u) queue.lines[u] = queue.lines[u + 1];
    queue.lines[AHEAD - 1] = line;
}

// What a member sums of every pixel row: PACK channels of every `step`th pixel, one part of their windows.
struct Columns {
    int first, step, channel, part;
    elem_t* row;  // of dx: where this channel begins in the strip
    bool is_wide;
#if ONE_WINDOW
    int begin, count;  // of the window of the one pixel that it sums in several planes
    acc_t weights[TAPS];
#endif
};
HF_DEVICE Columns columns_of(const StripParams& p, const Strip& s, const Shared& shared, elem_t* dx, int t) {
    Columns c;
    const int parts = int(p.parts_w), packs = int(p.inner) / PACK, across = ONE_WINDOW ? s.width : packs * parts;
    const int pack = t / parts;
    c.step = HF_BLOCK / across;
    c.first = t / across;
    if (c.first >= c.step) c.first = s.planes * s.width;  // nothing
    c.part = t - pack * parts;
    c.channel = ONE_WINDOW ? 0 : (pack - pack / packs * packs) * PACK;
    c.row = dx + s.top * p.dx.row + s.left * p.dx.pixel + c.channel;
    c.is_wide = p.wide_dx && is_aligned<PACK>(dx);
#if ONE_WINDOW
    const int j = t - t / across * across;
    c.row += j * p.dx.pixel;
    c.begin = shared.begin[j];
    c.count = shared.middle[j + 1] - c.begin;
    for (int tap = 0; tap < TAPS; ++tap) {
        const Source at = source(p.w, s.first_column + c.begin + tap);
        c.weights[tap] = at.pixel == s.left + j ? 1 - at.fraction : at.fraction;
    }
#endif
    return c;
}

HF_DEVICE void add(acc_t (&sums)[PACK], const acc_t* HF_RESTRICT pack, acc_t weight) {
    for (int e = 0; e < PACK; ++e) sums[e] += weight * pack[e];
}

// The columns of a complete pixel row.
#if ONE_WINDOW
HF_DEVICE void put_columns(const StripParams& p, const Strip& s, Shared& shared, const Columns& c,
                           const acc_t* HF_RESTRICT sums, int) {
    const int pitch = int(p.lines) * LINE, parts = int(p.parts);
    const acc_t* row = sums + c.first * parts * pitch + c.begin;
    for (int k = c.first; k < s.planes; k += c.step) {
        acc_t sum = 0;
        for (int tap = 0; tap < TAPS; ++tap)
            if (tap < c.count) sum += c.weights[tap] * row[tap];
        for (int part = 1; part < parts; ++part)
            for (int tap = 0; tap < TAPS; ++tap)
                if (tap < c.count) sum += c.weights[tap] * row[part * pitch + tap];
        c.row[shared.places[k]] = store<elem_t>(sum);
        row += c.step * parts * pitch;
    }
}
#else
HF_DEVICE void put_columns(const StripParams& p, const Strip& s, Shared& shared, const Columns& c,
                           const acc_t* HF_RESTRICT sums, int t) {
    const int lane = int(p.lines) * LINE, parts = int(p.parts), parts_w = int(p.parts_w), inner = int(p.inner);
    int j = c.first, plane = 0;
    for (; j >= s.width && plane < s.planes; ++plane) j -= s.width;
    elem_t* to = c.row + j * p.dx.pixel;
    while (plane < s.planes) {
        const int begin = shared.begin[j], middle = shared.middle[j], count = shared.middle[j + 1] - begin;
        const acc_t *weights = shared.weights + (middle + begin), *row = sums + plane * parts * lane + c.channel;
        acc_t sum[PACK];
        for (int e = 0; e < PACK; ++e) sum[e] = 0;
        row += begin * inner;
        for (int part = 0; part < parts; ++part, row += lane) {
#if TAPS > 0
            for (int tap = 0; tap < TAPS; ++tap)
                if (tap < count) add(sum, row + tap * inner, weights[tap]);
#else
            for (int tap = c.part; tap < count; tap += parts_w) add(sum, row + tap * inner, weights[tap]);
#endif
        }
        if (parts_w > 1) {
            for (int e = 0; e < PACK; ++e) shared.scratch[t * PACK + e] = sum[e];
            break;
        }
        put_pack(to + shared.places[plane], sum, c.is_wide);
        j += c.step;
        to += c.step * p.dx.pixel;
        for (; j >= s.width && plane < s.planes; ++plane) {
            j -= s.width;
            to -= s.width * p.dx.pixel;
        }
    }
    if (parts_w > 1) {  // then a member has one pixel at most
        HF_BARRIER();
        if (plane < s.planes && c.part == 0) {
            acc_t sum[PACK];
            for (int e = 0; e < PACK; ++e) sum[e] = 0;
            for (int part = t; part < t + parts_w; ++part) add(sum, shared.scratch + part * PACK, 1);
            put_pack(to + shared.places[plane], sum, c.is_wide);
        }
    }
}
#endif

// Down the rows of a strip.
template <bool WHOLE>
HF_DEVICE void go_down(
    Shared& shared, const StripParams& p, const Strip& s, const elem_t* HF_RESTRICT dy, elem_t* HF_RESTRICT dx, int t) {
    const int64 step = p.dy.row;
    Reader reader = reader_of(p, s, dy, t);
    Queue queue;
    for (int u = 0; u < AHEAD; ++u) push(queue, read<WHOLE>(reader, step));
    fill_rows_and_bounds(shared, p, s, t);
    HF_BARRIER();
#if !ONE_WINDOW
    fill_weights(shared, p, s, t);
    HF_BARRIER();
#endif
    Columns columns = columns_of(p, s, shared, dx, t);

    acc_t total[LINE], next[LINE];  // of pixel row i and of the one behind
    for (int e = 0; e < LINE; ++e) total[e] = next[e] = 0;
    int i = s.top - 1;
    for (int o = reader.begin;; ++o) {
        const Row row = o < reader.end ? shared.rows[o] : Row{0, s.bottom};
        for (; i < row.pixel; ++i) {
            if (i >= s.top) {
                acc_t* sums = shared.sums[i & 1];  // the other ones may still be read
                for (int e = 0; e < LINE; ++e) sums[t * LINE + e] = total[e];
                HF_BARRIER();
                put_columns(p, s, shared, columns, sums, t);
                columns.row += p.dx.row;
            }
            for (int e = 0; e < LINE; ++e) {
                total[e] = next[e];
                next[e] = 0;
            }
        }
        if (o >= reader.end) break;
        const Line line = queue.lines[0];
        push(queue, read<WHOLE>(reader, step));
        for (int e = 0; e < LINE; ++e) total[e] += (1 - row.fraction) * element_of(line, e);
        if (row.fraction > 0)  // what has no weight is not looked at: it may be NaN
            for (int e = 0; e < LINE; ++e) next[e] += row.fraction * element_of(line, e);
    }
}

HF_KERNEL(upsample_strip, const elem_t* HF_RESTRICT dy, elem_t* HF_RESTRICT dx, StripParams p) {
    HF_SHARED Shared shared;
    HF_FOR_GROUPS(group) HF_FOR_MEMBERS(t, HF_BLOCK) {
        const Strip s = strip_of(p, group);
        if (p.wide_dy && is_aligned<LINE>(dy) && s.there % LINE == 0)
            go_down<true>(shared, p, s, dy, dx, t);
        else
            go_down<false>(shared, p, s, dy, dx, t);
        HF_BARRIER();  // before the next group's tables
    }
}
