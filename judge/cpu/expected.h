// SPDX-License-Identifier: Apache-2.0
// The expected results: the reference and the twin.
//
// The twin is an honest kernel: unfused attention that rounds only where every kernel on matrix
// units must. Forward: P~ = round(exp(s - max)), O = round(P~ V / sum of exp(s - max)). delta =
// dO.O of the rounded O. Backward: P = exp(s - LSE), dV = round(sum of round(P)' dO), dS = round(P
// (dP - delta) slope of the softcap), dQ = round(scale dS K), dK = round(scale dS' Q), gradients of
// heads that share a key head summed before; dbias = round(sum of P (dP - delta)). It is computed
// in fp32; with dtype fp32 nothing else is rounded.
//
// The reference is fp64 (judge/cpu/reference.h). For 16-bit dtypes it is the twin plus its
// residual, from the same pass in fp32, which is thousands of times as exact as the dtype: scores,
// P and dP are computed once, P = round(P) + rest and dS likewise, and the products with the rests
// are the residual.
#ifndef CPATTN_JUDGE_CPU_EXPECTED_H
#define CPATTN_JUDGE_CPU_EXPECTED_H

#include "judge/mask.h"
#include "plan/case.h"

enum precision { PRECISION_FAST, PRECISION_FP64 };

// The fast one where it will do. There is none for fp32, which gets the other whatever is asked
// for.
enum precision expected_precision(const struct cp_case *c);

// Memory that calls need and that outlives them; all zeros at first. Not for two threads.
struct room {
    char *base;
    size_t bytes;
    struct operands *operands; // judge/cpu/room.h
};
void room_fini(struct room *r);

// What adds up over queries, each NULL or set to something before. *_twin is the same of the twin,
// or where it says squares the squares of its terms' differences; *_terms are squares of what
// cancels. In dbias this is P^2 (dP^2 + delta^2 + rules_product_squares()): the gradient of a bias
// has no slope of a softcap.
struct expected_sums {
    double *max_logit; // raised to the largest visible logit
    double *dsink, *dsink_twin_squares, *dsink_terms;
    double *dbias, *dbias_twin; // [n][dbias_stride]
    double *dbias_terms;        // there if dbias_twin is
    int64_t dbias_stride;       // 0: all queries add to the same row
};

// Rows of one (sequence, query head): out [n][d_v], dq [n][d_qk], the others [n]. lse is the
// natural logarithm, with the sink, -inf for a row that sees nothing. `terms` is the RMS of an
// element of dq if nothing in it cancels: that of judge/cpu/reference.h * RMS of K.
struct expected_queries {
    double *out, *lse, *delta, *dq, *terms;
    float *out_twin, *dq_twin;
    double *delta_twin;
    struct expected_sums sums;
};

// Fills positions [begin, end) of the sequence's tokens; out, lse and out_twin alone unless the
// case is one of training. RESOURCE_EXHAUSTED when memory is short.
enum status expected_queries(const struct cp_case *c, enum precision precision, int sequence,
                             int head, struct range queries, struct room *room,
                             const struct expected_queries *e, struct error *error) MUST_CHECK;

// Rows of one (sequence, key head), with the terms of dk.
struct expected_keys {
    double *dk, *dv, *terms;
    float *dk_twin, *dv_twin;
};

// Of all queries of the heads that share a key head: [heads / kv_heads][tokens of the sequence].
struct expected_statistics {
    const double *lse, *delta, *delta_twin;
};

enum status expected_keys(const struct cp_case *c, enum precision precision, int sequence,
                          int kv_head, struct range keys,
                          const struct expected_statistics *statistics, struct room *room,
                          const struct expected_keys *e, struct error *error) MUST_CHECK;

#endif
