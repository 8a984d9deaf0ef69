// SPDX-License-Identifier: Apache-2.0
// The inner loops of the CPU side, compiled once for each instruction set and chosen when the
// program runs. All functions accept any alignment and any count from 0 up; none writes beyond its
// count.
//
// Results of one variant are always the same bits. Between variants only `load`, `store` and
// `add` are identical: sums are taken in lanes, and products may be fused with additions.
#ifndef CPATTN_KERNELS_VECTOR_OPS_H
#define CPATTN_KERNELS_VECTOR_OPS_H

#include "kernels/dtype.h"

struct vector_ops {
    const char *name;

    // As dtype_load() and dtype_store() for `count` elements.
    void (*load)(enum case_dtype dtype, const void *source, float *values, int64_t count);
    void (*store)(enum case_dtype dtype, const float *values, void *target, int64_t count);

    // The largest of m and all x; NaN is passed over.
    float (*max)(const float *x, int count, float m);

    // x = 2^(x - shift), within 2 units in the last place, 0 below 2^-126 and for -inf, +inf beyond
    // the range; NaN stays NaN. Returns the sum of the new x.
    float (*exp2_sum)(float *x, int count, float shift);

    // p = 2^(p - shift), then g = p * (g - delta).
    void (*exp2_gradient)(float *p, float *g, int count, float shift, float delta);

    // x = tanh(x), within 3e-7 of it relatively; slope = 1 - tanh(x)^2 likewise, also where it is
    // next to nothing (but 0 below 2^-126), unless it is NULL.
    void (*tanh)(float *x, float *slope, int count);

    void (*scale)(float *x, int count, float factor);
    void (*multiply)(float *y, const float *x, int count);                  // y *= x
    void (*axpy)(float *y, const float *x, int count, float factor);        // y += factor * x
    void (*blend)(float *y, float wy, const float *x, float wx, int count); // y = wy*y + wx*x
    void (*add)(float *y, const float *x, int64_t count);                   // y += x
    float (*dot)(const float *x, const float *y, int count);
};

#endif
