// Conversion of rows between a 16-bit type and packed fp32, around matrix products that are computed in fp32.
// An item is `segment` elements of a row; lines of the 16-bit matrix lie `step` elements apart.
#include "portable.h"

struct Rows {
    int64 columns, step, segment, segments;
    double alpha, beta;
};

HF_KERNEL(widen_rows, const elem_t* HF_RESTRICT from, float* HF_RESTRICT to, Rows p) {
    HF_FOR_ITEMS(item) {
        const int64 row = quotient(item, p.segments), first = (item - row * p.segments) * p.segment;
        const int64 count = first + p.segment < p.columns ? p.segment : p.columns - first;
        const elem_t* x = from + row * p.step + first;
        float* y = to + row * p.columns + first;
        for (int64 i = 0; i < count; ++i) y[i] = load(x[i]);
    }
}

// to = alpha * from + beta * to; with beta 0 nothing is read from `to`.
HF_KERNEL(narrow_rows, const float* HF_RESTRICT from, elem_t* HF_RESTRICT to, Rows p) {
    HF_FOR_ITEMS(item) {
        const int64 row = quotient(item, p.segments), first = (item - row * p.segments) * p.segment;
        const int64 count = first + p.segment < p.columns ? p.segment : p.columns - first;
        const float* x = from + row * p.columns + first;
        elem_t* y = to + row * p.step + first;
        const float alpha = float(p.alpha), beta = float(p.beta);
        if (beta == 0)
            for (int64 i = 0; i < count; ++i) y[i] = store<elem_t>(alpha * x[i]);
        else
            for (int64 i = 0; i < count; ++i) y[i] = store<elem_t>(alpha * x[i] + beta * load(y[i]));
    }
}
