// Elementwise conversion of packed buffers: fp32 sums to the output's element type. One item is one element.
#include "portable.h"

HF_KERNEL(cast_from_fp32, const float* HF_RESTRICT x, elem_t* HF_RESTRICT y) {
    HF_FOR_ITEMS(i) y[i] = store<elem_t>(x[i]);
}
