// Neighbouring elements that are read and written at once.
#pragma once
#include "portable.h"

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

// A whole vector, aligned. Compilers store it one element after the other where they are not told.
template <int COUNT>
HF_DEVICE void put_whole(elem_t* to, const Vector<COUNT>& vector) {
#if defined(HF_CUDA)
    constexpr int BYTES = sizeof(vector) < 16 ? sizeof(vector) : 16;
    uint32 words[4];
    HF_COPY_BITS(words, &vector, BYTES);
    if (sizeof(vector) == 16) {
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                     "r"(words[3])
                     : "memory");
        return;
    }
    if (sizeof(vector) == 8) {
        asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(words[0]), "r"(words[1]) : "memory");
        return;
    }
    if (sizeof(vector) == 4) {
        asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(words[0]) : "memory");
        return;
    }
#elif defined(HF_HIP)
    if (sizeof(vector) >= 4 && sizeof(vector) <= 16) {
        typedef uint32 Words __attribute__((vector_size(sizeof(vector) < 4 ? 4 : sizeof(vector)), may_alias));
        Words words;
        HF_COPY_BITS(&words, &vector, sizeof(words));
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
