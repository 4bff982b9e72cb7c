// Copies packed rows to packed rows of another length; what the longer row has beyond the shorter one becomes 0:
//   to[row, column] = column < from_length ? from[row, column] : 0
//
// It only moves bits: ELEM is the widest unsigned type that divides both row lengths. One item is one element of `to`.
#include "portable.h"

struct CopyRowsParams {
    int64 from_length, to_length;
};

HF_KERNEL(copy_rows, const elem_t* HF_RESTRICT from, elem_t* HF_RESTRICT to, CopyRowsParams p) {
    HF_FOR_ITEMS(item) {
        const int64 row = quotient(item, p.to_length), column = item - row * p.to_length;
        to[item] = column < p.from_length ? from[row * p.from_length + column] : elem_t(0);
    }
}
