// What the kernels of bilinear 2D resizing share. The gradient is dx = U_h^T dy U_w, where U holds the weights of each
// output of an axis.
//
// Output o reads the input at source(o) = (step * o + shift) / unit, limited to the first and last pixel: 1 - f of the
// pixel before, f of the one behind. These are exact whole numbers, so every kernel sees the same windows: pixel k gets
// f of the outputs [beyond(k - 1), from(k)) and 1 - f of [from(k), from(k + 1)), where from(k) is the first output whose
// source is k or more and beyond(k) the first whose source is more than k. All these weights are greater than 0: what
// has no weight is not read, so that NaN and infinity stay where they belong.
//
// A plane is what repeats: an image's channel where images are channel-first (`inner` is 1), else an image, or some
// channels of it, with `inner` neighbouring channels in a pixel.
#pragma once
#include "vectors.h"

struct Axis {
    int64 in, out, step, shift, unit;
};

HF_DEVICE int64 least(int64 a, int64 b) { return a < b ? a : b; }
HF_DEVICE int64 ceiling(int64 a, int64 b) { return quotient(a + b - 1, b); }

// First output whose source is at least `position / unit`.
HF_DEVICE int64 first_output(const Axis& axis, int64 position) {
    const int64 distance = position - axis.shift;
    if (distance <= 0) return 0;
    return axis.step == 0 ? axis.out : least(ceiling(distance, axis.step), axis.out);
}
HF_DEVICE int64 from(const Axis& axis, int64 pixel) {
    return pixel <= 0 ? 0 : pixel >= axis.in ? axis.out : first_output(axis, pixel * axis.unit);
}
HF_DEVICE int64 beyond(const Axis& axis, int64 pixel) {
    return pixel < 0 ? 0 : first_output(axis, pixel * axis.unit + 1);
}

struct Source {
    int64 pixel;
    acc_t fraction;
};
HF_DEVICE Source source(const Axis& axis, int64 output) {
    const int64 position = axis.step * output + axis.shift;
    if (position <= 0) return {0, 0};
    const int64 pixel = quotient(position, axis.unit);
    if (pixel >= axis.in - 1) return {axis.in - 1, 0};
    return {pixel, acc_t(position - pixel * axis.unit) / acc_t(axis.unit)};
}

// Where planes, rows and pixels of a tensor lie, in elements.
struct Steps {
    int64 image, plane, row, pixel;
};
HF_DEVICE int64 plane_offset(const Steps& steps, int64 plane, int64 planes_per_image) {
    const int64 image = quotient(plane, planes_per_image);
    return image * steps.image + (plane - image * planes_per_image) * steps.plane;
}
