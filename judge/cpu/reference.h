// SPDX-License-Identifier: Apache-2.0
// The independent reference: unfused attention in fp64 on the CPU, straight from the definition.
// Inputs come from judge/inputs.h by global position, the mask from judge/mask.h; it does not use
// shards, slices or plans, and shares no code with the kernels.
//
// Memory is linear in the sequence lengths: a bounded number of rows is held at a time.
#ifndef CPATTN_JUDGE_CPU_REFERENCE_H
#define CPATTN_JUDGE_CPU_REFERENCE_H

#include "plan/case.h"

// The terms of a row of dQ or dK are the size that it would have with random signs and without
// cancellation: scale * sqrt(sum of P^2 (dP^2 + delta^2 + products)), with the slopes of a softcap,
// where products are rules_product_squares(). They do not contain the factor K or Q. Rounding
// errors are in proportion to the terms, even if the row itself is small.

// Sums over queries. Each is NULL or initialized by the caller.
struct reference_sums {
    double *max_logit;     // raised to the largest visible logit
    double *dsink;         // the gradient of the head's sink is added (learnable sinks only)
    double *dsink_squares; // rules_sink_square() of its terms is added
    double *dbias;         // [n][dbias_stride]: dS of keys [0, length) is added
    int64_t dbias_stride;  // 0: all queries add to the same row
};

// Query side of one (sequence, query head) for positions [begin, end) of the sequence's tokens: out
// [n][d_v], lse [n] (natural logarithm, including the sink; -inf for a row that sees nothing), and
// when training delta [n] = dO.O, dq [n][d_qk] and its terms [n]. delta, dq, terms and sums may be
// NULL; dsink needs delta, dbias and terms dq. RESOURCE_EXHAUSTED: memory is short.
enum status reference_queries(const struct cp_case *c, int sequence, int head, int64_t begin,
                              int64_t end, double *out, double *lse, double *delta, double *dq,
                              double *terms, const struct reference_sums *sums,
                              struct error *error) MUST_CHECK;

// Key side of one (sequence, key head) for positions [begin, end) of the sequence's tokens: dk
// [n][d_qk] with its terms [n] (may be NULL), dv [n][d_v], from lse and delta of all queries of the
// heads that share the key head: [heads / kv_heads][tokens of the sequence].
enum status reference_keys(const struct cp_case *c, int sequence, int kv_head, int64_t begin,
                           int64_t end, const double *lse, const double *delta, double *dk,
                           double *dv, double *terms, struct error *error) MUST_CHECK;

#endif
