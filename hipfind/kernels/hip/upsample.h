// What the kernels of bilinear 2D resizing share. The gradient is dx = U_h^T dy U_w, where U holds the weights of each
// output of an axis.
//
// Output o reads the input at source(o) = (step * o + shift) / unit, limited to the first and last pixel: 1 - f of the
// pixel before, f of the one behind. These are exact whole numbers, so every kernel sees the same windows: pixel k gets
// f of the outputs [beyond(k - 1), from(k)) and 1 - f of [from(k), from(k + 1)), where from(k) is the first output whose
// source is k or more and beyond(k) the first whose source is more than k. All these weights are greater than 0: what
// has no weight is not read, so that NaN and infinity stay where they belong.
//
// A plane is what repeats: an image's channel where images are channel-first (`inner` is 1), else an image, or some
// channels of it, with `inner` neighbouring channels in a pixel.
#pragma once
#include "portable.h"

struct Axis {
    int64 in, out, step, shift, unit;
};

HF_DEVICE int64 least(int64 a, int64 b) { return a < b ? a : b; }
HF_DEVICE int64 ceiling(int64 a, int64 b) { return quotient(a + b - 1, b); }

// First output whose source is at least `position / unit`.
HF_DEVICE int64 first_output(const Axis& axis, int64 position) {
    const int64 distance = position - axis.shift;
    if (distance <= 0) return 0;
    return axis.step == 0 ? axis.out : least(ceiling(distance, axis.step), axis.out);
}
HF_DEVICE int64 from(const Axis& axis, int64 pixel) {
    return pixel <= 0 ? 0 : pixel >= axis.in ? axis.out : first_output(axis, pixel * axis.unit);
}
HF_DEVICE int64 beyond(const Axis& axis, int64 pixel) {
    return pixel < 0 ? 0 : first_output(axis, pixel * axis.unit + 1);
}

struct Source {
    int64 pixel;
    acc_t fraction;
};
HF_DEVICE Source source(const Axis& axis, int64 output) {
    const int64 position = axis.step * output + axis.shift;
    if (position <= 0) return {0, 0};
    const int64 pixel = quotient(position, axis.unit);
    if (pixel >= axis.in - 1) return {axis.in - 1, 0};
    return {pixel, acc_t(position - pixel * axis.unit) / acc_t(axis.unit)};
}

// Where planes, rows and pixels of a tensor lie, in elements.
struct Steps {
    int64 image, plane, row, pixel;
};
HF_DEVICE int64 plane_offset(const Steps& steps, int64 plane, int64 planes_per_image) {
    const int64 image = quotient(plane, planes_per_image);
    return image * steps.image + (plane - image * planes_per_image) * steps.plane;
}

template <int COUNT>
struct alignas(COUNT * sizeof(elem_t)) Vector {
    elem_t elements[COUNT];
};
template <int COUNT>
HF_DEVICE bool is_aligned(const elem_t* first) {
    return (unsigned long long)first % sizeof(Vector<COUNT>) == 0;
}

// Around one of two branches that differ in alignment only: compilers make one of both, of single elements.
#if defined(HF_HOST)
#define HF_KEEP_APART()
#else
#define HF_KEEP_APART() asm volatile("" ::: "memory")
#endif

// One element of a vector. GPUs take two 16-bit elements out of a register with an instruction for each; taken one by one,
// the compiler spreads them over registers first.
template <int COUNT>
HF_DEVICE acc_t element_of(const Vector<COUNT>& vector, int e) {
#if !defined(HF_HOST)
    if (sizeof(elem_t) == 2 && COUNT % 2 == 0) {
        uint32 both;
        HF_COPY_BITS(&both, &vector.elements[e / 2 * 2], 4);
        const uint16 bits = uint16(both >> (e % 2 * 16));
        elem_t element;
        HF_COPY_BITS(&element, &bits, sizeof(bits));
        return load(element);
    }
#endif
    return load(vector.elements[e]);
}

// A whole vector, aligned. Compilers store 16 bytes one element after the other where they are not told.
template <int COUNT>
HF_DEVICE void put_whole(elem_t* to, const Vector<COUNT>& vector) {
#if defined(HF_CUDA)
    if (sizeof(vector) == 16) {
        uint32 words[4];
        HF_COPY_BITS(words, &vector, sizeof(vector) < 16 ? sizeof(vector) : 16);
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                     "r"(words[3])
                     : "memory");
        return;
    }
#elif defined(HF_HIP)
    if (sizeof(vector) == 16) {
        typedef uint32 Words __attribute__((vector_size(16), may_alias));
        Words words;
        HF_COPY_BITS(&words, &vector, sizeof(vector) < 16 ? sizeof(vector) : 16);
        *(Words*)to = words;
        return;
    }
#endif
    *(Vector<COUNT>*)to = vector;
}

// Neighbouring elements; `wide`: they are aligned.
template <int COUNT>
HF_DEVICE void put_pack(elem_t* HF_RESTRICT to, const acc_t (&sums)[COUNT], bool wide) {
    Vector<COUNT> pack;
    for (int e = 0; e < COUNT; ++e) pack.elements[e] = store<elem_t>(sums[e]);
    if (wide) {
        put_whole(to, pack);
    } else {
        HF_KEEP_APART();
        for (int e = 0; e < COUNT; ++e) to[e] = pack.elements[e];
        HF_KEEP_APART();
    }
}
