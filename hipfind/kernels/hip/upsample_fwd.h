// What the kernels of bilinear 2D resizing itself share: the two neighbours that an output of an axis reads.
#pragma once
#include "upsample.h"

// The pixel before an output's source and the one behind it, with the weight of the latter. A source that is a pixel's
// own place reads that pixel twice, by halves: so there is always one kind of sum, which reads nothing without a weight.
struct Taps {
    int before, behind;
    acc_t fraction;
};
HF_DEVICE Taps taps_of(const Source& source) {
    const int before = int(source.pixel);
    return source.fraction > 0 ? Taps{before, before + 1, source.fraction} : Taps{before, before, acc_t(0.5)};
}
HF_DEVICE acc_t between(acc_t before, acc_t behind, acc_t fraction) {
    return (1 - fraction) * before + fraction * behind;
}

// A source that moves from output to output without divisions: pixel + rest / unit. Pixel -1 is before the first one.
struct Walk {
    int pixel;
    int64 rest;
};
HF_DEVICE Walk walk_to(const Axis& axis, int64 output) {
    const int64 position = axis.step * output + axis.shift;
    if (position < 0) return {-1, position + axis.unit};
    const int64 pixel = quotient(position, axis.unit);
    return {int(pixel), position - pixel * axis.unit};
}
HF_DEVICE Walk step_of(const Axis& axis) {
    const int64 pixels = quotient(axis.step, axis.unit);
    return {int(pixels), axis.step - pixels * axis.unit};
}
HF_DEVICE void advance(Walk& walk, const Walk& step, int64 unit) {
    walk.pixel += step.pixel;
    walk.rest += step.rest;
    if (walk.rest >= unit) {
        walk.rest -= unit;
        ++walk.pixel;
    }
}
// `share`: 1 / unit.
HF_DEVICE Source source_at(const Walk& walk, const Axis& axis, acc_t share) {
    if (walk.pixel < 0) return {0, 0};
    if (walk.pixel >= axis.in - 1) return {axis.in - 1, 0};
    return {walk.pixel, acc_t(walk.rest) * share};
}
