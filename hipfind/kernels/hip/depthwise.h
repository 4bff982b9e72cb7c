// What the kernels of depthwise convolution share: which rows and columns of the source a tile of results meets, and
// how a row of them comes into registers.
//
// Filter, stride, dilation and padding are definitions, and so is the tile: every index into it is known to the
// compiler, which keeps all of it in registers. A tile has TILE_H x TILE_W results of CHANNELS neighbouring channels;
// CHANNEL_LAST says that PIXEL channels lie together, else CHANNELS is 1. Positions in the source count from the tile's
// base: its first result times the stride, or, where BACKWARD, divided by it.
#pragma once
#include "vectors.h"

#if defined(HF_HOST)
#define HF_UNROLL _Pragma("GCC unroll 16")
constexpr int MEMBERS = HF_GROUP;
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#else
#define HF_UNROLL _Pragma("unroll")
constexpr int MEMBERS = HF_BLOCK;
#endif

HF_DEVICE int64 least(int64 a, int64 b) { return a < b ? a : b; }

#define FLOORED(a, b) ((a) >= 0 ? (a) / (b) : -(((b) - 1 - (a)) / (b)))

// One axis of a tile. Source positions low..high are all that its results meet.
template <int TAPS, int STRIDE, int DILATION, int PAD, int TILE>
struct Along {
    static constexpr int low = BACKWARD ? FLOORED(PAD - (TAPS - 1) * DILATION, STRIDE) : -PAD;
    static constexpr int high =
        BACKWARD ? FLOORED(TILE - 1 + PAD, STRIDE) : (TILE - 1) * STRIDE + (TAPS - 1) * DILATION - PAD;
    // Results `phases` apart meet the same taps, at neighbouring source positions but for `spread` between them.
    static constexpr int phases = BACKWARD ? STRIDE : 1;
    static constexpr int spread = BACKWARD ? 1 : STRIDE;
    static constexpr int per_phase = TILE / phases;
    static constexpr int count = high - low + 1;
    static constexpr int length = (high - low) / spread + 1;

    HF_DEVICE bool meets(int result, int tap) { return !BACKWARD || (result + PAD - tap * DILATION) % STRIDE == 0; }
    HF_DEVICE int source(int result, int tap) {
        return BACKWARD ? FLOORED(result + PAD - tap * DILATION, STRIDE) : result * STRIDE + tap * DILATION - PAD;
    }
    // The tap that joins a result to a source position, or -1.
    HF_DEVICE int tap(int result, int position) {
        const int reach = BACKWARD ? result + PAD - position * STRIDE : position + PAD - result * STRIDE;
        return reach >= 0 && reach % DILATION == 0 && reach / DILATION < TAPS ? reach / DILATION : -1;
    }
    HF_DEVICE int offset(int tap) { return BACKWARD ? PAD - tap * DILATION : tap * DILATION - PAD; }
    HF_DEVICE int64 base(int64 result) { return BACKWARD ? quotient(result, STRIDE) : result * STRIDE; }
    // Where a source position lies in a line that is sorted so that what results meet through a tap are neighbours.
    HF_DEVICE int slot(int position) { return (position - low) % spread * length + (position - low) / spread; }
    // The same for results.
    HF_DEVICE int result_slot(int result) { return result % phases * per_phase + result / phases; }
};
typedef Along<TAPS_H, STRIDE_H, DILATION_H, PAD_H, TILE_H> Down;
typedef Along<TAPS_W, STRIDE_W, DILATION_W, PAD_W, TILE_W> Across;

constexpr int TAPS = TAPS_H * TAPS_W;

// Neighbours that are multiplied at once: a vector of channels or of columns on the host, the longest that fits.
constexpr int NEIGHBOURS = CHANNEL_LAST ? CHANNELS : Across::per_phase;
#if defined(HF_HOST)
constexpr int vector_length(int lanes) {
    return lanes <= 1 ? 1 : NEIGHBOURS % lanes == 0 ? lanes : vector_length(lanes / 2);
}
constexpr int VECTOR = vector_length(VECTOR_BYTES / sizeof(acc_t));
typedef acc_t vec_t __attribute__((vector_size(VECTOR * sizeof(acc_t)), aligned(sizeof(acc_t)), may_alias));
#else
constexpr int VECTOR = 1;
typedef acc_t vec_t;
#endif

// A row of the source under a tile, sorted by slots.
struct Line {
    alignas(64) acc_t at[Across::spread * Across::length * CHANNELS];
};

// A distance to which a compiler adds constants, rather than make a new one for every constant.
HF_DEVICE int64 settled(int64 distance) {
#if defined(HF_CUDA)
    asm volatile("" : "+l"(distance));
#endif
    return distance;
}

// After each row: AMD's compilers would otherwise put off all products until the sums are needed, and keep all rows in
// more registers than there are. In pairs, for which they have instructions.
template <int COUNT>
HF_DEVICE void settle(acc_t (&sums)[COUNT]) {
#if defined(__AMDGCN__)
    typedef acc_t Pair __attribute__((ext_vector_type(2)));
    HF_UNROLL
    for (int m = 0; m + 1 < COUNT; m += 2) {
        Pair pair = {sums[m], sums[m + 1]};
        asm volatile("" : "+v"(pair));
        sums[m] = pair.x, sums[m + 1] = pair.y;
    }
    if (COUNT % 2) asm volatile("" : "+v"(sums[COUNT - 1]));
#endif
}

