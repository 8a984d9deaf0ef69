// SPDX-License-Identifier: Apache-2.0
// Inner loops for the CPU, compiled once for each instruction set; vector_best() chooses at run
// time. All functions accept any alignment and any count >= 0. None writes beyond its count.
//
// A variant always gives the same bits. Different variants promise the same bits only for `load`,
// `store` and `add`: a sum has one partial sum per lane, and a multiplication may be fused with an
// addition.
#ifndef CPATTN_KERNELS_VECTOR_OPS_H
#define CPATTN_KERNELS_VECTOR_OPS_H

#include "kernels/dtype.h"

struct vector_ops {
    const char *name;

    // dtype_load() and dtype_store() for `count` elements.
    void (*load)(enum case_dtype dtype, const void *source, float *values, int64_t count);
    void (*store)(enum case_dtype dtype, const float *values, void *target, int64_t count);

    // The largest of m and all x; a NaN in x is ignored.
    float (*max)(const float *x, int count, float m);

    // x = 2^(x - shift), within 2 ulp. Results below 2^-126 become 0, results beyond the range
    // +inf; NaN stays NaN. Returns the sum of the new x.
    float (*exp2_sum)(float *x, int count, float shift);

    // From logits in base 2 to P, and from dP to dS: p = 2^(p - shift), then g = p * (g - delta).
    void (*exp2_gradient)(float *p, float *g, int count, float shift, float delta);

    // x = tanh(x) and slope = 1 - tanh(x)^2, both with a relative error of at most 3e-7, also where
    // the slope is tiny. A slope below 2^-124 becomes 0. slope may be NULL.
    void (*tanh)(float *x, float *slope, int count);

    void (*scale)(float *x, int count, float factor);
    void (*multiply)(float *y, const float *x, int count);                  // y *= x
    void (*axpy)(float *y, const float *x, int count, float factor);        // y += factor * x
    void (*blend)(float *y, float wy, const float *x, float wx, int count); // y = wy*y + wx*x
    void (*add)(float *y, const float *x, int64_t count);                   // y += x
    float (*dot)(const float *x, const float *y, int count);
};

#endif
