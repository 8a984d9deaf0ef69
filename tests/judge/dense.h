// SPDX-License-Identifier: Apache-2.0
// A second implementation of attention from its definition: dense arrays, one loop per index, with
// the mask written differently from the reference.
#ifndef CPATTN_TESTS_JUDGE_DENSE_H
#define CPATTN_TESTS_JUDGE_DENSE_H

#include "plan/case.h"

// One sequence of a case, [position][head][d] as in bshd.
struct dense {
    struct cp_case c;
    int64_t sq, sk;
    int h, hk, dk, dv;
    double *q, *k, *v, *d_out;                   // inputs
    double *bias, *sink;                         // [head][query][key], [head]
    double *logits;                              // of visible pairs, from dense_forward()
    double *out, *lse, *delta, *d_q, *d_k, *d_v; // results; lse, delta [head][position]
    double *d_bias, *d_sink, *max_logit;
    double *terms_q, *terms_k; // sums of the squared terms of dQ and dK, [head][position]
    double *terms_bias;        // the same of d_bias, [head][query]
    double *all;               // the memory of all arrays
};

// Draws the inputs of a sequence; sets results to zero.
void dense_init(struct dense *t, const struct cp_case *c, int sequence);
void dense_fini(struct dense *t);

// Computes logits, out and lse.
void dense_forward(struct dense *t);

// Computes max_logit.
void dense_max_logits(struct dense *t);

// Computes all gradients and terms, from the inputs, logits, out and lse. Once after dense_init().
void dense_backward(struct dense *t);

// The vector of d elements at this position and head of a tensor [position][heads][d].
double *dense_row(double *tensor, int64_t position, int heads, int head, int d);

// The element of query i and key j of a tensor [head][query][key].
double *dense_pair(const struct dense *t, double *tensor, int64_t i, int64_t j, int head);

// Product of two vectors.
double dense_product(const double *x, const double *y, int n);

// Zeroed memory; the caller frees it. NULL: memory is short.
double *dense_zeros(int64_t count);

#endif
