// SPDX-License-Identifier: Apache-2.0
// The expected results: the reference and the twin.
//
// The twin is an honest kernel: unfused attention that rounds only where every kernel on matrix
// units must. Forward: P~ = round(exp(s - max)), O = round(P~ V / sum of exp(s - max)). delta =
// dO.O of the rounded O. Backward: P = exp(s - LSE), dV = round(sum of round(P)' dO), dS = round(P
// (dP - delta) slope of the softcap), dQ = round(scale dS K), dK = round(scale dS' Q), dbias =
// round(sum of P (dP - delta)). dK and dV are summed over the query heads of a key head before they
// are rounded. The slope has the errors of logits and of tanh in fp32 (rules_cap_slope()). The twin
// computes in fp32; with dtype fp32 there is no other rounding. With fp16, a sink far above all
// logits takes the place of max, so that P~ is denormal.
//
// The reference is fp64 (judge/cpu/reference.h). For 16-bit dtypes it is the twin plus its
// residual, from the same pass in fp32, which is thousands of times as precise as the dtype:
// scores, P and dP are computed once, P = round(P) + rest and dS likewise, and the products with
// the rests are the residual.
#ifndef CPATTN_JUDGE_CPU_EXPECTED_H
#define CPATTN_JUDGE_CPU_EXPECTED_H

#include "judge/cpu/outputs.h"
#include "judge/cpu/room.h"
#include "judge/mask.h"
#include "plan/case.h"

enum precision { PRECISION_FAST, PRECISION_FP64 };

// PRECISION_FAST if the precision of the fast reference is sufficient. fp32 always uses the fp64
// reference.
enum precision expected_precision(const struct cp_case *c);

// Fills the rows of the given positions of a query head or key head. expected_queries() without
// training fills only out, lse and out_twin. `statistics`: of all queries of the sequence and key
// head. RESOURCE_EXHAUSTED: memory is short.
enum status expected_queries(const struct cp_case *c, enum precision precision, int sequence,
                             int head, struct range queries, struct room *room,
                             const struct expected_queries *e, struct error *error) MUST_CHECK;

enum status expected_keys(const struct cp_case *c, enum precision precision, int sequence,
                          int kv_head, struct range keys,
                          const struct expected_statistics *statistics, struct room *room,
                          const struct expected_keys *e, struct error *error) MUST_CHECK;

#endif
