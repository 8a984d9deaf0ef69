// SPDX-License-Identifier: Apache-2.0
// The inner loops of the twin, in fp32. The length of a row of scores is a multiple of the block,
// so that compilers can vectorize loops over whole blocks.
#ifndef CPATTN_JUDGE_CPU_LOOPS_H
#define CPATTN_JUDGE_CPU_LOOPS_H

#include "plan/case.h"

#define LOOP_BLOCK 32

// `count` rounded up to whole blocks.
int64_t loop_padded(int64_t count);

// The largest of x[begin..end); -inf if the range is empty.
float loop_max(const float *x, int64_t begin, int64_t end);

// x = exp((x - shift) * base) in [begin, end), within 2 units in the last place and 0 below 2^-126;
// exactly 0 elsewhere in [0, padded). Returns the sum of x: short sums in fp32, added up in fp64.
double loop_exp(float *x, int64_t begin, int64_t end, int64_t padded, float shift, float base);

// Splits x into its value rounded to the dtype and the rest: head + rest == x. rest may be NULL.
void loop_split(enum case_dtype dtype, const float *x, float *head, float *rest, int64_t padded);

void loop_scale(float *x, float factor, int64_t padded);

// The inputs for dS of one row.
struct loop_gradient {
    enum case_dtype dtype;
    const float *p;          // probabilities, not rounded
    const float *slope;      // d logit / d scaled score; NULL: 1
    float cap_error;         // rules_cap_error()
    float delta, delta_twin; // of the reference and of the twin
    float products;          // rules_product_squares()
};

// head = the twin's dS: p (dp - delta_twin) slope, rounded to the dtype, with the slope of
// rules_cap_slope(). rest = the reference's dS minus head: p (dp - delta) slope - head, not
// rounded; NULL: not computed. Returns the sum of the terms (p slope)^2 (dp^2 + delta^2 + products)
// with the twin's slope. Adds each term to `terms` [padded] unless that is NULL.
double loop_gradient(const struct loop_gradient *g, const float *dp, float *head, float *rest,
                     float *terms, int64_t padded);

// sum += p (dp - delta), in fp64: the gradient of logits.
void loop_add_gradient(const float *p, const float *dp, float delta, double *sum, int64_t count);

// The sum of p^2 (dp^2 + delta^2 + products): the terms of the gradient of logits.
double loop_terms(const float *p, const float *dp, float delta, float products, int64_t count);

// The sum of x y.
double loop_dot(const float *x, const double *y, int64_t count);

#endif
