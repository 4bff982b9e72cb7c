// Copies a block of up to 12 axes between any two arrangements, e.g. filter taps that lie a stride apart to a matrix, or
// the rows of products to pixels that lie a stride apart:
//   to[i0*to[0] + ... + i11*to[11]] = from[i0*from[0] + ... + i11*from[11]]
// Axes that are not needed have the length 1 and come first.
//
// It only moves bits: ELEM is the unsigned type of an element's size. One item is one place of the first nine axes and, of
// each of the last three, a part: the whole axis on the host (`parts` 1), one element on a GPU (`parts` the length).
#include "portable.h"

#define AXES 12
#define INNER 9  // the first of the axes that an item may walk

struct CopyBlockParams {
    int64 length[AXES], from[AXES], to[AXES];
    int64 parts[AXES - INNER];
};

HF_KERNEL(copy_block, const elem_t* HF_RESTRICT from, elem_t* HF_RESTRICT to, CopyBlockParams p) {
    HF_FOR_ITEMS(item) {
        int64 rest = item;
        const elem_t* source = from;
        elem_t* target = to;
#pragma unroll
        for (int axis = AXES - 1; axis >= 0; --axis) {
            const int64 places = axis < INNER ? p.length[axis] : p.parts[axis - INNER];
            if (places == 1) continue;
            const int64 next = quotient(rest, places), i = rest - next * places;
            source += i * p.from[axis];
            target += i * p.to[axis];
            rest = next;
        }
        const int64 planes = p.parts[0] == 1 ? p.length[INNER] : 1;
        const int64 rows = p.parts[1] == 1 ? p.length[INNER + 1] : 1;
        const int64 columns = p.parts[2] == 1 ? p.length[INNER + 2] : 1;
        const int64 from_step = p.from[AXES - 1], to_step = p.to[AXES - 1];
        for (int64 plane = 0; plane < planes; ++plane) {
            for (int64 row = 0; row < rows; ++row) {
                const elem_t* line = source + plane * p.from[INNER] + row * p.from[INNER + 1];
                elem_t* out = target + plane * p.to[INNER] + row * p.to[INNER + 1];
                if (from_step == 1 && to_step == 1) {
                    for (int64 i = 0; i < columns; ++i) out[i] = line[i];
                } else {
                    for (int64 i = 0; i < columns; ++i) out[i * to_step] = line[i * from_step];
                }
            }
        }
    }
}
