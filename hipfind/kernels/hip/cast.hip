// Elementwise conversion of packed buffers: fp32 sums to the output's element type. One item is one element.
#include "portable.h"

struct CastParams {
    int64 count, unused0, unused1;
};

HF_KERNEL(cast_from_fp32, const float* HF_RESTRICT x, elem_t* HF_RESTRICT y, CastParams p) {
    HF_FOR_ITEMS(i) y[i] = store<elem_t>(x[i]);
}
