// Neighbouring numbers that are read and written at once.
#pragma once
#include "vector.h"

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
