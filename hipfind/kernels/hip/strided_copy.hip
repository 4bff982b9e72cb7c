// Copies a 4D block between any two arrangements, e.g. every second pixel of NCHW to packed CNHW and back:
//   to[i0*t0 + i1*t1 + i2*t2 + i3*t3] = from[i0*f0 + i1*f1 + i2*f2 + i3*f3]
//
// It only moves bits: ELEM is the unsigned type of an element's size. One item is `segment` consecutive elements of the
// last axis: all of it on the host, one element on a GPU.
#include "portable.h"

struct StridedCopyParams {
    int64 length1, length2, length3;
    int64 from0, from1, from2, from3;
    int64 to0, to1, to2, to3;
    int64 segment, segments;
};

HF_KERNEL(strided_copy, const elem_t* HF_RESTRICT from, elem_t* HF_RESTRICT to, StridedCopyParams p) {
    HF_FOR_ITEMS(item) {
        const int64 row = quotient(item, p.segments);
        const int64 begin = (item - row * p.segments) * p.segment;
        const int64 end = begin + p.segment < p.length3 ? begin + p.segment : p.length3;
        const int64 plane = quotient(row, p.length2), i2 = row - plane * p.length2;
        const int64 i0 = quotient(plane, p.length1), i1 = plane - i0 * p.length1;
        const elem_t* source = from + i0 * p.from0 + i1 * p.from1 + i2 * p.from2;
        elem_t* target = to + i0 * p.to0 + i1 * p.to1 + i2 * p.to2;
        if (p.from3 == 1 && p.to3 == 1) {
            for (int64 i = begin; i < end; ++i) target[i] = source[i];
        } else {
            for (int64 i = begin; i < end; ++i) target[i * p.to3] = source[i * p.from3];
        }
    }
}
