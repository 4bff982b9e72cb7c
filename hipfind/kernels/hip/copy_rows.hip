// Copies packed rows to packed rows of another length; what the longer row has beyond the shorter one becomes 0:
//   to[row, column] = column < from_length ? from[row, column] : 0
//
// It only moves bits: ELEM is the unsigned type of an element's size, and both lengths are counted in vectors of UNIT
// elements. One item is one vector of `to`.
#include "vector.h"

struct CopyRowsParams {
    int64 from_length, to_length;
};

HF_KERNEL(copy_rows, const elem_t* HF_RESTRICT from, elem_t* HF_RESTRICT to, CopyRowsParams p) {
    const bool wide = UNIT > 1 && is_aligned<UNIT>(from) && is_aligned<UNIT>(to);
    HF_FOR_ITEMS(item) {
        const int64 row = quotient(item, p.to_length), column = item - row * p.to_length;
        elem_t* out = to + item * UNIT;
        const elem_t* in = from + (row * p.from_length + column) * UNIT;
        const bool inside = column < p.from_length;
        if (wide) {
            put_whole(out, inside ? *(const Vector<UNIT>*)in : Vector<UNIT>{});
        } else {
            for (int i = 0; i < UNIT; ++i) out[i] = inside ? in[i] : elem_t(0);
        }
    }
}
