// A vector: neighbouring elements of any type that are moved at once.
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