// A row as it is read: in packs of PACK columns, or of CHANNELS channels.
constexpr int WIDTH = CHANNEL_LAST ? 1 : PACK;
constexpr int UNIT = CHANNEL_LAST ? CHANNELS : PACK;
constexpr int FIRST = FLOORED(Across::low, WIDTH) * WIDTH;
constexpr int PACKS = (Across::high - FIRST) / WIDTH + 1;
template <int BYTES>
struct WordOf {
    typedef uint32 type;
};
template <>
struct WordOf<8> {
    typedef unsigned long long type;
};

// Packs are kept as whole registers: compilers take 16-bit fields apart and put them together again at every branch.
typedef WordOf<sizeof(elem_t)>::type word_t;
constexpr int WORDS = (UNIT * sizeof(elem_t) + sizeof(word_t) - 1) / sizeof(word_t);

struct RawRow {
    word_t packs[PACKS][WORDS];
};

HF_DEVICE void read_pack(word_t (&words)[WORDS], const elem_t* HF_RESTRICT from) {
    if (UNIT * sizeof(elem_t) == 2) {
        words[0] = *(const uint16*)from;
    } else {
        const Vector<UNIT> pack = *(const Vector<UNIT>*)from;
        HF_COPY_BITS(words, &pack, sizeof(words));
    }
}

HF_DEVICE acc_t element_of(const word_t (&words)[WORDS], int e) {
    constexpr int BITS = 8 * sizeof(elem_t), PER_WORD = sizeof(word_t) / sizeof(elem_t);
    const word_t bits = words[e / PER_WORD] >> e % PER_WORD * BITS;
    elem_t element;
    HF_COPY_BITS(&element, &bits, sizeof(element));
    return load(element);
}

// Bit k is set where first + k * step lies in [0, size).
template <int COUNT>
HF_DEVICE uint32 bits_inside(int first, int step, int size) {
    uint32 bits = 0;
    HF_UNROLL
    for (int k = 0; k < COUNT; ++k)
        if (unsigned(first + k * step) < unsigned(size)) bits |= 1u << k;
    return bits;
}

// `row`: the base column. Bits of `there`: packs that lie inside; the others are zero. INSIDE: all or none are.
template <bool INSIDE>
HF_DEVICE void read_row(RawRow& raw, const elem_t* HF_RESTRICT row, uint32 there) {
    if (INSIDE && there) {
        HF_UNROLL
        for (int u = 0; u < PACKS; ++u) read_pack(raw.packs[u], row + (FIRST + u * WIDTH) * PIXEL);
    } else {
        raw = {};
        HF_UNROLL
        for (int u = 0; u < PACKS; ++u)
            if (!INSIDE && (there >> u & 1)) read_pack(raw.packs[u], row + (FIRST + u * WIDTH) * PIXEL);
    }
}

HF_DEVICE void convert(Line& line, const RawRow& raw) {
    HF_UNROLL
    for (int position = Across::low; position <= Across::high; ++position)
        HF_UNROLL
        for (int c = 0; c < CHANNELS; ++c) {
            const int e = position - FIRST;
            line.at[Across::slot(position) * CHANNELS + c] =
                element_of(raw.packs[e / WIDTH], CHANNEL_LAST ? c : e % WIDTH);
        }
}

// The host's way: from memory, element by element; loops of neighbours are for vectors.
HF_DEVICE void fill(Line& line, const elem_t* HF_RESTRICT row, int column, int width) {
    for (int phase = 0; phase < Across::spread; ++phase) {
        acc_t* to = line.at + phase * Across::length * CHANNELS;
        const int first = column + Across::low + phase;  // of the columns first + k * spread
        const int before = first < 0 ? (Across::spread - 1 - first) / Across::spread : 0;
        const int there = width > first ? (width - first + Across::spread - 1) / Across::spread : 0;
        const int begin = before < Across::length ? before : Across::length;
        const int end = there < Across::length ? there : Across::length;
        const elem_t* from = row + (Across::low + phase) * int64(PIXEL);
        for (int m = 0; m < begin * CHANNELS; ++m) to[m] = 0;
        for (int k = begin; k < end; ++k)
            for (int c = 0; c < CHANNELS; ++c)
                to[k * CHANNELS + c] = load(from[k * int64(Across::spread * PIXEL) + c]);
        for (int m = (begin < end ? end : begin) * CHANNELS; m < Across::length * CHANNELS; ++m) to[m] = 0;
    }
}

// Where a tap joins a result to the source: false where it does not, or outside of it. For the path without tiles.
template <class Axis>
HF_DEVICE bool joins(int64 result, int tap, int64 size, int64& position) {
    const int64 reach = result * Axis::spread + Axis::offset(tap);
    position = Axis::phases == 1 ? reach : reach / Axis::phases;
    return reach >= 0 && position * Axis::phases == reach && position < size;
}
