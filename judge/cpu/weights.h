// SPDX-License-Identifier: Apache-2.0
// The inner loops of the twin for processors with AMX (judge/cpu/matrix.h), which also have
// AVX-512. Like judge/cpu/loops.h, but results are split in bf16 pieces as by amx_split(). Row
// lengths are multiples of 32 elements. Call only if amx_usable().
#ifndef CPATTN_JUDGE_CPU_WEIGHTS_H
#define CPATTN_JUDGE_CPU_WEIGHTS_H

#include <stdint.h>

// The largest of x[begin..end) * scale; -inf if the range is empty.
float weights_max(const float *x, int64_t begin, int64_t end, float scale);

struct weights_exp {
    float *x;              // products in, exponentials out
    int64_t begin, end;    // visible columns; elsewhere exponentials are 0
    float scale, shift;    // exp(x * scale - shift)
    const float *shifts;   // NULL, or a shift of each element, in place of `shift`
    uint16_t *head, *rest; // the exponentials in pieces; rest may be NULL
};

// Computes the exponentials. Returns their sum: short sums in fp32, added up in fp64.
double weights_exp(const struct weights_exp *w, int64_t padded);

struct weights_gradient {
    const float *p; // p * factor: probabilities, not rounded
    float factor;
    const float *slope; // d logit / d scaled score; NULL: 1
    float cap_error;    // rules_cap_error()
    const float *dp;
    float delta, delta_twin;
    const float *deltas, *deltas_twin; // NULL, or deltas of each element, in place of these
    float products;                    // rules_product_squares()
    uint16_t *head, *rest;             // of dS; rest may be NULL
};

// head = the twin's dS: p (dp - delta_twin) slope in bf16, with the slope of rules_cap_slope().
// rest = the reference's dS minus head: p (dp - delta) slope - head. Returns the sum of the terms
// (p slope)^2 (dp^2 + delta^2 + products), with the twin's slope.
double weights_gradient(const struct weights_gradient *g, int64_t padded);

#endif
