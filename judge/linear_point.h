// SPDX-License-Identifier: Apache-2.0
// One element between the layers of an MLP: its value, the bound of its error, and the twin's
// value. Compiles as C and as CUDA.
#ifndef CPATTN_JUDGE_LINEAR_POINT_H
#define CPATTN_JUDGE_LINEAR_POINT_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "plan/product.h"

#ifdef __CUDACC__
#define POINT_INLINE static __device__ __forceinline__
#else
#define POINT_INLINE static inline
#endif

// Unit roundoff of fp32, the dtype of all accumulators.
#define FP32 0x1p-24

struct point {
    double value, bound, twin;
};

struct curve {
    double value, slope;
};

POINT_INLINE double point_logistic(double x)
{
    return 1 / (1 + exp(-x));
}

POINT_INLINE struct curve point_curve(enum activation activation, double x)
{
    const double half = 0.70710678118654752440, root = 2.50662827463100050242; // sqrt(2 pi)
    double z = 0.7978845608028654 * (x + 0.044715 * x * x * x), t = tanh(z);
    struct curve c = {x, 1};
    if (activation == ACTIVATION_GELU) {
        c.value = 0.5 * x * erfc(-x * half);
        c.slope = 0.5 * erfc(-x * half) + x * exp(-0.5 * x * x) / root;
    }
    if (activation == ACTIVATION_GELU_TANH) {
        c.value = 0.5 * x * (1 + t);
        c.slope =
            0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
    }
    if (activation == ACTIVATION_SWIGLU) {
        c.value = x * point_logistic(x);
        c.slope = point_logistic(x) * (1 + x * (1 - point_logistic(x)));
    }
    return c;
}

// POINT_SLOPE_MAX bounds the first and second derivatives of all activations. POINT_OFF bounds the
// relative error of computing them in fp32.
#define POINT_SLOPE_MAX 1.2
#define POINT_OFF       (16 * FP32)

// The activation of h, or its slope. With SwiGLU h is the first half, and the activation is SiLU.
POINT_INLINE struct point point_activation(enum activation activation, bool slope, struct point h)
{
    struct curve c = point_curve(activation, h.value), twin = point_curve(activation, h.twin);
    struct point p;
    p.value = slope ? c.slope : c.value;
    p.twin = slope ? twin.slope : twin.value;
    p.bound = POINT_SLOPE_MAX * h.bound + POINT_OFF * (fabs(p.value) + 1e-3);
    return p;
}

// The product of two elements, with the bound that follows from theirs.
POINT_INLINE struct point point_times(struct point x, struct point y)
{
    struct point p;
    p.value = x.value * y.value;
    p.twin = x.twin * y.twin;
    p.bound = (fabs(x.value) + x.bound) * (fabs(y.value) + y.bound) - fabs(p.value) +
              POINT_OFF * fabs(p.value);
    return p;
}

// The bound of an element after it is rounded to the dtype in memory. `unit`: roundoff of the
// dtype; `least`: half of its smallest number.
POINT_INLINE double point_bound_rounded(double unit, double least, double value, double bound)
{
    return bound + unit * (fabs(value) + bound) + least;
}

// What the part of one rank adds to the bound of a sum over ranks that is rounded after each
// addition, in any order of the ranks.
POINT_INLINE double point_bound_added(int ranks, double unit, double value, double bound)
{
    return expm1((ranks - 1) * log1p(unit)) * (fabs(value) + bound);
}

#endif
